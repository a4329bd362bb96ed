"""S3 as a real store plays it, where it is installed: a Ceph cluster of one monitor, one OSD in memory and a gateway.

It runs without privileges in a directory of its own. ``CEPH_ROOT`` names a directory where Debian's packages were
unpacked, if they are not installed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.cluster.processes import LOOPBACK, free_port, serving

__all__ = ["make_rgw_bucket", "radosgw_server", "rgw_environment"]

_KEY, _SECRET = "test-key", "test-secret"
_STEP_SECONDS = 120.0
_PROGRAMS = ("ceph-mon", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin", "ceph")


@contextlib.contextmanager
def radosgw_server(directory: Path) -> Iterator[str]:
    """Run the cluster and yield the address of its gateway."""
    ceph = _Ceph(directory)
    with contextlib.ExitStack() as stack:
        ceph.make_monitor()
        stack.enter_context(ceph.daemon("ceph-mon", "--id", "a"))
        ceph.make_osd()
        stack.enter_context(ceph.daemon("ceph-osd", "--id", "0"))
        ceph.run("radosgw-admin", "user", "create", "--uid=test", "--display-name=test", f"--access-key={_KEY}",
                 f"--secret-key={_SECRET}")  # fmt: skip
        command = ceph.command("radosgw", "--name", "client.rgw", "--foreground")
        port = stack.enter_context(
            serving(
                lambda port: [*command, f"--rgw-frontends=beast endpoint={LOOPBACK}:{port} tcp_nodelay=1"],
                directory / "radosgw.log",
                ceph.environment,
            )
        )
        yield f"http://{LOOPBACK}:{port}"


def rgw_environment(url: str) -> dict[str, str]:
    """Return the variables for a store in the cluster."""
    return {
        "AWS_ACCESS_KEY_ID": _KEY,
        "AWS_SECRET_ACCESS_KEY": _SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": url,
    }


def make_rgw_bucket(url: str, name: str) -> None:
    """Create a bucket, with a signed request, since the client library makes none."""
    import datetime as dt
    import hashlib
    import hmac

    now = dt.datetime.now(dt.UTC)
    stamp, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
    empty = hashlib.sha256(b"").hexdigest()
    host = url.removeprefix("http://")
    headers = {"host": host, "x-amz-content-sha256": empty, "x-amz-date": stamp}
    names = ";".join(sorted(headers))
    canonical = "\n".join(["PUT", f"/{name}", "", *(f"{n}:{headers[n]}" for n in sorted(headers)), "", names, empty])
    scope = f"{day}/us-east-1/s3/aws4_request"
    to_sign = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{_SECRET}".encode()
    for part in (day, "us-east-1", "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, to_sign.encode(), hashlib.sha256).hexdigest()
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={_KEY}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    request = urllib.request.Request(f"{url}/{name}", method="PUT", headers=headers)
    urllib.request.urlopen(request, timeout=30).close()


class _Ceph:
    """A cluster in a directory.

    Args:
        directory: where its files are.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._root = Path(os.environ.get("CEPH_ROOT", "/"))
        path = os.pathsep.join(str(self._root / p) for p in ("usr/bin", "usr/sbin", "bin", "sbin"))
        self._programs = {name: shutil.which(name, path=path) for name in _PROGRAMS}
        missing = [name for name, found in self._programs.items() if not found]
        if missing:
            pytest.skip(f"needs {missing[0]}, of Debian's packages ceph and radosgw: install them, or set CEPH_ROOT")
        lib = self._root / "usr" / "lib"
        machine = os.uname().machine
        native = f"{machine}-linux-gnu"
        libraries = [lib / native, lib / native / "ceph", self._root / "lib" / native]
        self.environment = {
            "CEPH_CONF": str(directory / "ceph.conf"),
            "LD_LIBRARY_PATH": os.pathsep.join(map(str, libraries)),
            "PYTHONPATH": str(lib / "python3" / "dist-packages"),
        }
        self._fsid = str(uuid.uuid4())
        self._monitor = f"v2:{LOOPBACK}:{free_port()}"
        (directory / "ceph.conf").write_text(self._config(lib, machine))

    def _config(self, lib: Path, machine: str) -> str:
        directory = self._directory
        plugins = lib / f"{machine}-linux-gnu" / "ceph"
        return f"""
[global]
fsid = {self._fsid}
mon host = [{self._monitor}]
mon initial members = a
auth cluster required = none
auth service required = none
auth client required = none
ms cluster mode = crc
ms service mode = crc
ms client mode = crc
ms mon cluster mode = crc
ms mon service mode = crc
ms mon client mode = crc
ms bind msgr1 = false
public network = 127.0.0.0/8
run dir = {directory}
log file = {directory}/$name.log
admin socket = {directory}/$name.asok
keyring = {directory}/keyring
mon data = {directory}/mon
osd data = {directory}/osd
osd journal = {directory}/osd/journal
osd objectstore = memstore
memstore device bytes = 2147483648
plugin dir = {plugins}
erasure code dir = {plugins}/erasure-code
osd class dir = {lib}/{machine}-linux-gnu/rados-classes
rgw data = {directory}/rgw
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon allow pool size one = true
mon allow pool delete = true
osd max object name len = 256
osd max object namespace len = 64
rgw enable ops log = false
"""

    def command(self, name: str, *arguments: str) -> list[str]:
        """Return the words of a command."""
        return [str(self._programs[name]), *arguments]

    def run(self, name: str, *arguments: str) -> str:
        """Run a program to its end and return what it printed."""
        done = subprocess.run(
            self.command(name, *arguments),
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=_STEP_SECONDS,
        )
        assert done.returncode == 0, f"{name} {' '.join(arguments)}: {done.stderr[-2000:]}"
        return done.stdout

    def make_monitor(self) -> None:
        """Make the monitor's files."""
        (self._directory / "mon").mkdir()
        (self._directory / "osd").mkdir()
        (self._directory / "keyring").touch()
        map_file = str(self._directory / "monmap")
        self.run("monmaptool", "--create", "--fsid", self._fsid, "--addv", "a", f"[{self._monitor}]", map_file)
        self.run("ceph-mon", "--mkfs", "--id", "a", "--monmap", map_file)

    def make_osd(self) -> None:
        """Make the OSD's files, once the monitor answers."""
        identity = str(uuid.uuid4())
        self.run("ceph", "osd", "new", identity)
        self.run("ceph-osd", "--mkfs", "--id", "0", "--osd-uuid", identity)

    @contextlib.contextmanager
    def daemon(self, name: str, *arguments: str) -> Iterator[None]:
        """Run a program until the block ends."""
        log = (self._directory / f"{name}.out").open("wb")
        process = subprocess.Popen(
            self.command(name, *arguments, "--foreground"),
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **self.environment},
        )
        try:
            time.sleep(1)
            assert process.poll() is None, (self._directory / f"{name}.out").read_text(errors="replace")[-2000:]
            yield
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            log.close()
