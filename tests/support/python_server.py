"""The program that forks the Pythons of a process of tests: `tests.support.pythons` starts it, and asks it.

It has imported what takes a new Python longer than most programs of tests run. A fork becomes what a new Python would
be: a child of the process of tests, with the files, directory and environment that it is given.
"""

from __future__ import annotations

import gc
import importlib
import io
import json
import os
import runpy
import signal
import socket
import sys
import tempfile
import time
import types
from types import TracebackType

import spillable_stream
from spillable_stream.cli.verbs import import_verbs

__all__ = ["LARGE"]

LARGE = 1 << 17
"""How large a request may be, in bytes."""

_BEHIND_A_VERB = {
    "ui": "spillable_stream.ui.page",
    **dict.fromkeys(("agent", "send", "tap", "validate"), "spillable_stream.flow.loading"),
}
"""What else takes long to import, and only these verbs use: it is imported when the first is to be run."""
_NOT_OF_THE_PROGRAM = (__file__, "<frozen runpy>")


def _import() -> None:
    """Import what the package imports as it is used."""
    import_verbs(["help"])
    for name in spillable_stream.__all__:
        getattr(spillable_stream, name)


def _serve(asked: socket.socket) -> list[str]:
    """Fork at each request; return in the forks only, with the arguments of Python that each is to have."""
    tests = os.getppid()
    on_ctrl_c = signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with the process of tests, not by a terminal
    gc.collect()
    gc.freeze()
    while True:
        request, files, _, _ = socket.recv_fds(asked, LARGE, 4)
        if not request:
            os._exit(0)
        arguments, directory, environment = json.loads(request)
        if arguments[:2] == ["-m", "spillable_stream"] and (behind := _BEHIND_A_VERB.get("".join(arguments[2:3]))):
            importlib.import_module(behind)
        between = os.fork()
        if between == 0:
            between = os.getpid()
            if os.fork():
                os._exit(0)
            while os.getppid() == between:
                time.sleep(0.0001)
            if os.getppid() != tests:  # which takes in those whose parents end, unless it has ended itself
                os._exit(1)
            signal.signal(signal.SIGINT, on_ctrl_c)
            _become(files, directory, environment)
            os.write(files[-1], str(os.getpid()).encode())
            asked.detach()
            os.closerange(3, max(int(name) for name in os.listdir("/proc/self/fd")) + 1)
            return arguments  # type: ignore[no-any-return]
        os.waitpid(between, 0)
        for file in files:
            os.close(file)


def _become(files: list[int], directory: str, environment: dict[str, str]) -> None:
    """Take what whoever starts a process gives it."""
    os.chdir(directory)
    own, given = (env.get("PYTHONPATH", "").split(os.pathsep) for env in (os.environ, environment))
    if given != own:
        sys.path[1:] = [*given, *(path for path in sys.path[1:] if path not in (*given, *own))]
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    for number, file in enumerate(files[:3]):
        os.dup2(file, number)
        _open_stream(number, is_unbuffered=bool(os.environ.get("PYTHONUNBUFFERED")))


def _open_stream(number: int, is_unbuffered: bool) -> None:
    """Open standard input, output or error as Python does when it starts."""
    name = ("stdin", "stdout", "stderr")[number]
    was = getattr(sys, name)
    is_raw = is_unbuffered and number > 0
    file = open(number, "wb" if number else "rb", 0 if is_raw else -1, closefd=False)  # noqa: SIM115
    is_by_line = not is_unbuffered and (name == "stderr" or file.isatty())
    stream = io.TextIOWrapper(file, was.encoding, was.errors, None, is_by_line, is_unbuffered)
    setattr(sys, name, stream)
    setattr(sys, f"__{name}__", stream)


def _run(first: str, *others: str) -> None:
    """Do what Python does with its arguments."""
    sys.modules["__main__"] = main = types.ModuleType("__main__")
    if first == "-m":
        sys.argv, sys.path[0] = ["-m", *others[1:]], os.getcwd()
        runpy._run_module_as_main(others[0])  # type: ignore[attr-defined]
    elif first == "-c":
        sys.argv, sys.path[0] = ["-c", *others[1:]], ""
        exec(compile(others[0], "<string>", "exec"), main.__dict__)
    else:
        sys.argv, sys.path[0] = [first, *others], os.path.dirname(os.path.realpath(first))
        main.__file__ = first
        with open(first, "rb") as file:
            program = file.read()
        exec(compile(program, first, "exec"), main.__dict__)


def _say(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    """Say why the program failed, as Python does: with the program's part of the traceback."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename in _NOT_OF_THE_PROGRAM:
        traceback = traceback.tb_next
    sys.__excepthook__(kind, error.with_traceback(traceback), traceback)


if __name__ == "__main__":
    _import()
    arguments = _serve(socket.socket(fileno=int(sys.argv[1])))
    sys.excepthook = _say
    _run(*arguments)
