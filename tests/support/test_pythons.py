"""Pythons that are forked, beside new ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import pythons
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
SAYS_WHAT_IT_IS = """
import os, signal, sys, threading
print(sys.argv, sys.path, __name__, os.getcwd(), os.getppid(), os.getpgrp(), os.getsid(0), os.environ.get("MINE"))
print([signal.getsignal(number) for number in signal.valid_signals()], signal.pthread_sigmask(signal.SIG_BLOCK, []))
print(os.listdir("/proc/self/fd"), threading.enumerate()[0] is threading.main_thread(), threading.active_count())
for stream in (sys.stdin, sys.stdout, sys.stderr):
    print(type(stream.buffer), stream.encoding, stream.errors, stream.line_buffering, stream.write_through)
"""
IS_FORKED = "import sys; print('spillable_stream' in sys.modules)"
ENDS = {
    "an exception": "def f():\n    raise KeyError(1)\nf()",
    "a status": "raise SystemExit(7)",
    "a text": "import sys; sys.exit('no')",
    "Ctrl-C": "import os, signal; os.kill(os.getpid(), signal.SIGINT)",
    "SIGKILL": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "threads and what is called at the exit": "import atexit, threading\n"
    "atexit.register(print, 'exit')\nthreading.Thread(target=print, args=('thread',)).start()",
    "what is not flushed": "print('a', end='')",
    "what reads its input": "print(input())",
}


@pytest.fixture(params=["a text", "a file"])
def arguments(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """What a Python runs that says what it is."""
    if request.param == "a text":
        return ["-c", SAYS_WHAT_IT_IS, "an argument"]
    (tmp_path / "program.py").write_text(SAYS_WHAT_IT_IS)
    return [str(tmp_path / "program.py"), "an argument"]


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_forked_python_is_what_a_new_one_is(arguments: list[str], unbuffered: str, tmp_path: Path) -> None:
    command, environment = [sys.executable, *arguments], {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    found, expected = (
        run(command, cwd=tmp_path, env=environment, capture_output=True) for run in (pythons.run, subprocess.run)
    )
    assert (found.stdout.decode(), found.stderr) == (expected.stdout.decode(), b"")
    assert pythons.run([sys.executable, "-c", IS_FORKED], capture_output=True, text=True).stdout == "True\n"


@pytest.mark.parametrize("program", ENDS.values(), ids=ENDS)
def test_it_ends_as_a_new_one_does(program: str, tmp_path: Path) -> None:
    (tmp_path / "input").write_text("skipped\na line\n")
    ends = []
    for run in (pythons.run, subprocess.run):
        with (tmp_path / "input").open("rb", buffering=0) as file:
            file.seek(len("skipped\n"))
            done = run([sys.executable, "-c", program], stdin=file, capture_output=True, text=True)
        ends.append((done.returncode, done.stdout, done.stderr))
    assert ends[0] == ends[1]


def test_the_command_line_runs_in_a_fork(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "spillable_stream", "stats", b"missing-\xff"]
    found, expected = (run(command, cwd=tmp_path, capture_output=True) for run in (pythons.run, subprocess.run))
    assert (found.returncode, found.stdout, found.stderr) == (expected.returncode, expected.stdout, expected.stderr)
    assert found.returncode != 0 and b"missing-" in found.stderr


def test_it_is_a_child_that_can_be_killed_and_its_output_ends_with_it() -> None:
    program = "import time; print('up', flush=True); time.sleep(600)"
    with pythons.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "up\n" and process.poll() is None
        process.kill()
        assert process.stdout.read() == ""
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    ("options", "variables"),
    [([], {"LC_ALL": "POSIX"}), ([], {"COLUMNS": "50"}), ([], {"PYTHONPATH": "/nowhere"}), (["-X", "dev"], {})],
)
def test_what_a_fork_could_not_be_is_a_new_python(options: list[str], variables: dict[str, str]) -> None:
    command = [sys.executable, *options, "-c", IS_FORKED]
    done = pythons.run(command, env={**os.environ, **variables}, capture_output=True, text=True)
    assert done.stdout == "False\n"


def test_a_directory_that_is_missing_is_an_error_as_with_a_new_python(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        pythons.run([sys.executable, "-c", ""], cwd=tmp_path / "missing")


FORKED = """
import os, signal, subprocess, sys
from pathlib import Path
sys.path.insert(0, ROOT)
from tests.support import pythons

def run(program="import sys; print('spillable_stream' in sys.modules)", by=pythons):
    return by.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

def server():
    (found,) = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return int(found)
""".replace("ROOT", repr(str(ROOT)))


def said(program: str, **options: Any) -> str:
    """Return what a new process of tests prints."""
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", FORKED + program], capture_output=True, text=True, **options
    )
    assert done.returncode in (0, -signal.SIGKILL) and not done.stderr, done.stderr
    return done.stdout


def test_the_environment_of_the_first_test_that_starts_a_python_keeps_no_other_from_a_fork() -> None:
    program = "os.environ['OF_A_TEST'] = ''\nrun()\ndel os.environ['OF_A_TEST']\nprint(run())"
    assert said(program).split() == ["True"]


def test_where_no_path_says_which_package_it_is_that_of_these_tests() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    program = f"""
os.environ["PYTHONPATH"] = {str(ROOT)!r}
asked = "import sys, spillable_stream, tests; print(sys.path, spillable_stream.__file__, tests.__file__)"
print(run(), run(asked) == run(asked, subprocess))
"""
    assert said(program, env=environment).split() == ["True", "True"]


def test_where_ctrl_c_is_ignored_it_is_so_in_a_fork() -> None:
    program = "signal.signal(signal.SIGINT, signal.SIG_IGN)\nprint(run('import signal; print(signal.getsignal(2))'))"
    assert said(program).split() == [str(signal.SIG_IGN.value)]


def test_after_an_interrupt_the_next_fork_is_the_one_that_was_asked_for() -> None:
    program = """
run()
os.kill(server(), signal.SIGSTOP)
signal.signal(signal.SIGALRM, signal.default_int_handler)
signal.setitimer(signal.ITIMER_REAL, 0.1)
try:
    run("print('interrupted')")
except KeyboardInterrupt:
    os.kill(server(), signal.SIGCONT)
    print(run("print('asked for')"))
"""
    assert said(program) == "asked for\n\n"


def test_what_forks_and_was_killed_is_started_again() -> None:
    program = """
run()
os.kill(server(), 9)
try:
    run()
except ChildProcessError as e:
    print(e, run())
"""
    found = said(program)
    assert found.startswith("no Python could be forked for ['-c', ") and found.endswith(" True\n\n")


def test_what_forks_ends_with_the_process_that_asked_it() -> None:
    found = int(said("run()\nprint(server(), flush=True)\nos.kill(os.getpid(), 9)"))
    wait_until(lambda: not Path(f"/proc/{found}").exists())
