"""How a loss that a handle meets by itself waits for the next call."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import count, takewhile
from threading import Thread
from types import FrameType

import pytest

from spillable_stream import Channel, StorageError, UnsafeStoreError
from spillable_stream.engine.store.owner_requests import Claim
from spillable_stream.engine.store.untold_loss import UntoldLoss
from spillable_stream.errors import says_nothing_stored
from spillable_stream.objects.location import Location
from tests.support.events import peek, put
from tests.support.interrupts import Interrupts
from tests.support.object_channels import (
    log_of,
    lose_slots,
    owners_of,
    require_told_once,
)
from tests.support.spools import without_threads

Open = Callable[..., Channel]


@pytest.fixture
def untold() -> UntoldLoss:
    return UntoldLoss(Location("s3", "bucket", "orders"))


def lose(untold: UntoldLoss, text: str = "lost") -> None:
    with untold.block():
        raise UnsafeStoreError(text)


def test_a_loss_is_logged_where_it_is_met_and_raised_once(untold: UntoldLoss, caplog: pytest.LogCaptureFixture) -> None:
    lose(untold)
    assert [(r.levelname, r.message) for r in caplog.records] == [("ERROR", "s3://bucket/orders: lost")]
    with pytest.raises(UnsafeStoreError, match=r"^lost$"):
        untold.tell()
    untold.tell()
    assert untold.waiting is None


def test_what_waits_keeps_nothing_that_the_work_had(untold: UntoldLoss) -> None:
    lose(untold)
    assert untold.waiting is not None
    assert (untold.waiting.__traceback__, untold.waiting.__context__) == (None, None)


def test_no_other_error_waits(untold: UntoldLoss) -> None:
    with pytest.raises(StorageError), untold.block():
        raise StorageError("no answer")
    untold.tell()


def test_work_that_no_call_asked_for_continues_while_a_loss_waits(untold: UntoldLoss) -> None:
    lose(untold)
    with untold.block():
        untold.tell()
    with pytest.raises(UnsafeStoreError):
        untold.tell()


def test_what_is_told_says_that_the_call_has_stored_nothing_and_may_be_repeated(untold: UntoldLoss) -> None:
    lose(untold)
    with pytest.raises(UnsafeStoreError) as told:
        untold.tell()
    assert told.value.stored_nothing and says_nothing_stored(told.value)
    assert not says_nothing_stored(UnsafeStoreError("met by the append itself"))


def test_the_end_of_a_block_does_not_end_the_one_around_it(
    untold: UntoldLoss, caplog: pytest.LogCaptureFixture
) -> None:
    lose(untold)
    with untold.block():
        with untold.block():
            pass
        untold.tell()
    assert len(caplog.records) == 1
    with pytest.raises(UnsafeStoreError, match=r"^lost$"):
        untold.tell()


def test_an_interrupt_anywhere_in_blocks_leaves_this_thread_in_none(untold: UntoldLoss) -> None:
    def work() -> None:
        with untold.block():
            lose(untold)
            untold.tell()

    def is_interrupted(number: int) -> bool:
        untold.waiting = None
        interrupts = Interrupts(number, "untold_loss.py", "contextlib.py")
        interrupts.run(work)
        lose(untold)
        with pytest.raises(UnsafeStoreError, match=r"^lost$"):
            untold.tell()
        return interrupts.hit

    assert sum(1 for _ in takewhile(is_interrupted, count(1))) > 10


def test_an_interrupt_loses_no_loss_that_waits(untold: UntoldLoss) -> None:
    def is_interrupted(number: int) -> bool:
        lose(untold)
        told = []

        def tell() -> None:
            try:
                untold.tell()
            except UnsafeStoreError as e:
                told.append(e)

        interrupts = Interrupts(number, "untold_loss.py")
        interrupts.run(tell)
        assert told or untold.waiting
        untold.waiting = None
        return interrupts.hit

    assert sum(1 for _ in takewhile(is_interrupted, count(1))) > 1


def test_a_loss_that_another_thread_was_told_for_this_one_does_not_wait(
    untold: UntoldLoss, caplog: pytest.LogCaptureFixture
) -> None:
    lose(untold)
    with pytest.raises(UnsafeStoreError) as told:
        untold.tell()
    with untold.block():
        raise told.value  # as in a group commit, whose error is that of all of its requests
    untold.tell()
    assert len(caplog.records) == 1


def test_of_two_threads_one_is_told_wherever_the_other_one_begins(untold: UntoldLoss) -> None:
    def tell() -> None:
        try:
            untold.tell()
        except UnsafeStoreError as e:
            told.append(e)

    def trace(frame: FrameType, event: str, argument: object) -> object:
        nonlocal left
        if frame.f_code is not UntoldLoss.tell.__code__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if not left:
                other.start()
                other.join(0.05)  # one that must wait for this thread goes on later
        return trace

    before = sys.gettrace()
    for number in count(1):
        lose(untold)
        left, other = number, Thread(target=tell)
        told: list[UnsafeStoreError] = []
        sys.settrace(trace)
        try:
            tell()
        finally:
            sys.settrace(before)
        assert len(told) <= 1
        if left > 0:
            break
        other.join()
        assert len(told) == 1
    assert number > 5


def test_the_first_of_several_losses_waits_and_each_is_logged(
    untold: UntoldLoss, caplog: pytest.LogCaptureFixture
) -> None:
    lose(untold, "first")
    lose(untold, "second")
    assert [r.message for r in caplog.records] == ["s3://bucket/orders: first", "s3://bucket/orders: second"]
    with pytest.raises(UnsafeStoreError, match=r"^first$"):
        untold.tell()
    untold.tell()


# ── which calls are told ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "call",
    [
        lambda channel: put(channel, b"2"),
        peek,
        lambda channel: channel.seek("default", "latest"),
        lambda channel: channel.checkpoint(),
    ],
    ids=["put", "take", "commit", "checkpoint"],
)
def test_a_put_a_take_a_commit_and_a_checkpoint_raise_a_loss_that_waits(
    open_handle: Open, call: Callable[[Channel], object]
) -> None:
    channel = open_handle()
    put(channel, b"1")
    peek(channel)
    lose(log_of(channel).untold_loss)
    with pytest.raises(UnsafeStoreError, match=r"^lost$"):
        call(channel)
    call(channel)


@pytest.mark.parametrize(
    "call",
    [
        lambda channel: channel.stats(),
        lambda channel: channel._repr_html_(),
        lambda channel: channel.head(),
        lambda channel: channel.range_of(),
        lambda channel: channel.port().require_open(),
        lambda channel: channel.engine().wait_for(lambda state: True, 0.0),
        lambda channel: channel.close(),
    ],
    ids=["stats", "display", "read", "range", "open", "wait", "close"],
)
def test_a_call_that_only_looks_leaves_a_loss_to_the_next_one(
    open_handle: Open, call: Callable[[Channel], object]
) -> None:
    channel = open_handle()
    untold = log_of(channel).untold_loss
    put(channel, b"1")
    lose(untold)
    call(channel)
    with pytest.raises(UnsafeStoreError, match=r"^lost$"):
        untold.tell()


@pytest.mark.parametrize("show", [lambda channel: channel.stats(), lambda channel: channel._repr_html_()])
def test_what_shows_a_channel_leaves_a_loss_that_it_meets_to_the_next_call(
    open_handle: Open, show: Callable[[Channel], object], caplog: pytest.LogCaptureFixture
) -> None:
    channel = open_handle()
    put(channel, b"1")
    lose_slots(channel)
    caplog.clear()
    assert "events are lost" not in str(show(channel))
    assert [r.levelname for r in caplog.records] == ["ERROR"]
    with pytest.raises(UnsafeStoreError, match="Acknowledged events are lost"):
        put(channel, b"2")
    put(channel, b"3")
    assert peek(channel) == [b"1", b"3"]


# ── owners of groups ────────────────────────────────────────────────────────────────────────────────


def test_a_loss_that_is_found_where_claims_are_answered_waits_for_the_next_call(
    open_handle: Open, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_threads(monkeypatch)
    owner = open_handle()
    owner.consumer("default")
    lose_slots(owner)
    assert owners_of(owner)._warning.is_due()
    assert owners_of(owner).run_once()
    require_told_once(owner, caplog)


def test_a_loss_that_is_found_where_a_group_is_given_up_waits_for_the_next_call(
    open_handle: Open, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_threads(monkeypatch)
    owner = open_handle()
    consumer = owner.consumer("default")
    lose_slots(owner)
    log_of(owner)._presence.is_proven = False  # as after an idle time: it looks before it appends
    consumer.close()
    require_told_once(owner, caplog)


def test_claims_are_answered_and_groups_given_up_while_a_loss_waits(
    open_handle: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_threads(monkeypatch)
    owner, claimant = open_handle(), open_handle()
    consumer = owner.consumer("default")
    with log_of(owner).untold_loss.block():
        raise UnsafeStoreError("lost")
    claimant.engine().follow()
    owned = owners_of(claimant).known("default")
    assert owned is not None
    owners_of(claimant)._append(Claim("default", owned, "a claim"))
    assert owners_of(owner).run_once()
    claimant.engine().follow()
    known = owners_of(claimant).known("default")
    assert known is not None and not known.claim
    consumer.close()
    claimant.engine().follow()
    assert owners_of(claimant).known("default") is None
    with pytest.raises(UnsafeStoreError, match=r"^lost$"):
        peek(owner)


def test_a_note_that_a_worker_writes_of_itself_leaves_a_loss_to_the_next_call(
    open_handle: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_threads(monkeypatch)
    channel = open_handle()
    consumer = channel.consumer("default")
    with log_of(channel).untold_loss.block():
        raise UnsafeStoreError("lost")
    consumer.write_note("at event 7")
    owned = owners_of(channel).known("default")
    assert owned is not None and owned.note.endswith("at event 7")
    with pytest.raises(UnsafeStoreError, match=r"^lost$"):
        put(channel, b"not stored")


def test_a_loss_that_waits_does_not_end_with_the_look_at_what_an_interrupt_left(
    open_handle: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_threads(monkeypatch)
    channel = open_handle()
    channel.consumer("default").close()
    with pytest.raises(KeyboardInterrupt), owners_of(channel).without_owner("default"):
        with log_of(channel).untold_loss.block():
            raise UnsafeStoreError("lost")
        raise KeyboardInterrupt
    with pytest.raises(UnsafeStoreError, match=r"^lost$"):
        put(channel, b"not stored")
