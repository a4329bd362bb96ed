"""The events of a batch in columns: as they were sent, and as they are committed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from spillable_stream import Event
from spillable_stream.channel.event_columns import batch_from_events
from spillable_stream.producer.batch_events import BatchEvents
from spillable_stream.producer.send_times import SendTimes

ROWS = pa.schema([("n", pa.int64())])


def events_for(*, schema: pa.Schema | None = None, ttl_us: int = 0) -> BatchEvents:
    destination: Any = SimpleNamespace(
        typed=schema is not None, ttl_us=ttl_us, target=SimpleNamespace(schema=schema, schemas=lambda: [schema])
    )
    return BatchEvents(destination)


@pytest.fixture
def two() -> BatchEvents:
    """Two events, the second of which has headers."""
    events = events_for()
    events.bodies += [b"a", b"b"]
    events.headers = {1: {"k": "v"}}
    return events


def test_events_are_committed_and_given_back_as_they_were_sent(two: BatchEvents) -> None:
    sent = (Event(b"a"), Event(b"b", {"k": "v"}))
    assert two.encode().equals(batch_from_events(list(sent)))
    assert (two.events(), two.events(1), two.events(0, 1)) == (sent, sent[1:], sent[:1])
    assert two.columns() == ([b"a", b"b"], {1: {"k": "v"}})


def test_an_arrow_batch_stays_one(two: BatchEvents) -> None:
    events = events_for()
    events.record_batch = two.encode()
    assert len(events) == 2 and events.encode() is events.record_batch
    assert events.events(1).equals(events.record_batch.slice(1))  # type: ignore[attr-defined]
    assert events.columns() == two.columns()


def test_rows_are_committed_in_the_columns_of_the_channel() -> None:
    events = events_for(schema=ROWS)
    events.bodies += [{"n": 1}, {"n": 2}]
    assert events.encode().equals(pa.record_batch({"n": [1, 2]}, ROWS))
    assert events.events(1) == ({"n": 2},)


def test_a_seal_counts_what_is_there(two: BatchEvents) -> None:
    assert (two.sealed, two.count) == (False, 0)
    two.seal()
    assert (two.sealed, two.count) == (True, 2)


def test_times_of_neighbours_are_one_run_and_delayed_events_are_counted(two: BatchEvents) -> None:
    assert two.times() is None
    two.bodies += [b"c", b"d"]
    late = SendTimes(0, 5_000)
    two.set_times(1, 1, late)
    two.set_times(2, 1, late)
    assert two.timed is not None and [(run.first, run.events) for run in two.timed] == [(1, 2)]
    two.set_times(3, 1, SendTimes(60_000_000, 0))
    assert len(two.timed) == 2
    assert [two.delayed_before(index) for index in range(4)] == [0, 0, 1, 2]


def test_events_without_times_of_their_own_have_those_of_the_destination() -> None:
    events = events_for(ttl_us=60_000_000)
    events.bodies.append(b"a")
    assert events.times() is not None
