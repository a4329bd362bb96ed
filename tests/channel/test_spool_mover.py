"""The mover of a spool: what it puts to the store as one, and what it trusts."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import spillable_stream as ss
from spillable_stream import (
    Channel,
    ChannelFullError,
    DataLossError,
    GroupOwnedError,
    MemoryLossWarning,
    ProducerBusyError,
    ProducerSequenceError,
)
from spillable_stream.channel import spool_mover
from spillable_stream.channel.consumer import Consumer
from spillable_stream.channel.spool_mover import SpoolMover, spool_group
from spillable_stream.engine.groups import create_group
from spillable_stream.engine.store import object_owners
from spillable_stream.engine.store.object_owners import ObjectOwners
from spillable_stream.format.numbered_batch import NumberedBatch
from tests.support.damage import kill, lose_memory
from tests.support.delays import put_late
from tests.support.events import numbered, put, take
from tests.support.object_channels import URL, stores_in_memory
from tests.support.one_module import replace_in
from tests.support.spools import without_threads


class Pair:
    """A channel of this host, one in a store, and what ships from the one to the other."""

    def __init__(self, directory: Path) -> None:
        self.store = Channel(URL, commit_interval=0)
        self.spool = Channel(directory, minimum_required_space=0)
        create_group(self.spool.engine(), spool_group(self.store.uuid), "earliest")
        self.mover = SpoolMover(self.spool.engine(), self.store.engine())

    def ship(self) -> None:
        assert self.mover.own()
        self.mover.ship()


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    without_threads(monkeypatch)
    with stores_in_memory():
        made = Pair(tmp_path / "spool")
        yield made
        made.mover.close(is_answered=True)
        made.spool.close()
        made.store.close()


def test_one_ship_is_one_transaction_of_the_spools_producer(pair: Pair) -> None:
    for body in numbered(0, 20):
        put(pair.spool, body)
    pair.ship()
    with pair.store.take_transaction() as tx:
        found = tx.take_many(100)
    assert [e.body for e in found] == numbered(0, 20)
    assert pair.store.stats().producers == {f"spool-{pair.spool.uuid}": 20}
    assert len(list(pair.store.engine().state.blocks)) <= 1
    assert pair.mover.waiting() == (0, 20) and pair.mover.position() == 20


def test_whole_transactions_go_together_as_far_as_they_fit(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_mover, "_PUT_EVENTS", 5)
    for size in (2, 2, 2, 9, 1):
        put(pair.spool, *[b"x"] * size)
    ends = []
    while pair.mover.waiting()[0]:
        pair.ship()
        ends.append(pair.mover.position())
    assert ends == [4, 6, 15, 16]


def test_a_transaction_that_the_store_could_not_hold_is_divided(pair: Pair) -> None:
    put(pair.spool, *numbered(0, 20))
    with Channel(URL, overflow_capacity=8):
        pass
    pair.store.engine().follow()
    ends, found = [], []
    while pair.mover.waiting()[0]:
        pair.ship()
        ends.append(pair.mover.position())
        found += take(pair.store)
    assert (ends, found) == ([8, 16, 20], numbered(0, 20))


def test_no_more_goes_together_than_the_store_has_room_for(pair: Pair) -> None:
    """Events that are due later fill the store for long; more at once would wait for it, each put alone would not."""
    put_late(pair.store, 3600, *numbered(90, 5))
    with Channel(URL, overflow_capacity=10, keep_alive=0):
        pass
    pair.store.engine().follow()
    for body in numbered(0, 8):
        put(pair.spool, body)
    pair.ship()
    pair.ship()
    assert pair.mover.position() == 5
    with pytest.raises(ChannelFullError):
        pair.ship()
    found = take(pair.store)
    while pair.mover.waiting()[0]:
        pair.ship()
    assert found + take(pair.store) == numbered(0, 8)


def test_a_transaction_that_the_store_has_no_room_for_now_waits_whole(pair: Pair) -> None:
    put(pair.store, *numbered(90, 5))
    with Channel(URL, overflow_capacity=10, keep_alive=0):
        pass
    pair.store.engine().follow()
    for first in (0, 2, 10):
        put(pair.spool, *numbered(first, 8 if first == 2 else 2))
    pair.ship()
    assert pair.mover.position() == 2
    with pytest.raises(ChannelFullError, match="8 events do not fit"):
        pair.ship()
    assert take(pair.store) == [*numbered(90, 5), *numbered(0, 2)]
    pair.ship()
    assert pair.mover.position() == 12


def test_what_goes_together_is_not_bounded_by_the_capacity_of_a_transaction(pair: Pair) -> None:
    for first in (0, 8, 16):
        put(pair.spool, *numbered(first, 8))
    with Channel(URL, transaction_capacity=8):
        pass
    pair.store.engine().follow()
    pair.ship()
    assert pair.mover.position() == 24
    assert take(pair.store, 8) + take(pair.store, 8) + take(pair.store, 8) == numbered(0, 24)


def test_a_mover_that_knows_too_little_is_refused_by_the_store_and_asks_it(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(pair.spool, *numbered(0, 5))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Consumer, "commit", interrupted)
        pair.ship()
    put(pair.spool, *numbered(5, 2))
    pair.mover._shipped = 0  # as if a late request had put the five after it had asked
    while pair.mover.waiting()[0]:
        pair.ship()
    assert take(pair.store) == numbered(0, 7)


def test_a_spool_that_lost_its_memory_ships_the_next_event_with_the_next_put(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The IDs of what was lost count as taken, and the store never hears of them."""
    with Channel(pair.spool.path, memory_capacity=100):
        pair.spool.engine().follow()
    put(pair.spool, *numbered(0, 5))
    pair.ship()
    put(pair.spool, *numbered(5, 5))
    pair.mover.close(is_answered=True)
    kill(pair.spool)
    lose_memory(Path(pair.spool.path))
    with pytest.warns(MemoryLossWarning):
        pair.spool = Channel(pair.spool.path)
    pair.mover = SpoolMover(pair.spool.engine(), pair.store.engine())
    pair.ship()
    put(pair.spool, b"next")
    pair.ship()
    assert take(pair.store) == [*numbered(0, 5), b"next"]


def interrupted(*_: object, **__: object) -> int:
    raise KeyboardInterrupt


def test_what_the_store_refuses_though_nothing_changed_is_raised(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    put(pair.spool, b"x")

    def refused(*_: object) -> int:
        raise ProducerSequenceError("a test")

    monkeypatch.setattr(SpoolMover, "_put", refused)
    with pytest.raises(ProducerSequenceError, match="a test"):
        pair.ship()
    monkeypatch.undo()
    pair.ship()
    assert take(pair.store) == [b"x"]


def test_an_older_copy_of_a_spool_is_refused_and_nothing_of_it_is_passed_over(pair: Pair) -> None:
    put(pair.spool, *numbered(0, 5))
    pair.ship()
    with pair.store.put_transaction() as tx:
        tx.producer = spool_mover.NumberedBatch(pair.mover.producer_id, spool_mover.Numbers(6, 9))
        tx.put_batch(pa.record_batch({"headers": pa.nulls(1, tx._schema.field("headers").type), "body": [b"gone"]}))
    put(pair.spool, b"is it number 6?")
    pair.mover._shipped = None
    with pytest.raises(DataLossError, match=r"events up to 6, and .* up to 9: the spool is an older copy"):
        pair.ship()
    assert pair.mover.waiting()[0] == 1


def restart(pair: Pair, instead: Callable[[Path], object] = lambda path: None) -> None:
    """Let the spool's process end, do something with its directory, and begin the next one."""
    pair.mover.close(is_answered=True)
    path = Path(pair.spool.path)
    pair.spool.close()
    instead(path)
    pair.spool = Channel(path)
    pair.mover = SpoolMover(pair.spool.engine(), pair.store.engine())


def back_up(pair: Pair, copy: Path) -> None:
    restart(pair, lambda path: shutil.copytree(path, copy))


def restore(pair: Pair, copy: Path) -> None:
    """Lose the spool's directory, and go on with the copy."""
    restart(pair, lambda path: (shutil.rmtree(path), shutil.copytree(copy, path)))


def test_a_restored_spool_that_got_more_puts_than_it_lost_is_refused_and_none_of_them_is_left_out(
    pair: Pair, tmp_path: Path
) -> None:
    put(pair.spool, *numbered(0, 5))
    pair.ship()
    back_up(pair, tmp_path / "copy")
    put(pair.spool, *numbered(5, 5))
    pair.ship()
    restore(pair, tmp_path / "copy")
    put(pair.spool, *numbered(100, 20))
    for _ in range(2):
        with pytest.raises(DataLossError, match=r"event 10 of the spool differs from the one with this ID in "):
            pair.ship()
    assert pair.mover.waiting() == (20, 25)
    assert take(pair.store) == numbered(0, 10)


def test_a_restored_spool_whose_mover_knows_too_little_is_refused_when_the_store_refuses_its_put(
    pair: Pair, tmp_path: Path
) -> None:
    back_up(pair, tmp_path / "copy")
    put(pair.spool, b"old")
    pair.ship()
    restore(pair, tmp_path / "copy")
    put(pair.spool, b"new")
    pair.mover._shipped = 0  # as if the other one's put had come after it had asked
    with pytest.raises(DataLossError, match="event 1 of the spool differs"):
        pair.ship()
    assert pair.mover.waiting()[0] == 1


@pytest.mark.parametrize("is_archive", [False, True], ids=["files", "spillable backup"])
def test_a_restored_spool_that_lost_no_put_ships_what_is_not_in_the_store(
    pair: Pair, tmp_path: Path, is_archive: bool
) -> None:
    copy = tmp_path / "copy"
    for first in (0, 5):
        put(pair.spool, *numbered(first, 5))
    if is_archive:
        ss.backup(pair.spool.path, copy)
    else:
        back_up(pair, copy)
    pair.ship()

    def restore_archive(path: Path) -> None:
        shutil.rmtree(path)
        ss.restore(copy, path)

    if is_archive:
        restart(pair, restore_archive)
    else:
        restore(pair, copy)
    put(pair.spool, *numbered(10, 5))
    pair.ship()
    assert take(pair.store) == numbered(0, 15)


@pytest.mark.parametrize("options", [{}, {"max_inline_bytes": 10}], ids=["in the log", "in a segment"])
def test_what_a_mover_that_died_shipped_is_known_again_after_it_was_moved_from_memory_to_disk(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, options: dict[str, int]
) -> None:
    with Channel(pair.spool.path, memory_capacity=100, **options):
        pair.spool.engine().follow()
    put(pair.spool, *[b"%d" % n * 100 for n in range(5)])
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Consumer, "commit", interrupted)
        pair.ship()
    restart(pair)
    assert pair.spool.stats().memory.events == 0
    put(pair.spool, b"next")
    pair.ship()
    assert take(pair.store) == [*[b"%d" % n * 100 for n in range(5)], b"next"]


def test_what_an_earlier_version_shipped_counts_though_it_does_not_say_which_put_that_was(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(pair.spool, *numbered(0, 5))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(spool_mover, "NumberedBatch", lambda producer, numbers, *_: NumberedBatch(producer, numbers))
        patch.setattr(Consumer, "commit", interrupted)
        pair.ship()
    restart(pair)
    put(pair.spool, b"next")
    pair.ship()
    assert take(pair.store) == [*numbered(0, 5), b"next"]


def test_one_mover_at_a_time_ships(pair: Pair) -> None:
    other = SpoolMover(pair.spool.engine(), pair.store.engine())
    assert pair.mover.own() and pair.mover.own() and not other.own()
    pair.mover.close(is_answered=True)
    assert other.own()
    other.close(is_answered=True)


def test_a_mover_that_lost_its_group_ships_again_unless_another_does(pair: Pair) -> None:
    """A cleaner of old files removed the group's lock, and another mover made another one."""
    other = SpoolMover(pair.spool.engine(), pair.store.engine())
    put(pair.spool, b"1")
    pair.ship()
    put(pair.spool, b"2")
    pair.spool.engine().layout.group_lock(pair.mover.group).unlink()  # type: ignore[attr-defined]
    with pytest.raises(GroupOwnedError):
        pair.mover.ship()
    assert pair.mover.own()
    assert not other.own()
    pair.mover.ship()
    assert pair.mover.waiting() == (0, 2)
    assert take(pair.store) == [b"1", b"2"]


def test_a_copy_of_a_spool_that_a_live_mover_ships_is_refused(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    assert pair.mover.own()
    copy = SpoolMover(pair.spool.engine(), pair.store.engine())
    monkeypatch.setattr(Consumer, "__init__", lambda *_, **__: None)  # another host's lock
    monkeypatch.setattr(Consumer, "close", lambda _: None)
    owners = pair.store.engine().owners
    assert isinstance(owners, ObjectOwners)
    replace_in(monkeypatch, object_owners, "time", sleep=lambda _: owners.answer_claims())
    with pytest.raises(ProducerBusyError, match=f"spool-{pair.spool.uuid}"):
        copy.own()
    monkeypatch.undo()


def test_a_mover_waits_for_events_and_stops_when_it_is_over(pair: Pair) -> None:
    assert not pair.mover.wait(lambda: True)
    put(pair.spool, b"x")
    assert pair.mover.wait(lambda: False)
    assert not pair.mover.wait(lambda: True)
