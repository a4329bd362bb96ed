"""Fixtures of all tests: channels in a temporary directory, closed when the test ends."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from demo.cluster.pythons import quick_pythons
from spillable_stream import Channel, log_records, option_names
from spillable_stream.engine import process_owners
from spillable_stream.engine.local import opening, readonly_view
from spillable_stream.engine.store import object_owners
from spillable_stream.log import wal
from spillable_stream.state import block_index
from tests.lab.size import sized
from tests.support import store_limits
from tests.support.damage import remove_memory_under
from tests.support.examples import register_profiles
from tests.support.object_channels import OwnersClock
from tests.support.spark.class_archive import use_archive
from tests.support.spark.forked_pythons import fork_pythons
from tests.support.store_limits import SetLimits

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A script that runs the tests in its background has them ignore Ctrl-C, and what they start inherits that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # as nohup has them do
    signal.signal(signal.SIGHUP, lambda *_: None)  # what they start gets the default, and they go on
wal._SLOW_SYNC_SECONDS = 3600.0  # the disk of a busy machine is worth no line in the log of a test
_DISK = pytest.StashKey[Path]()
tempfile.gettempdir()  # which it stays, whatever TMPDIR is during a test

_say_plainly = log_records._say_plainly


def _say_or_fail(record: logging.LogRecord, fault: BaseException) -> None:
    """Let a record whose message does not fit its arguments fail its test, as pytest's own handler would."""
    record.getMessage()
    _say_plainly(record, fault)


log_records._say_plainly = _say_or_fail
register_profiles()
quick_pythons()
use_archive()
fork_pythons()
gc.disable()  # until all tests are collected


@pytest.hookimpl(trylast=True)  # after hypothesis has marked its own
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the laboratory's recipes the time that their size takes, and what is slow more than the rest."""
    for item in items:
        if item.get_closest_marker("timeout"):
            continue
        if item.get_closest_marker("crash"):
            item.add_marker(pytest.mark.timeout(sized(ci=900, full=7200)))
        elif item.get_closest_marker("slow") or item.get_closest_marker("hypothesis"):
            item.add_marker(pytest.mark.timeout(600))


def pytest_collection_finish() -> None:
    """Spare the collector the thousands of tests, which stay: each of its rounds would look at all of them."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Give what is slow and the laboratory's recipes a disk, wherever the rest have their files."""
    on_disk = any(item.get_closest_marker(name) for name in ("slow", "crash"))
    if "PYTEST_DEBUG_TEMPROOT" not in os.environ:
        return (yield)
    with pytest.MonkeyPatch.context() as patch:
        if on_disk:
            patch.setattr(item.config._tmp_path_factory, "_basetemp", disk(item.config))  # type: ignore[attr-defined]
        else:  # no channel there is warned of
            patch.setenv("TMPDIR", os.environ["PYTEST_DEBUG_TEMPROOT"])
        return (yield)


def disk(config: pytest.Config) -> Path:
    """Return this process's directory on a disk; if it stays, as a test failed, a later run removes it."""
    if _DISK not in config.stash:
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("PYTEST_DEBUG_TEMPROOT")
            places = pytest.TempPathFactory(None, 1, "failed", config.trace.get("tmpdir"), _ispytest=True)
            config.stash[_DISK] = places.getbasetemp()
    return config.stash[_DISK]


def pytest_sessionstart(session: pytest.Session) -> None:
    """Tell the process that shows the results what it shows, and no more."""
    from tests.support.sharing import say_less

    say_less(session.config)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Remove that directory, unless a test failed."""
    if _DISK in session.config.stash and not session.testsfailed:
        shutil.rmtree(session.config.stash[_DISK])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Have one Spark session, whatever the number of processes."""
    from tests.support.sharing import OneOfEach

    return OneOfEach(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(autouse=True, scope="module")
def few_objects_are_looked_at() -> None:
    """Spare the collector what earlier modules left, which stays: it would look at all of that again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def ctrl_c_is_python_s() -> None:
    """Take Ctrl-C back from the Spark session of an earlier module, which cancels the jobs of a JVM that is gone."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, object, object]:
    """Let messages name options as a Python program does, whatever door a test came through."""
    try:
        return (yield)
    finally:
        option_names._as_keywords = True


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """pytest's own; without the memory tiers, in the end, of channels that a test killed and never closed."""
    yield tmp_path
    remove_memory_under(tmp_path)


@pytest.fixture
def shared_memory(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory, where there is one: the tests that use it sync very often."""
    shared = Path("/dev/shm")
    if not shared.is_dir():
        yield tmp_path
        return
    directory = Path(tempfile.mkdtemp(prefix="crash-", dir=shared))
    try:
        yield directory
    finally:
        remove_memory_under(directory)
        shutil.rmtree(directory)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the test's channel is."""
    return tmp_path / "channel"


@pytest.fixture
def one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what is put one after the other share a block, however slow the machine is."""
    monkeypatch.setattr(block_index, "_BLOCK_US", 1 << 60)


@pytest.fixture
def settles_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the locks of a channel that stays in use little time to be released."""
    for module in (opening, readonly_view):
        monkeypatch.setattr(module, "_SETTLED_SECONDS", 0.3)


@pytest.fixture
def open_channel(path: Path) -> Iterator[Callable[..., Channel]]:
    """Open handles of the channel at `path`; no free space is required, and none checkpoints at close."""
    with ExitStack() as stack:

        def open_channel(**options: Any) -> Channel:
            return stack.enter_context(
                Channel(path, **{"minimum_required_space": 0, "checkpoint_on_close": False, **options})
            )

        yield open_channel


@pytest.fixture
def set_limits() -> Iterator[SetLimits]:
    """Let handles of channels in stores act by other limits; a patch of its own, so that a test may undo its others."""
    with pytest.MonkeyPatch.context() as patch:
        yield partial(store_limits.set_limits, patch)


@pytest.fixture
def owners_clock(monkeypatch: pytest.MonkeyPatch) -> OwnersClock:
    """Let owners of groups in object stores answer by hand only, and let claimants wait without losing time.

    The handles of the test stand for hosts of their own.
    """
    clock = OwnersClock()
    monkeypatch.setattr(process_owners, "is_of_this_process", lambda _: False)
    monkeypatch.setattr(object_owners, "time", SimpleNamespace(sleep=clock.sleep, monotonic=clock.monotonic))
    monkeypatch.setattr(object_owners, "_LOOK_SECONDS", 3600.0)
    return clock
