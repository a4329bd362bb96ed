"""Hosts on one machine that share nothing but a network: each has mounts, a name and process IDs of its own.

::

    this process, in a network of its own: the bridge, and whatever serves at its address
        ├── north ── /disk, /tmp, /dev/shm: its own, in memory; the system's programs and Python, read-only
        ├── east
        └── west

Nothing of it has a name on the machine, and each host ends with the process that created it: whatever kills that, no
bridge, namespace, mount or process is left.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from demo.cluster.processes import descendants, kill

__all__ = ["DISK", "TIED", "Host", "Isolated", "isolated_hosts", "lacks", "missing", "own_network"]

DISK = Path("/disk")
"""Where an isolated host has a disk of its own."""

TIED = ["setpriv", "--pdeathsig", "KILL"]
"""A command that runs another one, which is killed if this process is."""

_TOOLS = {
    **dict.fromkeys(("mount", "nsenter", "pivot_root", "setpriv", "umount", "unshare"), "util-linux"),
    "hostname": "hostname",
    "ip": "iproute2",
}
_NETWORK = "198.18.0"  # of a range for tests between networks; nobody outside of this process sees it
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_BECOME = """
set -e
name=$1 new_root=$2 hosts=$3; shift 3
mount -t tmpfs -o mode=755 tmpfs "$new_root"
cd "$new_root"
for path in "$@"; do
    if [ -h ".$path" ]; then
        continue  # in a directory that is there already
    elif [ -h "$path" ]; then
        mkdir -p ".$(dirname "$path")"
        ln -s "$(readlink "$path")" ".$path"
    else
        [ -d ".$path" ] || mkdir -p ".$path"
        mount --bind "$path" ".$path"
        mount -o remount,bind,ro ".$path"
    fi
done
mkdir -p dev disk old proc root run var
mkdir -p tmp var/tmp
chmod 1777 tmp var/tmp
mount --bind "$hosts" etc/hosts
mount --rbind /dev dev
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount -t proc proc proc
hostname "$name"
pivot_root . old
umount -l old
rmdir old
trap '' CHLD  # whoever ends without a parent leaves nothing behind
echo ready
exec sleep infinity
"""


def lacks(tools: Mapping[str, str], probe: str) -> str:
    """Return what this machine lacks to make namespaces, in one line that says how to get it; "" for nothing.

    Args:
        tools: the programs that are needed, and the packages that have them.
        probe: a command that makes what is needed, and ends.
    """
    if os.geteuid() != 0:
        return "root is needed to make namespaces; run it as root, with sudo"
    if found := sorted(tool for tool in tools if shutil.which(tool) is None):
        packages = sorted({tools[tool] for tool in found})
        return f"{', '.join(found)} needed; 'apt-get install {' '.join(packages)}' on Debian"
    done = subprocess.run(probe.split(), capture_output=True, text=True)
    if done.returncode:
        reason = done.stderr.strip() or f"it ended with {done.returncode}"
        return f"no namespaces can be created here: {reason}; in a container, run that with --privileged"
    return ""


def missing() -> str:
    """Return what this machine lacks for `isolated_hosts`, in one line that says how to get it; "" for nothing."""
    if os.uname().sysname != "Linux":
        return "Linux is needed, whose namespaces play the hosts"
    return lacks(_TOOLS, "unshare --net --mount --uts --pid --fork --kill-child ip link add name br0 type bridge")


class Host:
    """Where programs run.

    Args:
        address: its IP address.
        name: its name.
        enter: the command, with its arguments, that runs another one there.
        disk: a directory there, for files; None for a directory of this host.
    """

    def __init__(self, address: str, name: str, enter: Sequence[str] = (), disk: Path | None = None) -> None:
        self.address = address
        self.name = name
        self.enter = list(enter)
        self.disk = disk


class Isolated(Host):
    """A host that shares no directory that can be written with any other one, until `stop`.

    Args:
        address: its IP address, which it has as soon as it has a network.
        name: its name.
        directory: an empty directory here, which becomes its root there.
        names: addresses by name, of all hosts.
    """

    def __init__(self, address: str, name: str, directory: Path, names: Mapping[str, str]) -> None:
        hosts = directory.with_suffix(".hosts")
        hosts.write_text("127.0.0.1 localhost\n" + "".join(f"{a} {n}\n" for n, a in names.items()))
        namespaces = ["--net", "--mount", "--uts", "--pid"]
        self._holder = subprocess.Popen(
            # If this process is killed, the holder of the host is, and so is all that runs there.
            [*TIED, "unshare", *namespaces, "--fork", "--kill-child"]
            + ["--propagation", "private", "sh", "-c", _BECOME, "sh", name, str(directory), str(hosts)]
            + [str(path) for path in _programs()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert self._holder.stdout is not None
        said = self._holder.stdout.readline()
        if said != "ready\n":
            said += self._holder.stdout.read()
            self.stop()
            raise RuntimeError(f"the host {name} can't be created: {said.strip()}")
        self.pid = descendants(self._holder.pid)[1]
        inside = ["nsenter", "--target", str(self.pid), *namespaces, "sh", "-c", f'cd {DISK} && exec "$@"', "sh"]
        super().__init__(address, name, inside, DISK)

    def connect(self, bridge: str, number: int) -> None:
        """Plug it into a bridge."""
        far = f"host{number}"
        _run("ip", "link", "add", "name", far, "type", "veth", "peer", "name", "eth0", "netns", str(self.pid))
        _run("ip", "link", "set", far, "master", bridge, "up")
        for command in (f"address add {self.address}/24 dev eth0", "link set eth0 up", "link set lo up"):
            _run("nsenter", "--target", str(self.pid), "--net", "ip", *command.split())

    def start(self, command: Sequence[str], **more: Any) -> subprocess.Popen[Any]:
        """Start a program there, in a process group of its own; ``more`` is for `subprocess.Popen`."""
        return subprocess.Popen([*self.enter, *command], start_new_session=True, **more)

    def stop(self) -> None:
        """End all that runs there, which takes its disk; again is fine."""
        kill(self._holder)
        if self._holder.stdout is not None:
            self._holder.stdout.close()


def own_network() -> str:
    """Move this process into a network of its own, for good, with a bridge in it; return the bridge's address."""
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_NETWORK) != 0:
        raise OSError(ctypes.get_errno(), "no network namespace could be created")
    address = f"{_NETWORK}.1"
    for command in (
        "link set lo up",
        "link add name hosts type bridge",
        f"address add {address}/24 dev hosts",
        "link set hosts up",
    ):
        _run("ip", *command.split())
    return address


@contextlib.contextmanager
def isolated_hosts(names: Sequence[str], directory: Path) -> Iterator[list[Isolated]]:
    """Make hosts and plug them into the bridge of `own_network`, which was called before.

    Args:
        names: their names.
        directory: an empty directory of this host's.
    """
    addresses = {name: f"{_NETWORK}.{number}" for number, name in enumerate(names, 2)}
    with contextlib.ExitStack() as stack:
        made: list[Isolated] = []
        for name, address in addresses.items():
            (directory / name).mkdir()
            made.append(Isolated(address, name, directory / name, addresses))
            stack.callback(made[-1].stop)
            made[-1].connect("hosts", len(made))
        yield made


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.strip()}")


def _programs() -> list[Path]:
    """Return the directories that every host has, read-only, those above others first; and links to some of them."""
    names = ("bin", "sbin", "lib", "lib32", "lib64", "usr", "etc")
    packages = [importlib.util.find_spec(name) for name in ("spillable_stream", "pyspark", "pyarrow", "obstore")]
    found = {Path(spec.origin).parent for spec in packages if spec is not None and spec.origin}
    found |= {Path(sys.prefix), Path(sys.base_prefix), Path(__file__).parents[1]}
    java = os.environ.get("JAVA_HOME") or Path(os.path.realpath(shutil.which("java") or "/usr/bin/java")).parents[1]
    found |= {Path(f"/{name}") for name in names} | {Path(java)}
    found |= {path.resolve() for path in found}
    there = sorted(path for path in found if path.exists())
    return [path for path in there if path.is_symlink() or not _is_within(path, there)]


def _is_within(path: Path, others: Sequence[Path]) -> bool:
    """Tell whether a directory is in another one, on the same file system."""
    return any(other in path.parents and other.stat().st_dev == path.stat().st_dev for other in others)


if __name__ == "__main__":
    why = missing()
    sys.exit(f"make demo-cluster can't run: {why}" if why else 0)
