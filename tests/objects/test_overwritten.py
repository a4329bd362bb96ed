"""What proves that a slot was overwritten, and what does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spillable_stream.errors import StorageError, UnsafeStoreError
from spillable_stream.objects.appending import Tail
from spillable_stream.objects.chain import Chain
from spillable_stream.objects.loading import load
from spillable_stream.objects.overwritten import find_lost, find_overwritten
from spillable_stream.objects.slots import slot_key
from spillable_stream.state.contents import Trimmed
from tests.support.faulty_store import Fault, FaultyStore
from tests.support.memory_store import MemoryStore
from tests.support.object_logs import Writer, new_channel


class Overwritten:
    """A log of the slots 0 to 3, and what a handle knew of it before slot 3 was another one.

    Attributes:
        store: the store.
        writer: the writer of the slot in its place.
        chain: the slots that the handle knew.
        tail: the newest of them.
    """

    def __init__(self) -> None:
        self.store = MemoryStore()
        channel = new_channel(self.store)
        self.writer, late = Writer(self.store, channel), Writer(self.store, channel)
        self.chain = Chain(self.writer.tail.number, self.writer.tail.token)
        for _ in range(2):
            self._put(self.writer)
        late.follow()
        self._put(self.writer)
        self.tail: Tail = self.writer.tail
        del self.store.objects[slot_key(3)]
        late.put(b"in its place")

    def _put(self, writer: Writer) -> None:
        writer.put(b"x")
        self.chain.add(writer.tail.number, writer.tail.token)

    def found(self) -> UnsafeStoreError | None:
        return find_overwritten(self.writer.slots, self.chain, self.tail)


@pytest.fixture
def log() -> Overwritten:
    return Overwritten()


def test_another_slot_behind_one_that_is_there_was_overwritten(log: Overwritten) -> None:
    found = log.found()
    assert isinstance(found, UnsafeStoreError)
    assert f"{slot_key(3)} was overwritten" in str(found)


def test_a_slot_that_is_as_it_was_is_not_overwritten(log: Overwritten) -> None:
    token = log.writer.slots.token(3)
    assert token is not None
    log.chain.add(3, token)
    log.tail = Tail(3, token, token, log.tail.end)
    assert log.found() is None


def others_slot(log: Overwritten) -> None:
    """Put another log's slot in the place of the one before."""
    log.store.objects[slot_key(2)] = Overwritten().store.objects[slot_key(2)]


@pytest.mark.parametrize(
    "change",
    [
        lambda log: log.store.objects.pop(slot_key(3)),
        lambda log: log.store.objects.pop(slot_key(2)),  # they were collected, and a late writer filled the place
        others_slot,
        lambda log: setattr(log, "chain", Chain(3, log.tail.token)),  # the handle began there
    ],
)
def test_what_may_have_been_collected_proves_nothing(log: Overwritten, change: Callable[[Overwritten], object]) -> None:
    change(log)
    assert log.found() is None


def test_the_slot_with_which_a_handle_began_counts_as_known(log: Overwritten) -> None:
    token = log.writer.slots.token(2)
    assert token is not None
    log.chain = Chain(2, token)
    assert log.found() is not None


def test_a_store_that_does_not_answer_is_an_error(log: Overwritten) -> None:
    log.writer.slots.store = FaultyStore(log.store, lambda _: Fault.UNAVAILABLE)
    with pytest.raises(StorageError):
        log.found()


# ── what a log that was loaded again tells ──────────────────────────────────────────────────────


def lost(log: Overwritten, *, is_gone: bool = False, left: int = 0) -> str:
    """Return the error of the log as it is now, for who knew the slot that was overwritten; "" for none."""
    store = FaultyStore(log.store)
    writer = Writer(store, log.writer.slots.channel)
    loaded = load(writer.slots, writer.checkpoints)
    store.forget_counts()
    found = find_lost(writer.slots, log.tail, loaded, is_gone=is_gone, left=left)
    assert not store.counts
    return "" if found is None else str(found)


def test_a_log_that_has_another_slot_than_was_known_has_lost_it(log: Overwritten) -> None:
    assert "slot 3 is not the one that was there" in lost(log)


def test_a_log_that_ends_before_a_slot_that_was_known_has_lost_it(log: Overwritten) -> None:
    del log.store.objects[slot_key(3)]
    assert "ends with slot 2, and slot 3 was there" in lost(log)


def test_whoever_left_a_slot_behind_a_loss_is_told_to_repair_the_channel_and_others_to_verify_it(
    log: Overwritten,
) -> None:
    del log.store.objects[slot_key(3)]
    root = log.store.root
    said = lost(log, left=4)
    assert (
        f"left slot 4 behind them, which the log can't pass. Close all handles, and run `spillable repair {root}`"
        in said
    )
    for left in (0, 2):
        assert f"Close all handles, and run `spillable verify {root}`. If it finds damage," in lost(log, left=left)


def test_a_log_that_has_the_slot_that_was_known_has_lost_nothing(log: Overwritten) -> None:
    writer = Writer(log.store, log.writer.slots.channel)
    log.tail = writer.tail
    writer.put(b"x")
    assert not lost(log)


def with_a_checkpoint_behind(log: Overwritten, trimmed_through: int = -1) -> None:
    writer = Writer(log.store, log.writer.slots.channel)
    writer.put(b"x")
    writer.state.trimmed = Trimmed(trimmed_through)
    writer.checkpoints.write(writer.tail, writer.state)


def test_a_log_that_was_loaded_from_a_checkpoint_behind_a_slot_tells_nothing_of_it(log: Overwritten) -> None:
    with_a_checkpoint_behind(log)
    assert not lost(log)


def test_a_log_without_a_slot_that_nobody_has_trimmed_has_lost_it(log: Overwritten) -> None:
    with_a_checkpoint_behind(log, 2)
    assert "lacks slot 3, which was there, and which nobody has trimmed" in lost(log, is_gone=True)


def test_a_slot_that_was_trimmed_may_have_been_collected(log: Overwritten) -> None:
    with_a_checkpoint_behind(log, 3)
    assert not lost(log, is_gone=True)
