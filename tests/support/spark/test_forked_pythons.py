"""The Pythons that are forked for Spark: each does what its own process would have done."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.spark import forked_pythons
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sockets and signals of Linux")

_SITE = f"""
import os, sys
sys.path.append({str(forked_pythons._DIRECTORY)!r})
if sys.orig_argv[2:3] == ["probe"]:
    import spark_fork_server
    spark_fork_server._IMPORTED = os.environ["IMPORTED"].split()
    spark_fork_server.run_in_a_fork()
"""
_PROBE = """
import json, os, signal, sys
with open("/proc/self/stat") as stat:
    server = int(stat.read().rpartition(")")[2].split()[1])
own = {"argv": sys.argv[1:], "cwd": os.getcwd(), "mark": os.environ["MARK"], "group": os.getpgrp()}
print(json.dumps({**own, "parent": os.getppid(), "pid": os.getpid(), "server": server}), flush=True)
print("an error", file=sys.stderr)
how = sys.stdin.readline().strip()
if how == "wait":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
    print("waits", flush=True)
    signal.pause()
if how == "die":
    os.kill(os.getpid(), signal.SIGKILL)
sys.exit(7)
"""

_SESSION = """
import os, signal, subprocess, sys
stopped = subprocess.Popen(["sleep", "600"])
stopped.send_signal(signal.SIGSTOP)
os.waitid(os.P_PID, stopped.pid, os.WSTOPPED | os.WNOWAIT)
try:
    for _ in range(3):
        subprocess.run([sys.executable, "-m", "probe"], input=b"end", stdout=subprocess.DEVNULL)
    print("lives")
finally:
    stopped.kill()
"""

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start processes whose work forks do; this process is their JVM."""
    started: list[subprocess.Popen[str]] = []
    (tmp_path / "probe.py").write_text(_PROBE)

    (tmp_path / "sitecustomize.py").write_text(_SITE)

    def start(*arguments: str, imported: str = "") -> subprocess.Popen[str]:
        path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[3])])
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", "probe", *arguments],
                env={**os.environ, "PYTHONPATH": path, "MARK": f"process {len(started)}", "IMPORTED": imported},
                cwd=tmp_path,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return started[-1]

    yield start
    for process in started:  # all of them first: none may wait for its input while another is waited for
        assert process.stdin is not None
        process.stdin.close()
    for process in started:
        with process:
            pass  # it ends, and its pipes are closed


def said(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    found: dict[str, Any] = json.loads(process.stdout.readline())
    return found


def test_a_fork_has_all_that_its_process_had(start: Start, tmp_path: Path) -> None:
    for number, arguments in enumerate((["a", "b"], [])):
        process = start(*arguments)
        found = said(process)
        assert (found["argv"], found["cwd"], found["mark"]) == (arguments, str(tmp_path), f"process {number}")
        assert (found["group"], found["parent"]) == (os.getpgrp(), os.getpid())
        assert process.communicate("end\n") == ("", "an error\n")


def test_processes_of_one_parent_have_one_server_which_ends_with_the_first_of_them(start: Start) -> None:
    first = start()
    server = said(first)["server"]
    second, third = start(), start()
    assert {said(second)["server"], said(third)["server"]} == {server}
    second.communicate("end\n")
    assert Path(f"/proc/{server}").exists()
    assert first.communicate("end\n") == ("", "an error\n")
    third.communicate("end\n")
    wait_until(lambda: not Path(f"/proc/{server}").exists(), 60)


def test_processes_that_start_at_once_have_one_server(start: Start) -> None:
    together = [start() for _ in range(8)]
    assert len({said(process)["server"] for process in together}) == 1
    for process in together:  # whichever of them forked the server, its output ends as it does
        assert process.communicate("end\n") == ("", "an error\n")


def test_a_process_that_comes_when_the_server_is_about_to_end_does_its_own_work(start: Start) -> None:
    for _ in range(20):
        first, second = start(), start("b")
        first.communicate("end\n")
        assert second.communicate("end\n")[1] == "an error\n"
        assert second.returncode == 7


@pytest.mark.parametrize(("how", "status"), [("end", 7), ("die", 128 + signal.SIGKILL)])
def test_a_process_ends_as_its_fork_does(start: Start, how: str, status: int) -> None:
    process = start()
    process.communicate(f"{how}\n")
    assert process.returncode == status


def test_a_signal_reaches_the_fork(start: Start) -> None:
    process = start()
    assert process.stdin is not None and process.stdout is not None
    said(process)
    process.stdin.write("wait\n")
    process.stdin.flush()
    assert process.stdout.readline() == "waits\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 5


def test_the_end_of_a_fork_hangs_up_no_session_that_has_a_stopped_process(tmp_path: Path) -> None:
    """The kernel sends SIGHUP to a group with one when nobody of another group of the session is a parent in it."""
    (tmp_path / "probe.py").write_text(_PROBE)
    (tmp_path / "sitecustomize.py").write_text(_SITE)
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[3])])
    done = subprocess.run(
        [sys.executable, "-c", _SESSION],
        env={**os.environ, "PYTHONPATH": path, "MARK": "", "IMPORTED": ""},
        cwd=tmp_path,
        capture_output=True,
        start_new_session=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, b"lives\n"), done.stderr


def test_the_server_has_no_second_thread_once_it_has_imported_everything(start: Start) -> None:
    """What forks amid other threads may wait for a lock that none of them ever releases."""
    server = said(start(imported="pyspark.worker pyarrow spillable_stream.spark.datasource"))["server"]
    maps = Path(f"/proc/{server}/maps").read_text()
    assert "libarrow" in maps
    assert len(os.listdir(f"/proc/{server}/task")) == 1
