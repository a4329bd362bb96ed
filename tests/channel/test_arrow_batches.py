"""Reading what is in a channel as Arrow batches, without taking it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spillable_stream import Channel, ChannelClosedError, CorruptionError, DataLossError, OptionError
from spillable_stream.engine.requests import Control
from spillable_stream.format.frame import FrameType
from spillable_stream.log.event_reader import EventReader
from tests.support.arrow_values import LEAVES, nested
from tests.support.damage import log_file, lose_memory
from tests.support.events import lose, numbered, put, take
from tests.support.fake_files import FaultyFileSystem

Open = Callable[..., Channel]

HOUR_MS = 3_600_000


def bodies(batches: Iterator[pa.RecordBatch]) -> list[bytes]:
    return [body for batch in batches for body in batch["body"].to_pylist()]


def ids(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [event_id for batch in batches for event_id in batch["write_order_id"].to_pylist()]


@pytest.fixture
def channel(open_channel: Open) -> Channel:
    """A channel that keeps what is taken, of ten events in five transactions; a group has taken six."""
    channel = open_channel(retention_ms=HOUR_MS)
    for i in range(0, 10, 2):
        put(channel, *numbered(i, 2))
    take(channel, 6, "g")
    return channel


@pytest.fixture
def long(open_channel: Open) -> Channel:
    """A channel that keeps what is taken, of ten events in five transactions, each in a block of its own."""
    channel = open_channel(retention_ms=HOUR_MS)
    for i in range(0, 10, 2):
        put(channel, *[b"%d" % n * 150_000 for n in (i, i + 1)])
    assert len(channel.engine().state.blocks) == 5
    return channel


def let_go(channel: Channel, through: int) -> None:
    """Let events leave, as retention does."""
    channel.engine().commit(Control(FrameType.RETENTION, {"through": through}))


# ── which events ────────────────────────────────────────────────────────────────────────────────


def test_everything_that_is_there_is_read_and_nothing_is_taken(channel: Channel) -> None:
    before = channel.engine().positions
    for _ in range(2):
        assert bodies(channel.read()) == numbered(0, 10)
    assert channel.engine().positions == before
    assert channel.stats().groups["g"].lag == 4
    assert channel.consumer("g").claim(1) == [(7, 7)]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(None, None, (1, 10)), (3, None, (3, 10)), (None, 3, (1, 3)), (4, 8, (4, 8)), (5, 5, (5, 5)), (10, 10, (10, 10)),
     ("earliest", 2, (1, 2)), ("latest", None, (1, 0)), (11, None, (1, 0)), (4, 3, (1, 0))],
)  # fmt: skip
def test_ids_bound_a_read_on_both_sides(channel: Channel, start: Any, end: Any, expected: tuple[int, int]) -> None:
    assert ids(channel.read(start, end)) == list(range(expected[0], expected[1] + 1))


def test_times_bound_a_read_and_the_end_is_not_read(channel: Channel) -> None:
    with channel.take_transaction("clock") as tx:
        stamps = [e.timestamp for e in tx.take_many(10)]
        tx.rollback()
    at = [datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=round(t * 1e6)) for t in stamps]
    assert ids(channel.read(at[2])) == list(range(3, 11))
    assert ids(channel.read(end=at[4])) == [1, 2, 3, 4]
    assert ids(channel.read(at[2], at[6])) == [3, 4, 5, 6]
    assert ids(channel.read(at[6], at[6])) == []
    assert ids(channel.read(timedelta(hours=1), timedelta(0))) == list(range(1, 11))
    assert ids(channel.read(end=timedelta(hours=1))) == []


def test_of_a_group_only_what_it_has_yet_to_take_is_read(channel: Channel) -> None:
    assert ids(channel.read(group="g")) == [7, 8, 9, 10]
    consumer = channel.consumer("g")
    consumer.claim(1)
    consumer.commit(consumer.claim(2))
    assert ids(channel.read(group="g")) == [7, 10]
    assert ids(channel.read(2, 9, group="g")) == [7]
    consumer.seek(0)
    assert ids(channel.read(end=5, group="g")) == [1, 2, 3, 4, 5]


def test_a_read_ends_with_the_last_event_of_when_it_was_begun(channel: Channel) -> None:
    reading = channel.read()
    put(channel, b"later")
    assert ids(reading) == list(range(1, 11))


def test_an_empty_channel_has_nothing_to_read(open_channel: Open) -> None:
    channel = open_channel()
    assert list(channel.read()) == list(channel.read(1)) == list(channel.read(timedelta(1))) == []


def test_without_retention_a_read_begins_with_the_first_event_that_is_left(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 10))
    take(channel, 4)
    assert ids(channel.read()) == list(range(5, 11))


def test_lost_events_are_passed_over(channel: Channel) -> None:
    lose(channel, 4, 6)
    assert ids(channel.read()) == [1, 2, 3, 7, 8, 9, 10]
    reading = channel.read(max_bytes=1)
    next(reading)
    lose(channel, 9, 9)
    assert ids(reading) == [3, 7, 8, 10]


def test_what_memory_has_freed_ahead_of_others_is_passed_over(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=1000)
    for body in (b"a", b"b", b"c"):
        put(channel, *[body * 200_000] * 3)
    consumer = channel.consumer("g")
    consumer.claim(3)
    consumer.commit(consumer.claim(3))
    assert ids(channel.read()) == [1, 2, 3, 7, 8, 9]


# ── bad input ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"start": 12}, "the event 12 is after the next event of .*, 11"),
        ({"start": 0}, "no event has the ID 0"),
        ({"end": 11}, "has no event 11 yet; its last one is 10"),
        ({"end": 0}, "a read of .* can't end with 0: give a write-order ID"),
        ({"end": "latest"}, "can't end with 'latest'"),
        ({"end": True}, "can't end with True"),
        ({"start": 8, "end": 3}, "can't start with the event 8 and end with the event 3"),
        ({"start": "latest", "end": 9}, "can't start with the event 11 and end with the event 9"),
        ({"start": 2, "end": "1h"}, "can't start with the event 2 and end before the first event"),
        ({"start": "0s", "end": 4}, "can't start with the event 11 and end with the event 4"),
        ({"start": "1h", "end": "2h"}, "can't start at '1h' and end earlier, at '2h'"),
        (
            {"start": timedelta(hours=1), "end": timedelta(days=2)},
            "can't start at 1:00:00 ago and end earlier, at 2 days, 0:00:00 ago",
        ),
        (
            {"start": datetime(2026, 1, 2, tzinfo=UTC), "end": datetime(2026, 1, 1, tzinfo=UTC)},
            r"can't start at 2026-01-02T00:00:00\+00:00 and end earlier, at 2026-01-01T00:00:00\+00:00",
        ),
        ({"start": datetime(2026, 1, 1)}, "a time without a zone"),
        ({"end": datetime(2026, 1, 1)}, "a time without a zone"),
        ({"end": timedelta(-1)}, "a timedelta says how far back from now"),
        ({"group": "G"}, "has no group 'G'; its groups are: 'g'"),
        ({"max_bytes": 0}, "max_bytes must be bytes, or a number with KiB, MiB, GiB or TiB; 1 or more, not 0"),
    ],
    ids=repr,
)
def test_what_cannot_be_read_is_refused_by_the_call_itself(channel: Channel, how: Any, why: str) -> None:
    with pytest.raises(OptionError, match=why):
        channel.read(**how)


def test_events_before_the_first_kept_one_are_data_loss_which_names_it(channel: Channel) -> None:
    let_go(channel, 4)
    for how in ({"start": 2}, {"end": 2}):
        with pytest.raises(DataLossError, match=r"the events 2 to 4 have left .* the first event that it keeps is 5\."):
            channel.read(**how)  # type: ignore[arg-type]


# ── while the channel changes ───────────────────────────────────────────────────────────────────


def test_events_that_leave_meanwhile_are_data_loss_which_names_them(long: Channel) -> None:
    reading = long.read(max_bytes=1)
    assert ids(itertools.islice(reading, 1)) == [1, 2]
    let_go(long, 7)
    message = "the events 5 to 7 left the channel before they were read; the first kept event is now 8"
    with pytest.raises(DataLossError, match=message):
        ids(reading)
    assert ids(long.read()) == [8, 9, 10]


def test_events_that_every_group_takes_meanwhile_are_data_loss_without_retention(open_channel: Open) -> None:
    channel = open_channel()
    for _ in range(30):
        put(channel, b"x" * 300_000)
    reading = channel.read(max_bytes=1)
    next(reading)
    take(channel, 25)
    with pytest.raises(DataLossError, match=r"events \d+ to 25 left .*; the first kept event is now 26"):
        ids(reading)


@pytest.mark.parametrize("when", ["before the first", "between", "within"])
@pytest.mark.parametrize("inline", [1 << 20, 0], ids=["log", "segments"])
def test_events_that_move_to_disk_meanwhile_are_found_there(open_channel: Open, when: str, inline: int) -> None:
    channel = open_channel(memory_capacity=1000, max_inline_bytes=inline)
    for i in range(0, 40, 4):
        put(channel, *numbered(i, 4))
    reading = channel.read(max_bytes=1)
    found = [] if when == "before the first" else bodies(itertools.islice(reading, 1))
    if when == "within":  # the reader has begun the extent's file
        found += bodies(itertools.islice(reading, 2))
    channel.flush()
    assert channel.stats().memory.events == 0
    assert found + bodies(reading) == numbered(0, 40)


def test_events_whose_memory_is_used_again_are_found_on_disk(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel(memory_capacity=1000)
    put(channel, *numbered(0, 10))
    put(channel, *numbered(10, 10))
    real, failed = EventReader.read, list[bool]()

    def moved(self: EventReader, extent: Any) -> Iterator[Any]:
        if failed:
            yield from real(self, extent)
            return
        failed.append(True)
        yield next(iter(real(self, extent)))
        channel.flush()
        raise CorruptionError("a frame is damaged")

    monkeypatch.setattr(EventReader, "read", moved)
    assert bodies(channel.read()) == numbered(0, 20)


def test_a_long_read_looks_at_the_log_now_and_then_and_says_each_time_what_it_will_read(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel()
    for _ in range(40):
        put(channel, b"x" * 300_000)
    assert len(channel.engine().state.blocks) == 40
    looks, expected, follower = list[int](), list[list[int]](), channel.engine().follower
    follow = follower.follow
    monkeypatch.setattr(follower, "follow", lambda **how: (looks.append(1), follow(**how))[1])
    monkeypatch.setattr(EventReader, "expect", lambda _, extents: expected.append([e.first_id for e in extents]))
    reading = channel.read()
    looks.clear()
    assert ids(reading) == list(range(1, 41))
    assert expected == [[*range(1, 17)], [*range(17, 33)], [*range(33, 41)]]
    assert len(looks) == 2, "the call itself has looked before the first"


def test_events_that_another_handle_moves_between_two_looks_are_found_there(open_channel: Open) -> None:
    channel, other = open_channel(memory_capacity=1000), open_channel()
    for i in range(10):
        put(channel, b"%d" % i * 300_000)
    reading = channel.read(max_bytes=1)
    found = bodies(itertools.islice(reading, 1))
    other.flush()
    other.checkpoint()
    assert found + bodies(reading) == [b"%d" % i * 300_000 for i in range(10)]


def test_events_that_another_handle_lets_go_between_two_looks_are_read_or_data_loss(open_channel: Open) -> None:
    channel, other = open_channel(max_file_size=400_000, spare_bytes=0), open_channel()
    for _ in range(40):
        put(channel, b"x" * 300_000)
    reading = channel.read(max_bytes=1)
    found = ids(itertools.islice(reading, 1))
    take(other, 30)
    other.checkpoint()
    with pytest.raises(DataLossError, match=r"to 30 left .*; the first kept event is now 31"):
        for batch in reading:
            found += batch["write_order_id"].to_pylist()
    assert found == list(range(1, len(found) + 1))


def test_damage_is_an_error_and_not_a_gap(path: Path, long: Channel) -> None:
    reading = long.read(max_bytes=1)
    log = log_file(path)
    data = log.read_bytes()
    log.write_bytes(data.replace(b"6" * 150_000, b"5" + b"6" * 149_999))
    with pytest.raises(CorruptionError, match="a frame is damaged among the events 7 to 8"):
        list(reading)


def test_a_closed_channel_ends_a_read(long: Channel) -> None:
    reading = long.read(max_bytes=1)
    next(reading)
    long.close()
    with pytest.raises(ChannelClosedError):
        list(reading)
    with pytest.raises(ChannelClosedError):
        long.read()


def test_an_abandoned_read_leaves_no_file_open(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[EventReader] = []
    real = EventReader.close
    monkeypatch.setattr(EventReader, "close", lambda self: (closed.append(self), real(self))[1])
    reading = channel.read(max_bytes=1)
    next(reading)
    reading.close()  # type: ignore[attr-defined]
    assert len(closed) == 1


# ── batches ─────────────────────────────────────────────────────────────────────────────────────


def test_small_batches_are_joined_and_large_ones_come_as_they_were_put(open_channel: Open) -> None:
    channel = open_channel()
    for body in numbered(0, 100):
        put(channel, body)
    put(channel, *[b"x" * 1000] * 100)
    put(channel, b"last")
    assert [b.num_rows for b in channel.read()] == [201]
    assert [b.num_rows for b in channel.read(max_bytes=50_000)] == [100, 100, 1]
    assert {b.num_rows for b in channel.read(max_bytes=1)} == {1, 100}


def test_a_read_holds_a_part_of_a_long_channel_only(open_channel: Open) -> None:
    fs = FaultyFileSystem()
    channel = open_channel(fs=fs)
    for _ in range(40):
        put(channel, *[b"x" * 10_000] * 50)
    channel.checkpoint()
    before = fs.read_bytes
    reading = channel.read()
    assert next(reading).num_rows <= 105
    assert fs.read_bytes - before < 5 << 20
    assert sum(b.num_rows for b in reading) >= 1895


@pytest.mark.parametrize("name", ["string_view", "runs", "map", "uuid in runs"])
def test_batches_of_any_type_are_joined_where_arrow_can(tmp_path: Path, name: str) -> None:
    column = LEAVES[name] if name in LEAVES else dict(nested(LEAVES["uuid"]))["runs"]
    schema = pa.schema([pa.field("x", column.type)])
    with Channel(tmp_path / "c", schema=schema, minimum_required_space=0) as channel:
        for _ in range(3):
            with channel.put_transaction() as tx:
                tx.put_batch(pa.RecordBatch.from_arrays([column], schema=schema))
        batches = list(channel.read())
        with channel.take_transaction() as take:
            taken = take.take_batch(9)
    assert taken is not None and pa.Table.from_batches(batches).to_pylist() == taken.to_pylist()


def test_batches_have_the_newest_schema_and_the_ids(tmp_path: Path) -> None:
    old = pa.schema([pa.field("a", pa.int64())])
    new = pa.schema([pa.field("a", pa.int64()), pa.field("b", pa.string())])
    with Channel(tmp_path / "c", schema=old, minimum_required_space=0) as channel:
        with channel.put_transaction() as tx:
            tx.put_batch(pa.RecordBatch.from_pydict({"a": [1, 2]}, old))
        channel.evolve(new)
        with channel.put_transaction() as tx:
            tx.put_batch(pa.RecordBatch.from_pydict({"a": [3], "b": ["x"]}, new))
        for max_bytes in (1, 1 << 20):
            batches = list(channel.read(max_bytes=max_bytes))
            assert {tuple(b.schema.names) for b in batches} == {("a", "b", "write_order_id")}
            assert pa.Table.from_batches(batches).to_pylist() == [
                {"a": 1, "b": None, "write_order_id": 1},
                {"a": 2, "b": None, "write_order_id": 2},
                {"a": 3, "b": "x", "write_order_id": 3},
            ]
        with channel.take_transaction() as take:
            table = take.take_batch(10)
        assert table is not None and table.schema == batches[0].schema


# ── handles ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("memory", [0, 100])
@pytest.mark.parametrize("open_elsewhere", [True, False])
def test_a_handle_that_only_looks_reads_too(open_channel: Open, path: Path, memory: int, open_elsewhere: bool) -> None:
    channel = open_channel(memory_capacity=memory, retention_ms=HOUR_MS)
    put(channel, *numbered(0, 10))
    take(channel, 5)
    if not open_elsewhere:
        channel.close()
    with Channel(path, readonly=True) as view:
        reading = view.read(max_bytes=1)
        assert bodies(view.read(2, 8)) == numbered(1, 7)
        if open_elsewhere:
            channel.close()
        assert bodies(reading) == numbered(0, 10)


def test_what_is_left_of_a_lost_memory_tier_is_read(open_channel: Open, path: Path) -> None:
    with open_channel(memory_capacity=5, overflow_timeout=0, flush_on_close=False) as channel:
        put(channel, *numbered(0, 5))
        put(channel, *numbered(5, 5))
    lose_memory(path)
    with pytest.warns(UserWarning):
        channel = open_channel()
    assert ids(channel.read())[:5] == [6, 7, 8, 9, 10]
