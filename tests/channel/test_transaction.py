"""Transactions: Flume's state rules, capacities, batches."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spillable_stream import (
    Channel,
    Event,
    StorageError,
    TransactionStateError,
)
from spillable_stream.channel.transaction import State
from spillable_stream.format.batch import EVENT_SCHEMA
from tests.support.events import ids, numbered, peek, put, take
from tests.support.fake_files import FaultyFileSystem, nth

Open = Callable[..., Channel]
BOTH = pytest.mark.parametrize("kind", ["put_transaction", "take_transaction"])


def transaction(channel: Channel, kind: str, state: State) -> Any:
    tx = getattr(channel, kind)()
    if state is not State.NEW:
        tx.begin()
    if state is State.COMPLETED:
        tx.commit()
    if state is State.CLOSED:
        tx.rollback()
        tx.close()
    assert tx.state is state
    return tx


# ── states ──────────────────────────────────────────────────────────────────────────────────────

ALLOWED = {
    "begin": {State.NEW},
    "commit": {State.OPEN},
    "rollback": {State.OPEN},
    "close": {State.NEW, State.COMPLETED, State.CLOSED},
}


@BOTH
@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("call", ALLOWED)
def test_a_call_in_a_wrong_state_is_refused_and_changes_nothing(
    open_channel: Open, kind: str, state: State, call: str
) -> None:
    tx = transaction(open_channel(), kind, state)
    if state in ALLOWED[call]:
        getattr(tx, call)()
        return
    with pytest.raises(TransactionStateError, match=rf"{call}\(\)"):
        getattr(tx, call)()
    assert tx.state is state


@pytest.mark.parametrize("state", [State.NEW, State.COMPLETED, State.CLOSED])
def test_events_move_only_in_an_open_transaction(open_channel: Open, state: State) -> None:
    channel = open_channel()
    with pytest.raises(TransactionStateError, match=f"this one is {state.value}"):
        transaction(channel, "put_transaction", state).put(Event(b"x"))
    with pytest.raises(TransactionStateError, match=f"this one is {state.value}"):
        transaction(channel, "take_transaction", state).take(0)


def test_puts_and_takes_never_mix(open_channel: Open) -> None:
    channel = open_channel()
    putting, taking = (transaction(channel, k, State.OPEN) for k in ("put_transaction", "take_transaction"))
    for call in (putting.take, putting.take_many, putting.take_batch, taking.put, taking.put_many, taking.put_batch):
        with pytest.raises(TransactionStateError, match="puts and takes never mix"):
            call(1)
    assert putting.state is taking.state is State.OPEN


@BOTH
def test_an_empty_commit_is_fine_and_writes_nothing(open_channel: Open, kind: str) -> None:
    channel = open_channel()
    head = channel.engine().log.lock.published()
    transaction(channel, kind, State.COMPLETED).close()
    assert channel.engine().log.lock.published() == head


@BOTH
def test_a_transaction_belongs_to_its_thread(open_channel: Open, kind: str) -> None:
    tx = transaction(open_channel(), kind, State.OPEN)
    caught: list[BaseException] = []

    def commit() -> None:
        try:
            tx.commit()
        except TransactionStateError as e:
            caught.append(e)

    thread = threading.Thread(target=commit)
    thread.start()
    thread.join()
    assert "begin one in each thread and process" in str(caught[0])
    tx.commit()


def test_a_with_block_commits_on_a_clean_exit_and_rolls_back_on_an_error(open_channel: Open) -> None:
    channel = open_channel()
    with channel.put_transaction() as kept:
        kept.put(Event(b"kept"))
    with pytest.raises(ZeroDivisionError), channel.put_transaction() as undone:
        undone.put(Event(b"undone"))
        raise ZeroDivisionError
    assert kept.state is undone.state is State.CLOSED
    with pytest.raises(ZeroDivisionError), channel.take_transaction() as undone_take:
        assert undone_take.take().body == b"kept"  # type: ignore[union-attr]
        raise ZeroDivisionError
    assert peek(channel) == [b"kept"]


def test_a_failed_commit_can_be_rolled_back(open_channel: Open) -> None:
    fs = FaultyFileSystem()
    channel = open_channel(fs=fs)
    tx = transaction(channel, "put_transaction", State.OPEN)
    tx.put(Event(b"x"))
    with fs.failing(nth("write", 1)), pytest.raises(StorageError):
        tx.commit()
    assert tx.state is State.OPEN
    tx.rollback()
    tx.close()
    assert peek(channel) == []


def test_a_failed_commit_can_be_tried_again(open_channel: Open) -> None:
    fs = FaultyFileSystem()
    channel = open_channel(fs=fs)
    with channel.put_transaction() as tx:
        tx.put(Event(b"x"))
        with fs.failing(nth("sync", 1)), pytest.raises(StorageError):
            tx.commit()
    with channel.take_transaction() as taking:
        assert taking.take(0).body == b"x"  # type: ignore[union-attr]
        with fs.failing(nth("write", 1)), pytest.raises(StorageError):
            taking.commit()
    assert peek(channel) == []


# ── order and isolation ─────────────────────────────────────────────────────────────────────────


def test_events_come_out_as_they_were_committed(open_channel: Open) -> None:
    channel = open_channel()
    first, second = (transaction(channel, "put_transaction", State.OPEN) for _ in range(2))
    first.put(Event(b"begun first"))
    second.put(Event(b"committed first"))
    second.commit()
    first.commit()
    assert take(channel) == [b"committed first", b"begun first"]


def test_what_is_not_committed_is_seen_by_nobody(open_channel: Open) -> None:
    channel = open_channel()
    tx = transaction(channel, "put_transaction", State.OPEN)
    tx.put(Event(b"x"))
    assert peek(channel) == []
    tx.rollback()
    assert (peek(channel), channel.stats().last_id) == ([], 0)


def test_a_committed_transaction_tells_its_ids(open_channel: Open) -> None:
    channel = open_channel()
    assert put(channel, *numbered(0, 3)) == (1, 3)
    assert put(channel, *numbered(3, 2)) == (4, 5)
    assert ids(channel) == [1, 2, 3, 4, 5]


# ── capacities ──────────────────────────────────────────────────────────────────────────────────


# ── sizes ───────────────────────────────────────────────────────────────────────────────────────


# ── staged files whose sync failed ──────────────────────────────────────────────────────────────


# ── batches and typed channels ──────────────────────────────────────────────────────────────────

SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("s", pa.string())])


def test_rows_of_a_typed_channel_read_back(open_channel: Open) -> None:
    channel = open_channel(schema=SCHEMA)
    with channel.put_transaction() as tx:
        tx.put({"n": 1, "s": "a"})
        tx.put_batch(pa.table({"s": ["b", None], "n": [2, 3]}))
        tx.put_many([{"n": 4}])
    with channel.take_transaction() as tx:
        assert tx.take() == {"n": 1, "s": "a"}
        table = tx.take_batch(10)
        assert table is not None
        assert table.to_pydict() == {"n": [2, 3, 4], "s": ["b", None, None], "write_order_id": [2, 3, 4]}
        assert tx.take_batch(1) is None


def test_event_batches_read_back(open_channel: Open) -> None:
    channel = open_channel()
    with channel.put_transaction() as tx:
        tx.put(Event(b"0", {"k": "v"}))
        tx.put_batch(pa.RecordBatch.from_pylist([{"headers": None, "body": b"1"}], EVENT_SCHEMA))
    with channel.take_transaction() as tx:
        assert tx.take_many(5) == [Event(b"0", {"k": "v"}), Event(b"1")]


def test_what_was_taken_from_one_channel_can_be_put_into_another_as_it_is(open_channel: Open, tmp_path: Path) -> None:
    channel = open_channel(schema=SCHEMA)
    with channel.put_transaction() as tx:
        tx.put_many([{"n": 1}, {"n": 2}])
    with (
        Channel(tmp_path / "other", schema=SCHEMA) as other,
        channel.take_transaction() as taking,
        other.put_transaction() as putting,
    ):
        table = taking.take_batch(10)
        assert table is not None
        putting.put_batch(table)
    with Channel(tmp_path / "other") as other, other.take_transaction() as tx:
        assert [row["n"] for row in tx.take_many(10)] == [1, 2]


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compressed_channels_read_back(open_channel: Open, compression: str) -> None:
    channel = open_channel(compression=compression)
    put(channel, *[b"the same again"] * 1000)
    assert peek(channel) == [b"the same again"] * 1000
    assert channel.stats().disk.payload_bytes < 5000


# ── what a review found ─────────────────────────────────────────────────────────────────────────


@BOTH
def test_a_transaction_cannot_be_copied(open_channel: Open, kind: str) -> None:
    """The copy would put the same events once more, or, when it is gone, give back what this one has taken."""
    channel = open_channel()
    put(channel, b"1")
    with getattr(channel, kind)() as tx:
        with pytest.raises(TypeError, match=r"a (Put|Take)Transaction can't be copied or pickled"):
            copy.copy(tx)
        tx.rollback()
