"""What a handle has open: its close, and its use in a forked child."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spillable_stream import (
    Channel,
    ChannelClosedError,
    Event,
    GroupOwnedError,
    NotAChannelError,
    StorageError,
)
from spillable_stream.format.batch import EVENT_SCHEMA
from tests.support import pythons
from tests.support.events import numbered, peek, put, take
from tests.support.fake_files import FaultyFileSystem
from tests.support.forks import in_child
from tests.support.interrupts import Interrupts
from tests.support.object_channels import URL, stores_in_memory

Open = Callable[..., Channel]


# ── closing ─────────────────────────────────────────────────────────────────────────────────────


def test_a_closed_channel_says_so(open_channel: Open) -> None:
    channel = open_channel()
    tx, open_tx = channel.put_transaction(), channel.put_transaction()
    open_tx.begin()
    open_tx.put(Event(b"x"))
    channel.close()
    channel.close()  # again is fine
    uses: list[Callable[[], object]] = [
        channel.put_transaction, channel.take_transaction, channel.stats, channel.checkpoint, tx.begin, open_tx.commit,
        lambda: channel.schema, lambda: channel.uuid, lambda: channel.drop_group("g"),
    ]  # fmt: skip
    for use in uses:
        with pytest.raises(ChannelClosedError, match="is closed; open it again"):
            use()
    assert "closed" in repr(channel)
    assert open_channel().stats().channel_size == 0


@pytest.mark.parametrize("place", ["disk", "store", "store behind a spool"])
@pytest.mark.parametrize("step", [7, pytest.param(3, marks=pytest.mark.slow)])
def test_a_close_that_an_interrupt_hits_is_completed_unless_it_has_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, step: int
) -> None:
    """Or the channel is busy for as long as somebody has the handle, though it says that it is closed."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)  # of interrupts while something is freed
    path = str(tmp_path / "channel") if place == "disk" else f"object+file://{tmp_path}/channel"
    spool: dict[str, Any] = {"spool": tmp_path / "spool", "durability": "local"} if "spool" in place else {}
    within = ["channel/spool"] if spool else ["channel/", "engine/", "log/", "storage/"]
    with Channel(path, **({"memory_capacity": 10} if place == "disk" else {})) as channel:
        put(channel, *numbered(0, 3))
    for number in count(1, step):
        channel = Channel(path, **spool)
        if place == "disk":  # in a store, whoever wants a group that was not given up waits for 10 s
            channel.consumer("g")
        interrupts = Interrupts(number, *within)
        interrupts.run(partial(channel.close, checkpoint=False))
        if not channel._open.is_closed:
            channel.close()
        if channel._open.spool is not None:
            assert channel._open.spool._local._engine.closed
        with Channel(path, **spool) as again:
            assert peek(again, 3) == numbered(0, 3)
        if not interrupts.hit:
            break
    assert number > {"disk": 300, "store": 60, "store behind a spool": 25}[place]


def test_a_close_is_completed_though_an_interrupt_left_the_commit_lock_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error keeps the frame, and so the block, of whoever was about to release it."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    path = tmp_path / "channel"
    Channel(path, memory_capacity=10).close()
    for number in count(1):
        channel = Channel(path)
        interrupts = Interrupts(number, "log/commit_lock.py")
        interrupts.run(partial(channel.close, checkpoint=False))
        with Channel(path, lock_timeout=0.5) as again:
            assert again.stats().channel_size == 0
        if not interrupts.hit:
            break
    assert number > 20


def test_an_interrupt_amid_a_close_is_raised_though_the_disk_then_refuses(path: Path) -> None:
    """Or a program that expects errors of its disk at a close goes on, as if nobody had pressed Ctrl-C."""
    fs = FaultyFileSystem()
    channel = Channel(path, fs=fs, memory_capacity=10)
    put(channel, b"x")
    interrupts = Interrupts(1, "/active_calls.py", handler=_raise_interrupt, error=ZeroDivisionError)
    with fs.failing(lambda call: call.name == "write"), pytest.raises(KeyboardInterrupt) as raised:
        interrupts.run(channel.close)
    assert "could not be closed as it should" in "".join(raised.value.__notes__)
    with Channel(path) as again:
        assert peek(again) == [b"x"]


def _raise_interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("step", [13, pytest.param(7, marks=pytest.mark.slow)])
def test_an_interrupt_amid_a_close_leaves_no_group_owned_in_a_store(
    error: type[BaseException], step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever takes as such a group next would wait for an answer for 10 s."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)  # of interrupts while something is freed
    with stores_in_memory():
        for number in count(1, step):
            within = ("/open_channel.py", "/owned_groups.py", "/consumer.py", "/engine/")
            interrupts = Interrupts(number, *within, error=error)
            channel = Channel(URL)
            channel.consumer("g")
            channel.consumer("h")
            interrupts.run(partial(channel.__exit__, None, None, None))
            with Channel(URL) as again:
                assert again.engine().follow().owners == {}, number
            if not interrupts.hit:
                break
    assert number > 150


@pytest.mark.parametrize(("stored", "given", "made"), [(True, None, True), (False, None, False), (False, True, True)])
def test_a_close_creates_a_checkpoint_unless_told_otherwise(
    path: Path, open_channel: Open, stored: bool, given: bool | None, made: bool
) -> None:
    channel = open_channel(checkpoint_on_close=stored)
    put(channel, b"x")
    channel.close(checkpoint=given)
    assert any((path / "checkpoint").glob("checkpoint-*")) == made


def test_closing_gives_open_takes_back(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 5))
    tx = channel.take_transaction()
    tx.begin()
    tx.take_many(3)
    channel.close()
    assert peek(open_channel()) == numbered(0, 5)


# ── forking ─────────────────────────────────────────────────────────────────────────────────────


def test_a_forked_child_opens_the_channel_itself(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, b"parent")
    in_child(lambda: put(channel, b"child") and None)
    assert peek(channel) == [b"parent", b"child"]
    put(channel, b"parent again")
    in_child(lambda: channel.close())
    assert len(peek(channel)) == 3


def _replace(channel: Channel) -> str:
    Path(channel.path).rename(Path(channel.path).with_name("away"))
    with Channel(channel.path) as foreign:
        return foreign.uuid


@pytest.mark.parametrize("is_closed", [False, True], ids=["open", "closed"])
def test_another_handle_is_of_the_same_channel_or_refused(open_channel: Open, is_closed: bool) -> None:
    channel = open_channel()
    uuid = channel.uuid
    if is_closed:
        channel.close()
    with channel.another() as another:
        assert another.uuid == uuid
    found = _replace(channel)
    with pytest.raises(NotAChannelError, match=f"the channel {uuid} was at .*, and the channel {found} is there now"):
        channel.another()


def test_a_forked_child_opens_no_other_channel_that_is_in_its_place(open_channel: Open) -> None:
    channel = open_channel()
    _replace(channel)

    def child() -> None:
        for _ in range(2):
            with pytest.raises(NotAChannelError, match="is there now"):
                put(channel, b"child")

    in_child(child)
    with Channel(channel.path) as foreign:
        assert peek(foreign) == []


def test_a_forked_child_does_not_own_its_parents_groups(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 4))
    assert take(channel, 2) == numbered(0, 2)

    def child() -> None:
        with pytest.raises(GroupOwnedError):
            channel.consumer("default", owner_timeout_seconds=0.05)

    in_child(child)
    assert take(channel, 2) == numbered(2, 2)


def test_a_forked_childs_end_frees_no_lock_of_its_parent(open_channel: Open) -> None:
    first = open_channel()
    first.consumer("g")
    in_child(lambda: None)
    with pytest.raises(GroupOwnedError):
        open_channel().consumer("g", owner_timeout_seconds=0.05)


def test_a_parents_group_is_free_when_it_closes_though_a_child_lives(open_channel: Open) -> None:
    first = open_channel()
    first.consumer("g")
    release_reader, release_writer = os.pipe()
    ready_reader, ready_writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(ready_writer, b"x")
        os.read(release_reader, 1)
        os._exit(0)
    os.read(ready_reader, 1)
    first.close()
    open_channel().consumer("g", owner_timeout_seconds=0.05)
    os.write(release_writer, b"x")
    os.waitpid(pid, 0)
    for fd in (release_reader, release_writer, ready_reader, ready_writer):
        os.close(fd)


@contextmanager
def idle_child(fork: Callable[[], int] = os.fork) -> Iterator[int]:
    """Fork a child that does nothing until the end."""
    release_reader, release_writer = os.pipe()
    ready_reader, ready_writer = os.pipe()
    pid = fork()
    if pid == 0:
        os.close(release_writer)
        os.write(ready_writer, b"x")
        os.read(release_reader, 1)
        os._exit(0)
    os.close(release_reader)
    assert os.read(ready_reader, 1) == b"x"
    try:
        yield pid
    finally:
        for fd in (release_writer, ready_reader, ready_writer):
            os.close(fd)
        os.waitpid(pid, 0)


def test_a_close_moves_memory_to_disk_though_a_child_was_forked_while_something_was_staged(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spillable_stream.channel import put_buffer

    monkeypatch.setattr(put_buffer, "_INLINE_MEMORY_BYTES", 0)
    channel = open_channel(memory_capacity=100, max_inline_bytes=0)
    put(channel, b"x")
    with channel.put_transaction() as tx:
        tx.put_batch(pa.RecordBatch.from_pylist([{"headers": [], "body": b"staged"}], EVENT_SCHEMA))
        with idle_child():
            tx.commit()
            channel.close()
            assert not (channel.path / "memory").is_symlink()
    assert peek(open_channel()) == [b"x", b"staged"]


OWNER = """
import os, sys, time
from spillable_stream import Channel
channel = Channel(sys.argv[1])
channel.consumer("g")
tx = channel.put_transaction().__enter__()
if not os.fork():
    print(os.getpid(), flush=True)  # so it has given up what is its parent's
time.sleep(600)
"""


def test_what_a_killed_parent_held_is_free_though_a_child_of_it_lives(path: Path, open_channel: Open) -> None:
    parent = pythons.Popen([sys.executable, "-c", OWNER, path], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    try:
        parent.kill()
        parent.wait()
        channel = open_channel(memory_capacity=10)
        channel.consumer("g", owner_timeout_seconds=60)
        put(channel, b"x")
        channel.close()
        assert not (path / "memory").is_symlink(), "it was the last one to have the channel open"
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_child_that_is_forked_while_other_threads_commit_opens_the_channel_itself(open_channel: Open) -> None:
    channel, stop = open_channel(), threading.Event()

    def work() -> None:
        while not stop.is_set():
            put(channel, b"parent")
            stop.wait(0.001)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            in_child(lambda: put(channel, b"child") and None)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert peek(channel).count(b"child") == 10


def test_a_forked_child_of_multiprocessing_opens_the_channel_itself(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, b"parent")
    for method in ("fork", "forkserver", "spawn"):
        process = multiprocessing.get_context(method).Process(target=_put_in_child, args=(channel.path, method))
        process.start()
        process.join(60)
        assert process.exitcode == 0
    assert peek(channel) == [b"parent", b"fork", b"forkserver", b"spawn"]


def _put_in_child(path: Path, body: str) -> None:
    with Channel(path) as channel:
        put(channel, body.encode())


def test_objects_of_the_parent_are_refused_in_a_forked_child_by_name(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 5))
    consumer, engine = channel.consumer("g"), channel.engine()
    claimed = consumer.claim(2)

    def child() -> None:
        uses: list[Callable[[], object]] = [
            lambda: consumer.claim(1), lambda: consumer.read(claimed), lambda: consumer.commit(claimed), engine.follow,
            engine.checkpointing.create,
        ]  # fmt: skip
        for use in uses:
            with pytest.raises(ChannelClosedError):
                use()
        consumer.close()
        assert channel.stats().channel_size == 5

    in_child(child)
    consumer.commit(claimed)


def test_a_program_that_was_started_holds_nothing(open_channel: Open) -> None:
    channel = open_channel()
    channel.consumer("g")
    with subprocess.Popen(["sleep", "30"], close_fds=False) as program:
        channel.close()
        open_channel().consumer("g", owner_timeout_seconds=0.5)
        program.kill()


def test_a_transaction_does_not_cross_a_fork(open_channel: Open) -> None:
    channel = open_channel()
    with channel.put_transaction() as tx:
        tx.put(Event(b"x"))

        def child() -> None:
            from spillable_stream import TransactionStateError

            with pytest.raises(TransactionStateError, match="begin one in each thread and process"):
                tx.commit()

        in_child(child)
    assert peek(channel) == [b"x"]


def test_an_error_in_the_block_is_raised_though_the_close_fails_too(path: Path) -> None:
    fs = FaultyFileSystem()
    options: dict[str, Any] = {"memory_capacity": 10, "minimum_required_space": 0, "checkpoint_on_close": False}
    with fs.failing(lambda call: is_failing and call.name == "sync" and call.file.startswith("log-")):
        is_failing = False
        with pytest.raises(ValueError, match=r"^mine\n") as e, Channel(path, fs=fs, **options) as channel:
            put(channel, b"stays in memory")
            is_failing = True
            raise ValueError("mine")
        assert e.value.__notes__[0].startswith(f"Nor could the channel {path} be closed cleanly: ")
        is_failing = False
        with pytest.raises(StorageError, match=r"sync .* failed"), Channel(path, fs=fs, **options):
            is_failing = True
    with Channel(path) as channel:
        assert peek(channel) == [b"stays in memory"]
