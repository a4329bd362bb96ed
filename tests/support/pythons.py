"""Starting Pythons: each is forked from one that has imported the package, for which a new one needs 0.3 s.

`Popen` and `run` are those of `subprocess`, and so are the processes: children of this one, with the files, directory
and environment that they are given. They differ from new ones in this: they have one seed of hashes, the package is
imported, and ``/proc`` shows the command of what forked them. Where a Python may see more of a difference it is a new
one. `docs/contributing.md` says which tests need `subprocess`.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, AnyStr

from tests.support.python_server import LARGE

__all__ = ["Popen", "run"]

_ROOT = Path(__file__).parents[2]
_SERVER = "tests.support.python_server"
# Of what `subprocess` says last: signals, group, groups, user, umask, session, process group.
_AS_USUAL = (True, None, None, None, -1, False, -1)
_READ_LATER = ("PYTEST_", "PYSPARK_", "SPARK_", "PYTHONUNBUFFERED", "TMPDIR", "XDG_RUNTIME_DIR")
_PR_SET_CHILD_SUBREAPER = 36


class Popen(subprocess.Popen[AnyStr]):
    """A process, which is forked if it is a Python that runs a text, a file or a module."""

    def _execute_child(
        self, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, pass_fds: Any, cwd: Any, env: Any,
        startupinfo: Any, creationflags: Any, shell: Any,
        p2cread: int, p2cwrite: int, c2pread: int, c2pwrite: int, errread: int, errwrite: int, *others: Any,
    ) -> None:  # fmt: skip
        """Do what `subprocess.Popen` has it do: start the process, and close what is the process's."""
        pipes = (p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)
        is_usual = not (executable or preexec_fn or pass_fds or shell) and close_fds and others == _AS_USUAL
        environment, directory = dict(os.environ if env is None else env), os.fspath(cwd or os.getcwd())
        if not is_usual or not os.path.isdir(directory) or not _server.can_run(args, environment):
            return super()._execute_child(  # type: ignore[misc, no-any-return]
                args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell,
                *pipes, *others,
            )  # fmt: skip
        files = [given if given >= 0 else own for own, given in enumerate((p2cread, c2pwrite, errwrite))]
        self.pid = _server.fork(args, directory, environment, files)
        self._child_created = True
        return self._close_pipe_fds(*pipes)  # type: ignore[attr-defined, no-any-return]


def run(command: Any, *, timeout: float | None = None, check: bool = False, **options: Any) -> Any:
    """Run a process to its end, as `subprocess.run` does that is given no input."""
    if options.pop("capture_output", False):
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Popen(command, **options) as process:
        try:
            out, errors = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(command, process.returncode, out, errors)
    if check:
        done.check_returncode()
    return done


class _Server:
    """The process that forks: it is started when a fork may be asked for, and ends with the one that started it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._client = -1
        self._environment = dict(os.environ)  # of now: a test may have another one for a while
        self._connection: socket.socket

    def can_run(self, command: Any, environment: dict[str, str]) -> bool:
        """Tell whether a fork is what a new Python would be; where coverage is measured, it would tell of none."""
        program, *arguments = map(os.fsdecode, command)
        has_flags = not arguments or (arguments[0].startswith("-") and arguments[0] not in ("-c", "-m"))
        if sys.platform != "linux" or program != sys.executable or has_flags:
            return False
        if any(name.startswith("COVERAGE_PROCESS_") for name in environment):
            return False
        with self._lock:
            if self._client != os.getpid():
                self._start()
        paths = (self._environment.get("PYTHONPATH"), str(_ROOT))
        return environment.get("PYTHONPATH") in paths and _seen(environment) == _seen(self._environment)

    def fork(self, command: Any, directory: Any, environment: dict[str, str], files: list[int]) -> int:
        """Return the ID of a process that is a child of this one.

        Raises:
            ChildProcessError: the server failed. The next process has another one.
        """
        arguments = [os.fsdecode(argument) for argument in command[1:]]
        request = json.dumps([arguments, os.fsdecode(directory), environment]).encode()
        assert len(request) < LARGE
        with self._lock:
            try:
                _take_in_orphans(True)
                found = self._ask(request, files)
            except ConnectionError:
                found = b""
            finally:
                _take_in_orphans(False)
            if not found:
                self._end()
                raise ChildProcessError(f"no Python could be forked for {arguments}; standard error may say why")
        return int(found)

    def _ask(self, request: bytes, files: list[int]) -> bytes:
        """Return the answer; the pipe is of this request alone, so one that nobody waits for is taken for no other."""
        reading, writing = os.pipe()
        with open(reading, "rb") as answer:
            try:
                socket.send_fds(self._connection, [request], [*files, writing])
            finally:
                os.close(writing)
            return answer.read()

    def _start(self) -> None:
        self._connection, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-m", _SERVER, str(other.fileno())],
                cwd=_ROOT,  # whose package it imports
                env={**self._environment, "JE_ARROW_MALLOC_CONF": "background_thread:false"},  # a thread is in no fork
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        self._client = os.getpid()
        atexit.register(self._end)

    def _end(self) -> None:
        if self._client == os.getpid():
            self._client = -1
            self._connection.close()
            self._process.kill()  # a child that the tests left may have the connection, too
            self._process.wait()


def _seen(environment: dict[str, str]) -> dict[str, str]:
    """Return what a Python may read as it starts, and what the server has imported."""
    return {k: v for k, v in environment.items() if k != "PYTHONPATH" and not k.startswith(_READ_LATER)}


_server = _Server()
_prctl = getattr(ctypes.CDLL(None, use_errno=True), "prctl", None)


def _take_in_orphans(does: bool) -> None:
    """Let a descendant whose parent ends be a child of this process, or no longer."""
    assert _prctl is not None
    if _prctl(_PR_SET_CHILD_SUBREAPER, int(does), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no descendant can become a child of this process")
