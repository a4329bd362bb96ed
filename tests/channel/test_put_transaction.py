"""Put transactions."""

from __future__ import annotations

import os
import re
import threading
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pytest

from spillable_stream import (
    Channel,
    CommitOutcomeUnknownError,
    DiskSpaceError,
    Event,
    OptionError,
    PutTooLargeError,
    SchemaError,
    StorageError,
    TransactionCapacityError,
    TransactionStateError,
)
from spillable_stream.channel.row_times import RowTimes
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.format.frame import Payload
from spillable_stream.storage.file import File
from tests.support.events import numbered, peek, put, take
from tests.support.expiry import WallClock
from tests.support.fake_files import FaultyFileSystem, nth

Open = Callable[..., Channel]
SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("s", pa.string())])
NESTED = pa.schema(
    [("id", pa.int64()), ("s", pa.struct([("x", pa.int64()), ("y", pa.int64())])), ("l", pa.list_(pa.float64()))]
)


def test_a_put_beyond_the_transaction_capacity_is_refused_whole(open_channel: Open) -> None:
    channel = open_channel(transaction_capacity=5)
    with channel.put_transaction() as tx:
        tx.put_many([Event(b"a")] * 3)
        with pytest.raises(TransactionCapacityError, match="would hold 6 events, but transaction_capacity is 5"):
            tx.put_many([Event(b"b")] * 3)
        tx.put_many([Event(b"c")] * 2)
    assert peek(channel, 5) == [b"a"] * 3 + [b"c"] * 2


def test_a_put_of_a_slice_of_views_stores_its_own_rows_alone(open_channel: Open) -> None:
    texts = pa.array([f"{i} {'x' * 1000}" for i in range(1000)], pa.string_view())
    whole = pa.record_batch({"text": texts, "in_lists": pa.array([[text] for text in texts], pa.list_(texts.type))})
    channel = open_channel(schema=whole.schema)
    for i in range(50):
        with channel.put_transaction() as tx:
            tx.put_batch(whole.slice(i * 10, 2))
    assert channel.engine().positions.disk.offset < 4 * 50 * 2 * 2000
    with channel.take_transaction() as take_tx:
        rows = take_tx.take_batch(100)
    assert rows is not None
    assert rows.column("text").to_pylist() == [texts[i * 10 + k].as_py() for i in range(50) for k in range(2)]


def event_batch(bodies: list[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"headers": {}, "body": body} for body in bodies], EVENT_SCHEMA)


def test_one_event_that_is_larger_than_the_memory_of_a_channel_without_a_disk_tier_does_not_wait(
    open_channel: Open,
) -> None:
    channel = open_channel(memory_capacity=10, overflow_capacity=0, byte_capacity=1 << 20, keep_alive=1e9)
    with pytest.raises(PutTooLargeError) as caught:
        put(channel, bytes(1 << 20))
    message = str(caught.value)
    assert "1 event does not fit (1,04" in message and "memory holds at most 10 events and 838,860 bytes" in message
    assert message.endswith("Raise byte_capacity, or put smaller events")


def test_whether_a_batch_can_fit_is_told_before_it_is_put(open_channel: Open) -> None:
    small = open_channel(memory_capacity=3, overflow_capacity=0, byte_capacity=1 << 20)
    put(small, b"x" * 800_000)  # what is there does not count
    with small.put_transaction() as tx:
        tx.require_fit(event_batch([b"x" * 300_000] * 2))
        for too_large in ([b"x" * 300_000] * 3, [b"x"] * 4):
            with pytest.raises(PutTooLargeError, match="put fewer at once"):
                tx.require_fit(event_batch(too_large))
        assert tx.count == 0


def test_a_put_waits_keep_alive_for_room(open_channel: Open) -> None:
    channel = open_channel(overflow_capacity=10, keep_alive=60)
    put(channel, *numbered(0, 10))
    thread = threading.Timer(0.1, lambda: take(channel, 5))
    thread.start()
    put(channel, *numbered(10, 5))
    thread.join()
    assert take(channel) == numbered(5, 10)


def test_rolled_back_puts_give_back_what_they_held(open_channel: Open) -> None:
    channel = open_channel(overflow_capacity=10, keep_alive=0)
    for _ in range(3):
        tx = channel.put_transaction()
        tx.begin()
        tx.put_many(Event(b) for b in numbered(0, 10))
        tx.rollback()
    put(channel, *numbered(0, 10))


@pytest.mark.parametrize("max_inline_bytes", [0, 4 << 20, 1 << 30])
def test_bodies_of_nothing_and_of_64_mebibytes(open_channel: Open, max_inline_bytes: int) -> None:
    channel = open_channel(max_inline_bytes=max_inline_bytes)
    large = bytes(range(256)) * (64 << 12)
    bodies = [b"", large, b"", b"x"]
    put(channel, *bodies)
    assert peek(channel) == bodies
    assert take(channel, 2) == bodies[:2]
    assert take(channel) == bodies[2:]


def test_a_transaction_larger_than_any_buffer_is_staged_and_whole(open_channel: Open) -> None:
    channel = open_channel(transaction_capacity=200_000, max_inline_bytes=10_000)
    bodies = numbered(0, 50_000)
    put(channel, b"before")
    put(channel, *bodies)
    put(channel, b"after")
    assert channel.stats().segments == 1
    assert take(channel, 200_000) == [b"before", *bodies, b"after"]


def test_a_staged_transaction_that_is_rolled_back_leaves_no_file(open_channel: Open) -> None:
    channel = open_channel(max_inline_bytes=1000)
    with channel.put_transaction() as tx:
        tx.put_batch(pa.RecordBatch.from_pylist([{"headers": [], "body": bytes(5000)}], EVENT_SCHEMA))
        assert channel.stats().segments == 1
        tx.rollback()
    assert channel.stats().segments == 0


def test_a_segment_whose_commit_failed_is_removed_by_a_checkpoint(open_channel: Open) -> None:
    """A commit that failed may still count, so that rolling back must not remove its events."""
    fs = FaultyFileSystem()
    channel = open_channel(fs=fs, max_inline_bytes=1000)
    put(channel, b"whole", bytes(2000))
    with channel.put_transaction() as tx:
        tx.put(Event(bytes(5000)))
        with fs.failing(nth("sync", 1, "log")), pytest.raises(StorageError):
            tx.commit()
        tx.rollback()
    assert channel.stats().segments == 2
    channel.checkpoint()
    assert channel.stats().segments == 1
    assert peek(channel) == [b"whole", bytes(2000)]


@pytest.mark.parametrize("deliver_after", [None, 60])
def test_what_was_staged_for_a_commit_that_a_full_disk_refused_is_removed_at_once(
    open_channel: Open, deliver_after: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each attempt took more of a disk that has no room, until the next checkpoint."""
    channel, real = open_channel(max_inline_bytes=1000), File.write

    def refuse(self: File, offset: int, buffers: Sequence[Payload]) -> int:
        if self.path.name.startswith("log-"):
            raise DiskSpaceError("the disk is full")
        return real(self, offset, buffers)

    put(channel, b"there")
    with monkeypatch.context() as full:
        full.setattr(File, "write", refuse)
        with pytest.raises(DiskSpaceError), channel.put_transaction() as tx:
            tx.put(Event(bytes(5000)), deliver_after=deliver_after)
    assert channel.stats().segments == 0
    assert take(channel) == [b"there"]


def test_a_refusal_removes_nothing_that_an_earlier_attempt_may_have_stored(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel(max_inline_bytes=1000)
    engine, errors = channel.engine(), [DiskSpaceError("full"), StorageError("late")]

    def commit(*arguments: Any) -> NoReturn:
        if len(errors) == 2:
            real(*arguments)
        raise errors.pop()

    tx, real = channel.put_transaction(), engine.commit
    tx.begin()
    tx.put(Event(bytes(5000)))
    with monkeypatch.context() as patch:
        patch.setattr(engine, "commit", commit)
        with pytest.raises(StorageError, match="late"):
            tx.commit()
        with pytest.raises(DiskSpaceError):
            tx.commit()
        tx.rollback()
    assert channel.stats().segments == 1
    assert peek(channel) == [bytes(5000)]


def test_what_may_be_stored_is_not_put_again(open_channel: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = open_channel()
    engine, tx = channel.engine(), channel.put_transaction()
    real = engine.commit

    def commit(*arguments: Any) -> NoReturn:
        real(*arguments)
        raise CommitOutcomeUnknownError("nobody knows")

    tx.begin()
    tx.put(Event(b"once"))
    with monkeypatch.context() as patch:
        patch.setattr(engine, "commit", commit)
        with pytest.raises(CommitOutcomeUnknownError):
            tx.commit()
    assert_only_a_rollback_is_left(tx, r"a commit that may be stored \(CommitOutcomeUnknownError: nobody knows\)")
    assert peek(channel) == [b"once"]


def assert_only_a_rollback_is_left(tx: Any, why: str) -> None:
    """The kernel marks what it could not write as clean: another sync of it says that all is well."""
    for call in (tx.commit, lambda: tx.put(Event(b"x"))):
        with pytest.raises(TransactionStateError, match=rf"{why}.*roll it back"):
            call()
    tx.rollback()


@pytest.mark.parametrize("call", ["sync", "sync_directory"])
def test_a_staged_transaction_whose_sync_failed_can_only_be_rolled_back(open_channel: Open, call: str) -> None:
    fs = FaultyFileSystem()
    channel = open_channel(fs=fs, max_inline_bytes=0)
    with channel.put_transaction() as tx:
        tx.put(Event(b"x"))
        with fs.failing(nth(call, 1)), pytest.raises(StorageError):
            tx.commit()
        assert_only_a_rollback_is_left(tx, call)
    assert channel.stats().segments == 0
    assert peek(channel) == []


def staged_in_memory(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a transaction that was staged in memory, where there is no room for it by now."""
    from spillable_stream.channel import put_buffer as module

    monkeypatch.setattr(module, "_INLINE_MEMORY_BYTES", 0)
    put(channel, b"so that there is a memory tier")
    tx = channel.put_transaction().__enter__()
    for i in range(8):
        tx.put_batch(pa.RecordBatch.from_pylist([{"headers": [], "body": b"%d" % i}], EVENT_SCHEMA))
    put(channel, *numbered(0, 5))
    return tx


@pytest.mark.parametrize("call", ["sync", "write", "rename", "sync_directory"])
def test_a_transaction_that_could_not_be_copied_from_memory_to_disk_can_only_be_rolled_back(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    fs = FaultyFileSystem()
    channel = open_channel(fs=fs, max_inline_bytes=0, memory_capacity=10, overflow_timeout=0)
    tx = staged_in_memory(channel, monkeypatch)
    file = "data" if call == "sync_directory" else "segment"
    with fs.failing(nth(call, 1, file)), pytest.raises(StorageError):
        tx.commit()
    assert not [n for n in (channel.path / "data").iterdir() if n.name.startswith("segment")]
    assert_only_a_rollback_is_left(tx, call)
    assert len(peek(channel)) == 6


def test_a_staged_file_that_could_not_be_copied_is_copied_and_synced_again(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark commits the same staged files again: what a failed copy left does not pass for one."""
    from spillable_stream.engine.put_request import Put

    fs = FaultyFileSystem()
    channel = open_channel(fs=fs, max_inline_bytes=0, memory_capacity=10, overflow_timeout=0)
    tx = staged_in_memory(channel, monkeypatch)
    reference = tx._buffer.segment.finish()
    with fs.failing(nth("sync", 1, "segment")), pytest.raises(StorageError):
        channel.engine().commit(Put([], [reference]))
    fs.calls.clear()
    channel.engine().commit(Put([], [reference]))
    assert fs.count("sync", "segment") == 1
    assert len(peek(channel)) == 14


def test_a_copy_that_was_killed_is_removed_by_a_checkpoint(open_channel: Open, tmp_path: Path) -> None:
    channel = open_channel(data_dirs=[str(tmp_path / d) for d in "abc"])
    for d in "abc":
        (tmp_path / d / "segment.local.0.0123.tmp").write_bytes(b"half of it")
    assert channel.stats().segments == 0
    channel.checkpoint()
    assert not list(tmp_path.glob("*/*.tmp"))


def test_what_does_not_fit_is_refused_and_the_rest_of_the_transaction_stands(open_channel: Open) -> None:
    channel = open_channel(schema=SCHEMA)
    with channel.put_transaction() as tx:
        tx.put({"n": 1})
        for bad in ({"n": None}, {"x": 1}, Event(b"x")):
            with pytest.raises(SchemaError):
                tx.put_many([{"n": 2}, bad])  # type: ignore[list-item]
        with pytest.raises(SchemaError):
            tx.put_batch(pa.record_batch({"n": ["text"]}))
        tx.put({"n": 3})
    with channel.take_transaction() as tx:
        assert [row["n"] for row in tx.take_many(10)] == [1, 3]


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["n", "extra"], "no column 'extra': leave it out, or add it with Channel.evolve"),
        (["N", "s"], "no column 'N'"),
        (["n", "s", "s"], "a column name occurs twice"),
    ],
)
def test_a_batch_with_a_column_that_would_be_passed_over_is_refused(
    open_channel: Open, names: list[str], why: str
) -> None:
    channel = open_channel(schema=pa.schema({"n": pa.int64(), "s": pa.int64()}))
    with channel.put_transaction() as tx:
        for kind in (pa.RecordBatch, pa.Table):
            with pytest.raises(SchemaError, match=why):
                tx.put_batch(kind.from_arrays([pa.array([1])] * len(names), names=names))
        tx.put_batch(pa.table({"n": [3]}))
    with channel.take_transaction() as tx:
        assert tx.take_many(10) == [{"n": 3, "s": None}]


@pytest.mark.parametrize(
    ("column", "why"),
    [
        ({"s": pa.array([{"X": 1, "y": 2, "z": 3}])}, "'s' has another type: its field 'X' is unknown"),
        ({"l": pa.array([["12"]])}, "'l.element' has another type: string does not fit into double"),
        ({"id": pa.array(["12"])}, "'id' has another type: string does not fit into int64"),
        ({"id": pa.array([12.0])}, "'id' has another type: double does not fit into int64"),
    ],
    ids=["names in a struct", "texts in a list", "text", "float"],
)
@pytest.mark.parametrize("rows", [0, 1])
def test_a_batch_that_would_lose_a_part_of_a_value_is_refused_with_both_schemas(
    open_channel: Open, column: dict[str, pa.Array], why: str, rows: int
) -> None:
    channel = open_channel(schema=NESTED)
    with channel.put_transaction() as tx:
        for batch in (pa.table(column).slice(0, rows), pa.record_batch(column).slice(0, rows)):
            with pytest.raises(SchemaError, match=re.escape(why)) as caught:
                tx.put_batch(batch)
            assert "The channel has (id: int64, s: struct<x: int64, y: int64>, l: list<" in str(caught.value)
            assert f"; what is given has ({batch.schema.field(0).name}: {batch.schema.field(0).type})" in str(
                caught.value
            )
        assert tx.count == 0


def test_a_batch_that_is_narrower_and_in_another_order_is_widened_at_every_depth(open_channel: Open) -> None:
    channel = open_channel(schema=NESTED)
    inner = pa.array([{"y": 2, "x": 1}, None, {"y": None, "x": 3}], pa.struct([("y", pa.int8()), ("x", pa.uint32())]))
    batch = pa.record_batch({"l": pa.array([[1, None], None, []], pa.large_list(pa.int32())), "s": inner})
    with channel.put_transaction() as tx:
        tx.put_batch(batch)
        tx.put_batch(pa.table({"s": pa.array([{"y": 5}]), "id": pa.array([1], pa.int8())}))
    with channel.take_transaction() as tx:
        assert tx.take_many(9) == [
            {"id": None, "s": {"x": 1, "y": 2}, "l": [1.0, None]},
            {"id": None, "s": None, "l": None},
            {"id": None, "s": {"x": 3, "y": None}, "l": []},
            {"id": 1, "s": {"x": None, "y": 5}, "l": None},
        ]


def test_after_a_put_that_failed_while_it_was_written_only_a_rollback_is_left(open_channel: Open) -> None:
    """Events of the same buffer are gone with it: nothing may be committed without them."""
    fs = FaultyFileSystem()
    channel = open_channel(fs=fs, max_inline_bytes=0)
    tx = channel.put_transaction()
    tx.begin()
    batch = pa.RecordBatch.from_pylist([{"headers": [], "body": b"1"}, {"headers": [], "body": b"2"}], EVENT_SCHEMA)
    tx.put_batch(batch)
    with fs.failing(nth("write", 1, "segment")), pytest.raises(StorageError):
        tx.put_batch(batch)
    for call in (lambda: tx.put_batch(batch), lambda: tx.put(Event(b"x")), tx.commit):
        with pytest.raises(TransactionStateError, match=r"can't follow a put or a sync that failed.* roll it back"):
            call()
    tx.rollback()
    put(channel, b"x")
    assert peek(channel) == [b"x"]


def test_a_segment_write_that_failed_gives_its_ids_again(open_channel: Open) -> None:
    from spillable_stream.format.batch import encode_batch
    from spillable_stream.log.staged_file import StagedFileWriter

    fs = FaultyFileSystem()
    channel = open_channel(fs=fs)
    writer = StagedFileWriter(fs, channel.engine().layout)
    batch = pa.RecordBatch.from_pylist([{"headers": [], "body": b"1"}], EVENT_SCHEMA)
    with fs.failing(nth("write", 1)), pytest.raises(StorageError):
        writer.write(encode_batch(batch))
    assert (writer.count, writer.payload_bytes) == (0, 0)
    writer.write(encode_batch(batch))
    assert writer.finish().count == 1
    writer.discard()


def numbered_rows(count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"headers": [], "body": b"%d" % i} for i in range(count)], EVENT_SCHEMA)


def test_a_batch_is_put_with_times_of_its_rows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = WallClock(monkeypatch)
    rows = numbered_rows(4)
    with Channel(path) as channel:
        now_ms = clock.now_ns // 1_000_000
        with channel.put_transaction() as tx:
            tx.put(Event(b"first"))
            tx.put_timed(rows, RowTimes(pa.array([0, 1, 0, 0]), pa.array([0, 0, now_ms + 2000, now_ms + 1000])))
            assert tx.count == 5
        assert channel.stats().delayed.events == 2
        clock.pass_by(1.5)
        assert take(channel) == [b"first", b"0", b"3"]  # the ttl of a microsecond is over
        clock.pass_by(1)
        assert take(channel) == [b"2"]
        assert channel.stats().groups["default"].expired_events == 1


def test_times_of_rows_are_refused_where_nothing_can_be_delayed(path: Path) -> None:
    rows = numbered_rows(1)
    with Channel(path, overflow_capacity=0, memory_capacity=10) as channel:
        with pytest.raises(OptionError, match="has no disk tier"), channel.put_transaction() as tx:
            tx.put_timed(rows, RowTimes(0, 1))
        assert channel.stats().channel_size == 0


def test_a_data_frame_can_be_put(open_channel: Open) -> None:
    frame = pa.table({"n": [1, 2], "s": ["a", None]}).to_pandas()
    channel = open_channel(schema=SCHEMA)
    with channel.put_transaction() as tx:
        tx.put_batch(frame)
    assert [row["n"] for row in channel.head(5).rows()] == [1, 2]


@pytest.mark.parametrize("events", [None, 3, "text", b"bytes", bytearray(b"bytes"), {"n": 1}, Event(b"one")])
def test_put_many_takes_an_iterable_of_events(open_channel: Open, events: Any) -> None:
    with open_channel().put_transaction() as tx:
        with pytest.raises(SchemaError, match="put_many takes a list or another iterable of events, not "):
            tx.put_many(events)
        tx.put(Event(b"x"))


@pytest.mark.parametrize(
    "rows", [pa.table({"n": [1]}), pa.table({"n": [1]}).to_pandas()], ids=lambda r: type(r).__name__
)
def test_put_many_names_put_batch_for_rows_of_arrow(open_channel: Open, rows: Any) -> None:
    with open_channel(schema=SCHEMA).put_transaction() as tx, pytest.raises(SchemaError, match="; put_batch takes it"):
        tx.put_many(rows)


def test_a_put_transaction_that_is_forgotten_stores_nothing_and_warns(open_channel: Open) -> None:
    channel = open_channel(max_inline_bytes=4096)
    tx = channel.put_transaction()
    tx.begin()
    tx.put_many([Event(os.urandom(10))] * 8192)
    assert tx._buffer.segment is not None
    staged = channel.engine().layout.segment_file(tx._buffer.segment.name)
    with pytest.warns(ResourceWarning, match=r"a put transaction of .* with 8,192 events was forgotten, but neither"):
        del tx
    channel.checkpoint()
    assert not staged.exists()
    empty = channel.put_transaction()
    empty.begin()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        del empty
    assert not said
    assert take(channel) == []
