"""Closing while threads are at it, and threads that call a channel from inside of a call to it."""

from __future__ import annotations

import itertools
import logging
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from spillable_stream import (
    Channel,
    ChannelClosedError,
    ChannelFullError,
    GroupOwnedError,
    LockTimeoutError,
    StorageError,
    TransactionStateError,
)
from spillable_stream.engine import active_calls
from spillable_stream.engine.requests import Control
from spillable_stream.format.frame import FrameType
from spillable_stream.log import wal
from tests.support.events import numbered, peek, put, take
from tests.support.fake_files import Call, FaultyFileSystem
from tests.support.interrupts import Interrupts
from tests.support.object_channels import URL, stores_in_memory

Open = Callable[..., Channel]
PATIENCE_SECONDS = 60.0  # of a test that would hang; none waits for it


class Work:
    """Something that runs in a thread of its own."""

    def __init__(self, do: Callable[[], Any]) -> None:
        self.result: Any = None
        self.error: BaseException | None = None
        self._do = do
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.result = self._do()
        except BaseException as e:
            self.error = e

    def is_done(self, within_seconds: float) -> bool:
        self._thread.join(within_seconds)
        return not self._thread.is_alive()

    def end(self) -> Any:
        """Return what it did; raises what it raised."""
        assert self.is_done(PATIENCE_SECONDS), "it hangs"
        if self.error is not None:
            raise self.error
        return self.result


@contextmanager
def held(
    fs: FaultyFileSystem, call: str = "sync", file: str = "log"
) -> Iterator[tuple[threading.Event, threading.Event]]:
    """Let calls wait until they may go on; yields what says that one is there, and what lets it go."""
    there, go_on = threading.Event(), threading.Event()

    def wait(found: Call) -> bool:
        if found.name == "sync" and found.file.startswith("log"):
            there.set()
            assert go_on.wait(PATIENCE_SECONDS)
        return False

    with fs.failing(wait):
        try:
            yield there, go_on
        finally:
            go_on.set()


# ── closing ─────────────────────────────────────────────────────────────────────────────────────


def gives_up(how: str, channel: Channel, group: str) -> None:
    {
        "close": channel.close,
        "drop_group": lambda: channel.drop_group(group),
        "consumer": lambda: channel.consumer(group).close(),
    }[how]()


@pytest.mark.parametrize("how", ["close", "drop_group", "consumer"])
def test_a_group_stays_owned_until_the_take_that_is_being_committed_is_over(open_channel: Open, how: str) -> None:
    """Else two owners have the same events, and both takes are acknowledged."""
    fs = FaultyFileSystem()
    channel, other = open_channel(fs=fs), open_channel()
    put(channel, *numbered(0, 5))
    peek(channel, group="g")
    with held(fs) as (there, go_on):
        taking = Work(lambda: take(channel, 3, "g"))
        assert there.wait(PATIENCE_SECONDS)
        closing = Work(lambda: gives_up(how, channel, "g"))
        assert not closing.is_done(0.1)
        with pytest.raises(GroupOwnedError):
            other.consumer("g", owner_timeout_seconds=0.05)
        go_on.set()
        assert taking.end() == numbered(0, 3)
        closing.end()
    assert take(other, group="g") == numbered(3, 2) if how != "drop_group" else "g" not in other.stats().groups


@pytest.mark.parametrize("how", ["close", "drop_group", "consumer"])
def test_takes_that_other_threads_hold_are_refused_when_their_group_is_given_up(open_channel: Open, how: str) -> None:
    channel, other = open_channel(), open_channel()
    put(channel, *numbered(0, 5))
    peek(channel, group="keeper")
    taken, given_up = threading.Event(), threading.Event()

    def hold() -> None:
        with channel.take_transaction("g") as tx:
            tx.take_many(2)
            taken.set()
            assert given_up.wait(PATIENCE_SECONDS)
            with pytest.raises(ChannelClosedError):
                tx.take_many(1)
            with pytest.raises(ChannelClosedError):
                tx.commit()
            tx.rollback()

    holding = Work(hold)
    assert taken.wait(PATIENCE_SECONDS)
    gives_up(how, channel, "g")
    assert take(other, group="g") == numbered(0, 5)
    given_up.set()
    holding.end()
    assert peek(other, group="g") == []


def test_a_claim_of_a_consumer_that_was_closed_is_refused(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 5))
    consumer = channel.consumer("g")
    claimed = consumer.claim(2)
    consumer.close()
    consumer.close()  # again is fine
    for use in (lambda: consumer.claim(1), lambda: list(consumer.read(claimed)), lambda: consumer.prepare(claimed)):
        with pytest.raises(ChannelClosedError, match=r"'g' of .* was dropped or given up"):
            use()
    consumer.release(claimed)


def test_puts_that_are_being_committed_are_over_before_a_close_is(open_channel: Open) -> None:
    fs = FaultyFileSystem()
    channel = open_channel(fs=fs)
    engine = channel.engine()
    with held(fs) as (there, go_on):
        first = Work(lambda: put(channel, b"first"))
        assert there.wait(PATIENCE_SECONDS)
        second = Work(lambda: put(channel, b"second"))
        while not engine.committer.group_commit.waiting():
            assert not second.is_done(0.001)
        closing = Work(channel.close)
        assert not closing.is_done(0.1)
        go_on.set()
        assert [first.end(), second.end()] == [(1, 1), (2, 2)]
        closing.end()
    assert peek(open_channel()) == [b"first", b"second"]


def test_a_close_does_not_wait_forever_for_a_call_and_another_one_does_the_rest(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(active_calls, "LONG_SECONDS", 0.01)
    fs = FaultyFileSystem()
    channel = open_channel(fs=fs, lock_timeout=0.02)
    with held(fs) as (there, go_on):
        first = Work(lambda: put(channel, b"first"))
        assert there.wait(PATIENCE_SECONDS)
        with pytest.raises(LockTimeoutError, match=r"a close of .* has waited 0\.02 s for a commit of another thread"):
            channel.close()
        with pytest.raises(ChannelClosedError):
            put(channel, b"second")
        go_on.set()
        assert first.end() == (1, 1)
    channel.close()
    assert peek(open_channel()) == [b"first"]


def test_a_group_that_can_not_be_given_up_keeps_no_other_one(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(active_calls, "LONG_SECONDS", 0.01)
    channel = open_channel(lock_timeout=0.02)
    for group in ("a", "b", "c"):
        channel.consumer(group)
    calls = channel.consumer("b").active_calls
    calls.threads[-1] = "a take"
    with pytest.raises(LockTimeoutError, match=r"'b' of .* for a take of another thread"):
        channel.close()
    with open_channel() as other:
        for group in ("a", "c"):
            other.consumer(group)
        del calls.threads[-1]
        channel.close()
        other.consumer("b")


def test_a_put_that_waits_for_room_is_refused_by_a_close(open_channel: Open) -> None:
    channel = open_channel(overflow_capacity=1, keep_alive=1000)
    put(channel, b"x")
    looked = threading.Event()
    engine = channel.engine()
    real = engine.committer.group_commit.submit

    def submit(request: Any) -> Any:
        try:
            return real(request)
        except ChannelFullError:
            looked.set()
            raise

    engine.committer.group_commit.submit = submit  # type: ignore[method-assign]
    putting = Work(lambda: put(channel, b"y"))
    assert looked.wait(PATIENCE_SECONDS)
    channel.close()
    with pytest.raises(ChannelClosedError, match="is being closed; open it again"):
        putting.end()


# ── signal handlers, finalizers, handlers of warnings and logging ───────────────────────────────

PLACES = (
    *(f"spillable_stream/channel/{n}.py" for n in ("channel", "transaction", "consumer")),
    *(f"spillable_stream/engine/{n}.py" for n in ("active_calls", "appender", "committer", "follower", "group_commit")),
    *(f"spillable_stream/engine/local/{n}.py" for n in ("checkpointing", "flush", "local_log")),
    *(
        f"spillable_stream/{n}.py"
        for n in ("log/commit_lock", "log/wal", "log/published_end", "log/syncing", "log/written_file", "storage/lock")
    ),
)
CALLS: dict[str, Callable[[Channel], object]] = {
    "put": lambda channel: put(channel, b"handlers"),
    "take": lambda channel: take(channel),
    "stats": lambda channel: channel.stats(),
    "checkpoint": lambda channel: channel.checkpoint(),
    "flush": lambda channel: channel.flush(),
    "drop_group": lambda channel: channel.drop_group("other"),
    "close": lambda channel: channel.close(checkpoint=False, flush=False),
}


OUTER_CALLS = [*(("transactions", call) for call in CALLS), ("checkpoint", "put")]


@pytest.mark.parametrize(
    ("outer", "call", "memory_capacity", "is_thorough"),
    [
        *((*calls, capacity, False) for calls, capacity in zip(OUTER_CALLS, itertools.cycle([0, 1000]))),
        *(
            pytest.param(*calls, capacity, True, marks=pytest.mark.slow)
            for calls in OUTER_CALLS
            for capacity in (0, 1000)
        ),
    ],
)
def test_a_signal_handler_anywhere_in_a_call_does_what_it_wants_or_is_refused(
    path: Any, outer: str, call: str, memory_capacity: int, is_thorough: bool
) -> None:
    """It never waits for what its own thread holds, and never sees or saves a state that is half changed."""
    number, hit, refused = 1, True, 0
    coarse, fine = (11, 7) if (outer, call) == ("transactions", "put") else (29, 17)
    watching = Channel(path, minimum_required_space=0, memory_capacity=memory_capacity)
    channel, stored = Channel(path), 0
    while hit:
        if call == "drop_group" and "other" not in watching.stats().groups:
            watching.engine().commit(Control(FrameType.GROUP, {"group": "other", "position": 0}))
        channel.engine().lock_timeout_seconds = 3.0  # whoever waits for itself shows
        refusals: list[BaseException] = []

        def handle(channel: Channel = channel, refusals: list[BaseException] = refusals) -> None:
            nonlocal stored
            try:
                CALLS[call](channel)
                stored += call == "put"
            except TransactionStateError as e:
                refusals.append(e)

        def transactions(channel: Channel = channel) -> None:
            nonlocal stored
            put(channel, b"x")
            stored += 1
            take(channel)

        interrupts = Interrupts(number, *PLACES, handler=handle)
        try:
            interrupts.run(transactions if outer == "transactions" else channel.checkpoint)
        except ChannelClosedError:
            assert call == "close"
        hit, number, refused = interrupts.hit, number + (fine if is_thorough else coarse), refused + len(refusals)
        assert watching.stats().last_id == stored
        if call == "close":
            channel.close(checkpoint=False, flush=False)
            channel = Channel(path)
        take(channel)
    assert number > (300 if outer == "transactions" else 150)
    assert refused > 5 or call in ("stats", "take"), "of these a part is refused, and the rest done"
    image = watching.engine().follow().image()
    channel.close(checkpoint=False, flush=False)
    watching.close(checkpoint=False, flush=False)
    with Channel(path) as again:
        assert again.engine().follow().image() == image, "what replay makes of the log is what this process made"


def test_a_finalizer_in_the_middle_of_a_commit_is_refused(open_channel: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = open_channel()
    put(channel, b"warm")
    refused: list[str] = []

    class Finalized:
        def __del__(self) -> None:
            try:
                put(channel, b"finalizer's")
            except TransactionStateError as e:
                refused.append(str(e))

    real = channel.engine().log.tiers.disk.append

    def append(*arguments: Any) -> Any:
        Finalized()
        return real(*arguments)

    monkeypatch.setattr(channel.engine().log.tiers.disk, "append", append)
    put(channel, b"x")
    assert len(refused) == 1
    assert "a commit of the channel" in refused[0] and "was called inside a commit of the same thread" in refused[0]
    assert "let another thread do that" in refused[0]
    monkeypatch.undo()
    assert peek(channel) == [b"warm", b"x"]


def test_a_handler_of_warnings_that_puts_into_the_channel_is_refused_and_its_commit_continues(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel(memory_capacity=100, overflow_capacity=1000)
    put(channel, b"warm")
    refused: list[BaseException] = []

    def show(*_: object, **__: object) -> None:
        try:
            put(channel, b"handler's")
        except TransactionStateError as e:
            refused.append(e)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", show)

        def append(*arguments: Any) -> Any:
            raise StorageError("the memory is full")

        monkeypatch.setattr(channel.engine().log.tiers.memory, "append", append)
        put(channel, b"x")
    assert len(refused) == 1
    assert peek(channel) == [b"warm", b"x"]


def test_a_logging_handler_that_puts_into_the_channel_is_refused_and_its_commit_continues(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel()
    refused: list[BaseException] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            try:
                put(channel, record.getMessage().encode())
            except TransactionStateError as e:
                refused.append(e)

    monkeypatch.setattr(wal, "_SLOW_SYNC_SECONDS", 0.0)
    handler = Handler()
    logging.getLogger("spillable_stream").addHandler(handler)
    try:
        put(channel, b"x")
    finally:
        logging.getLogger("spillable_stream").removeHandler(handler)
    assert len(refused) == 1
    assert peek(channel) == [b"x"]


@pytest.mark.parametrize(
    "call",
    [lambda c: put(c, b"1"), lambda c: c.checkpoint(), lambda c: c.consumer(f"g{uuid4()}")],
    ids=["put", "checkpoint", "first take"],
)
@pytest.mark.parametrize("place", ["disk", "store"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_the_with_statement_itself_leaves_nothing_held_while_its_error_is_kept(
    tmp_path: Path, place: str, call: Callable[[Channel], object], error: type[BaseException]
) -> None:
    """An interactive session keeps the last error, and with it what the frames of the block have."""
    with stores_in_memory(), ExitStack() as stack:
        path = tmp_path / "channel" if place == "disk" else URL
        channel = stack.enter_context(Channel(path, **({} if place == "disk" else {"commit_interval": 0})))
        put(channel, b"0")
        for number in itertools.count(1):
            kept: list[BaseException] = []

            def interrupted(kept: list[BaseException] = kept) -> None:
                try:
                    call(channel)
                except error as e:
                    kept.append(e)
                    raise

            interrupts = Interrupts(number, "/contextlib.py", "log/commit_lock.py", error=error)
            interrupts.run(interrupted)
            Work(lambda: put(channel, b"another thread's")).end()
            assert not untold_threads(channel), number
            if not interrupts.hit:
                break
        assert number > 3


def untold_threads(channel: Channel) -> set[int]:
    """Return the threads to which no loss is told that waits in a handle, of a store."""
    untold = getattr(channel.engine().log, "untold_loss", None)
    return set() if untold is None else untold._threads


def test_an_end_waits_for_no_call_that_was_left() -> None:
    calls, begun, may_end = active_calls.ActiveCalls("a test"), threading.Event(), threading.Event()

    def call() -> None:
        begun.set()
        assert may_end.wait(PATIENCE_SECONDS)

    thread = threading.Thread(target=calls.run, args=("a call", call))
    thread.start()
    try:
        assert begun.wait(PATIENCE_SECONDS) and thread.ident is not None
        calls.leave(thread.ident)
        calls.end("a close", 0.0)
        assert thread.is_alive()
    finally:
        may_end.set()
        thread.join(PATIENCE_SECONDS)
    assert calls.threads == {}
