"""A fork waits for what other threads import, where its child needs that, and for nothing else."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from time import sleep
from types import FrameType, ModuleType

import pytest

from spillable_stream import forks
from spillable_stream.termination import Terminated, exit_on_sigterm, interrupting_on_signals
from tests.support.forks import in_child

_SECONDS = 60  # of a thread that hangs


class Module:
    """A module for ``sys.meta_path``, which does something while it is imported."""

    def __init__(self, name: str, work: Callable[[], object]) -> None:
        self.name = name
        self.work = work

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name == self.name else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        self.work()


class SlowImport:
    """A module that another thread imports, until it may end.

    Args:
        name: the module's.
    """

    def __init__(self, name: str) -> None:
        self.module = Module(name, self._work)
        self._has_begun = threading.Event()
        self.may_end = threading.Event()
        self.has_ended = False

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=lambda: import_module(self.module.name))
        thread.start()
        try:
            assert self._has_begun.wait(_SECONDS)
            yield
        finally:
            self.may_end.set()
            thread.join(_SECONDS)
            sys.modules.pop(self.module.name, None)
        assert self.has_ended and not thread.is_alive()

    def _work(self) -> None:
        self._has_begun.set()
        assert self.may_end.wait(_SECONDS)
        with forks.forking:  # as a file that is let go meanwhile
            logging.getLogger("tests.forks")
        self.has_ended = True


class Waits:
    """Counts how often a fork looked again, and does something then."""

    def __init__(self, do: Callable[[], object]) -> None:
        self.number = 0
        self._do = do

    def __call__(self, seconds: float) -> None:
        self.number += 1
        self._do()
        sleep(seconds)


def begin(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[SlowImport, Waits]:
    """Return an import of this name, which ends if a fork waits for it, and the fork's waits."""
    if "." in name:
        import_module(name.partition(".")[0])
    slow = SlowImport(name)
    waits = Waits(slow.may_end.set)
    monkeypatch.setattr(sys, "meta_path", [slow.module, *sys.meta_path])
    monkeypatch.setattr(forks, "sleep", waits)
    return slow, waits


@pytest.mark.parametrize("package", ["json", "numpy", "obstore", "pandas", "pyarrow", "spillable_stream"])
def test_a_fork_waits_for_an_import_of_another_thread(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, waits = begin(f"{package}.that_is_slow", monkeypatch)
    with slow.running():
        in_child(lambda: import_module(slow.module.name) and slow.has_ended)
    assert waits.number


def test_a_fork_does_not_wait_for_a_module_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be the program itself, whose import ends with it."""
    slow, waits = begin("a_program_that_is_imported", monkeypatch)
    with slow.running():
        in_child(lambda: not slow.has_ended)
    assert not waits.number


def test_a_fork_inside_of_an_import_does_not_wait_for_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one may need the module of this one."""
    slow, waits = begin("spillable_stream.that_is_slow", monkeypatch)
    forking = Module("spillable_stream.that_forks", lambda: in_child(lambda: not slow.has_ended))
    monkeypatch.setattr(sys, "meta_path", [forking, *sys.meta_path])
    with slow.running():
        import_module(forking.name)
    del sys.modules[forking.name]
    assert not waits.number


def test_a_fork_does_not_wait_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    slow, _ = begin("spillable_stream.that_is_slow", monkeypatch)
    waits = Waits(lambda: None)
    monkeypatch.setattr(forks, "sleep", waits)
    monkeypatch.setattr(forks, "_MOST_SECONDS", 0.01)
    with slow.running():
        in_child(lambda: not slow.has_ended)
    assert waits.number


@pytest.mark.parametrize(
    ("number", "handling", "raised"),
    [
        (signal.SIGINT, nullcontext, KeyboardInterrupt()),
        (signal.SIGTERM, exit_on_sigterm, SystemExit(143)),
        (signal.SIGTERM, interrupting_on_signals, Terminated(signal.SIGTERM)),
    ],
)
def test_an_interrupt_while_a_fork_waits_comes_when_that_is_done_and_only_in_the_parent(
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    handling: Callable[[], AbstractContextManager[None]],
    raised: BaseException,
) -> None:
    slow, _ = begin("spillable_stream.that_is_slow", monkeypatch)
    steps = [slow.may_end.set, lambda: signal.raise_signal(number)]
    monkeypatch.setattr(forks, "sleep", Waits(lambda: steps and steps.pop()()))
    parent, found = os.getpid(), list[BaseException]()
    with slow.running(), handling():
        try:
            if not os.fork():
                os._exit(0 if slow.has_ended else 1)
        except (KeyboardInterrupt, SystemExit) as e:
            if os.getpid() != parent:
                os._exit(2)
            found.append(e)
    assert [(type(e), e.args) for e in found] == [(type(raised), raised.args)]
    assert os.wait()[1] == 0
    in_child(lambda: True)  # and it comes once


def test_a_child_does_not_wait_for_imports_that_its_fork_broke_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that a child starts may have the number of its parent's."""
    slow, _ = begin("spillable_stream.that_is_slow", monkeypatch)
    monkeypatch.setattr(forks, "_MOST_SECONDS", 0.0)

    def fork_again() -> bool:
        waits = Waits(lambda: None)
        monkeypatch.setattr(forks, "sleep", waits)
        monkeypatch.setattr(forks, "_MOST_SECONDS", 1.0)
        in_child(lambda: True)
        return not waits.number

    with slow.running():
        in_child(fork_again)


PYARROW_LOOKS_FOR_PANDAS = """
import os, signal, sys, threading, time, types
import pyarrow as pa
from spillable_stream import forks

has_begun, may_end = threading.Event(), threading.Event()

class Pandas(types.ModuleType):
    @property
    def __version__(self):  # which pyarrow asks for when it has imported pandas, and holds its own lock still
        has_begun.set()
        may_end.wait()
        return "0"

def wait(seconds):
    may_end.set()
    time.sleep(seconds)

sys.modules["pandas"] = Pandas("pandas")
forks.sleep = wait
threading.Thread(target=pa.array, args=([1],), daemon=True).start()
has_begun.wait()
child = os.fork()
if not child:
    signal.alarm(30)
    pa.array([1])
    os._exit(0)
print("ended" if os.waitpid(child, 0)[1] == 0 else "hung")
"""


def test_a_fork_waits_while_pyarrow_looks_for_pandas() -> None:
    command = [sys.executable, "-W", "ignore", "-c", PYARROW_LOOKS_FOR_PANDAS]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=2 * _SECONDS)
    assert (found.stdout, found.stderr) == ("ended\n", "")


A_THREAD_HAS_A_LOCK = """
import logging, os, signal, sys, threading
from pathlib import Path
from time import sleep
from spillable_stream.forks import forking
from spillable_stream.storage.filesystem import FileSystem

has_begun, main = threading.Event(), threading.get_ident()

def wait_for_fork():
    looks = 0
    while looks < 1000:  # each of which lets the other thread continue, if it can
        looks = looks + 1 if is_forking(sys._current_frames()[main]) else 0
        sleep(0)

def is_forking(frame):
    while frame and frame.f_code.co_name != "fork":
        frame = frame.f_back
    return frame is not None

def fork():
    return os.fork()

def open_file():
    FileSystem().open(Path(sys.argv[2]), create=True).close()

def configure():
    with logging._lock:  # as `logging.config` has it, while it makes handlers
        has_begun.set()
        wait_for_fork()
        open_file()

def configure_while_the_fork_is_interrupted():
    with logging._lock:
        has_begun.set()
        wait_for_fork()
        os.kill(os.getpid(), signal.SIGINT)
        wait_for_fork()
        open_file()

def log_while_a_file_is_opened():
    with forking:  # as a finalizer that runs there
        has_begun.set()
        wait_for_fork()
        logging.getLogger("a.finalizer")

signal.alarm(30)
threading.Thread(target=globals()[sys.argv[1]], daemon=True).start()
has_begun.wait()
try:
    child = fork()
    if not child:
        os._exit(0)
    print("forked")
except KeyboardInterrupt:
    print("interrupted")
print("ended" if os.wait()[1] == 0 else "failed")
"""


@pytest.mark.parametrize(
    ("work", "said"),
    [
        ("configure", "forked"),
        ("configure_while_the_fork_is_interrupted", "interrupted"),
        ("log_while_a_file_is_opened", "forked"),
    ],
)
def test_a_fork_keeps_no_lock_from_a_thread_that_has_the_other_one(work: str, said: str, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", A_THREAD_HAS_A_LOCK, work, str(tmp_path / "file")]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=2 * _SECONDS)
    assert (found.stdout, found.stderr) == (f"{said}\nended\n", "")


def test_a_fork_waits_for_an_import_that_begins_while_it_waits_for_a_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    slow, _ = begin("spillable_stream.that_is_slow", monkeypatch)
    is_free, main = threading.Event(), threading.get_ident()
    has_lock, imports = threading.Event(), ExitStack()
    waits = Waits(lambda: slow.may_end.set() if is_free.is_set() else None)
    monkeypatch.setattr(forks, "sleep", waits)

    def work() -> None:
        with logging._lock:  # type: ignore[attr-defined]
            has_lock.set()
            looks = 0
            while looks < 1000:  # each of which lets the other thread continue, if it can
                looks = looks + 1 if is_in("in_child", sys._current_frames()[main]) else 0
                sleep(0)
            imports.enter_context(slow.running())
        is_free.set()

    thread = threading.Thread(target=work)
    with imports:
        thread.start()
        assert has_lock.wait(_SECONDS)
        in_child(lambda: import_module(slow.module.name) and slow.has_ended)
        thread.join(_SECONDS)
    assert waits.number


def is_in(function: str, frame: FrameType | None) -> bool:
    """Tell whether a thread, whose frame is given, is in a function, or in what that calls."""
    while frame is not None and frame.f_code.co_name != function:
        frame = frame.f_back
    return frame is not None


class Failed(BaseException):
    """What a test's runner raises, which no program is to catch."""


@pytest.mark.parametrize("kind", [TimeoutError, Failed])
def test_what_another_handler_raises_while_a_fork_waits_is_said_and_leaves_the_locks_free(
    monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    def raises(number: int, frame: object) -> None:
        raise kind("too late")

    said = list[BaseException]()
    slow, _ = begin("spillable_stream.that_is_slow", monkeypatch)
    monkeypatch.setattr(forks, "sleep", Waits(lambda: signal.raise_signal(signal.SIGUSR1)))
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, traceback: said.append(error))
    before = signal.signal(signal.SIGUSR1, raises)
    try:
        with slow.running():
            in_child(lambda: True)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert [str(e) for e in said] == ["too late"]
    with ThreadPoolExecutor(1) as pool:
        assert all(pool.map(lambda lock: lock.acquire(blocking=False) and lock.release() is None, forks._locks))
