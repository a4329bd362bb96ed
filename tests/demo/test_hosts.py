"""The hosts of the cluster's demo: what they share, and that nothing of them is left."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

import pytest

from demo.cluster import hosts
from demo.cluster.hosts import lacks, missing
from tests.support.marked import processes_with

NEEDS_HOSTS = pytest.mark.skipif(bool(missing()), reason=missing() or "-")

PROGRAM = """
import subprocess, sys
from pathlib import Path
from demo.cluster.hosts import isolated_hosts, own_network

def said(host, command):
    done = host.start(["sh", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.communicate()[0].split()

near = own_network()
with isolated_hosts(["one", "two"], Path(sys.argv[1])) as (one, two):
    print((BODY))
"""


def in_hosts(directory: Path, body: str, mark: str = "") -> subprocess.CompletedProcess[str]:
    """Print what an expression says, with two hosts that are called one and two."""
    program = PROGRAM.replace("BODY", body)
    directory.mkdir(exist_ok=True)
    environment = {**os.environ, "MARK": mark}
    return subprocess.run(
        [sys.executable, "-c", program, directory], capture_output=True, text=True, env=environment, timeout=60
    )


@NEEDS_HOSTS
@pytest.mark.parametrize("directory", ["/disk", "/tmp", "/dev/shm", "/var/tmp", "/root"])
def test_what_one_host_writes_no_other_host_sees(tmp_path: Path, directory: str) -> None:
    name = f"{directory}/{uuid.uuid4()}"
    done = in_hosts(tmp_path, f"said(one, 'echo x > {name}; ls {name}'), said(two, 'ls {name} || echo none')[-1:]")
    assert done.stdout == f"(['{name}'], ['none'])\n", done.stderr
    assert not Path(name).exists()


@NEEDS_HOSTS
def test_the_programs_are_on_every_host_and_no_host_can_change_them(tmp_path: Path) -> None:
    package = Path(hosts.__file__).parents[2] / "spillable_stream"
    look = f"ls {package}/__init__.py; touch {package}/__init__.py /usr/x || echo refused"
    done = in_hosts(tmp_path, f"[(said(h, '{look}')[0], said(h, '{look}')[-1]) for h in (one, two)]")
    assert done.stdout == f"{[(f'{package}/__init__.py', 'refused')] * 2}\n", done.stderr


@NEEDS_HOSTS
def test_a_directory_of_programs_may_be_a_link(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As an environment that several checkouts share, or Debian's default Java."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as there:
        (Path(there) / "real").mkdir()
        (Path(there) / "real" / "program").touch()
        link = Path(there) / "deep" / "java"
        link.parent.mkdir()
        link.symlink_to("../real")
        within = next(path for path in Path("/usr").rglob("*") if path.is_symlink() and path.is_dir())
        for java in (link, within):
            monkeypatch.setenv("JAVA_HOME", str(java))
            done = in_hosts(tmp_path / java.name, f"said(one, 'ls -d {java}/.'), said(two, 'ls {java}')[:1]")
            assert done.stdout == f"(['{java}/.'], ['{sorted(os.listdir(java))[0]}'])\n", done.stderr


@NEEDS_HOSTS
def test_a_host_has_nothing_else_of_the_machine(tmp_path: Path) -> None:
    done = in_hosts(tmp_path, f"[said(one, f'test -e {{path}} || echo none') for path in ({str(tmp_path)!r}, '/home')]")
    assert done.stdout == "[['none'], ['none']]\n", done.stderr


@NEEDS_HOSTS
def test_hosts_reach_each_other_by_name_and_have_processes_of_their_own(tmp_path: Path) -> None:
    body = "said(one, 'hostname; getent hosts two'), [pid for pid in said(two, 'ls /proc') if pid.isdigit()][0]"
    done = in_hosts(tmp_path, body)
    assert done.stdout == "(['one', '198.18.0.3', 'two'], '1')\n", done.stderr


@NEEDS_HOSTS
@pytest.mark.parametrize("end", ["sys.exit()", "__import__('os').kill(__import__('os').getpid(), 9)"])
def test_no_process_of_a_host_is_left_however_its_maker_ends(tmp_path: Path, end: str) -> None:
    mark = str(uuid.uuid4())
    in_hosts(tmp_path, f"one.start(['sleep', '1000']), {end}", mark)
    processes_with(mark).wait_until_gone()


@pytest.mark.parametrize(
    ("tools", "probe", "why"),
    [
        ({"no-such-tool": "its-package"}, "true", "no-such-tool needed; 'apt-get install its-package' on Debian"),
        ({}, "false", "no namespaces can be created here: it ended with 1; in a container, run that with --privileged"),
        ({"sh": "dash"}, "true", ""),
    ],
)
def test_what_is_missing_is_one_line_that_says_how_to_get_it(
    tools: dict[str, str], probe: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert lacks(tools, probe) == why


def test_anyone_but_root_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert lacks({}, "true") == "root is needed to make namespaces; run it as root, with sudo"
