"""The times of events in a flow: what is for all of them, and what their headers say."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from spillable_stream import Event, OptionError
from spillable_stream.channel.row_times import RowTimes
from spillable_stream.flow.event_batch import as_event_batch, events_of
from spillable_stream.flow.event_times import EventTimes
from tests.channel.test_cost import python_calls
from tests.support.flow_batches import batch_of

NOW_MS = 1_800_000_000_000


def times_of(times: EventTimes, *headers: dict[str, str]) -> tuple[list[int], list[int]]:
    batch = as_event_batch([Event(b"%d" % i, found) for i, found in enumerate(headers)])
    found = times.divide(batch, NOW_MS)
    assert found.rejected == [] and found.batch.equals(batch)
    ttls, dues = ([v] * batch.num_rows if isinstance(v, int) else v.to_pylist() for v in found.times)
    return ttls, dues


def test_what_is_for_all_events_is_one_value() -> None:
    batch = batch_of(b"1", b"2")
    assert EventTimes().divide(batch, NOW_MS) == (batch, RowTimes(), [])
    times = EventTimes(ttl=timedelta(seconds=1), deliver_after=2)
    assert times.divide(batch, NOW_MS) == (batch, RowTimes(1_000_000, NOW_MS + 2000), [])
    assert [EventTimes(ttl=1).may_delay, times.may_delay, EventTimes(deliver_at_header="at").may_delay] == [
        False, True, True
    ]  # fmt: skip


def test_a_header_says_an_events_ttl_and_goes_before_that_of_all() -> None:
    assert times_of(EventTimes(ttl=9, ttl_header="t"), {"t": "2"}, {}, {"t": "1h"}) == (
        [2_000_000, 9_000_000, 3_600_000_000],
        [0, 0, 0],
    )


def test_the_most_precise_header_says_when_an_event_is_due() -> None:
    times = EventTimes(deliver_after=1, deliver_after_header="after", deliver_at_header="at")
    later = str(NOW_MS + 7)
    _, dues = times_of(
        times, {"at": later, "after": "5"}, {"after": "5"}, {"after": "0.1ms"}, {}, {"after": "0"}, {"at": "1"}
    )
    assert dues == [NOW_MS + 7, NOW_MS + 5000, NOW_MS + 1, NOW_MS + 1000, 0, 0]
    assert times_of(EventTimes(deliver_at_header="at"), {"at": later}, {})[1] == [NOW_MS + 7, 0]


@pytest.mark.parametrize(
    ("times", "header", "wanted"),
    [
        (EventTimes(ttl_header="t"), {"t": "soon"}, "the header t is 'soon'; it must be seconds, or a number with ms"),
        (EventTimes(ttl_header="t"), {"t": "0"}, "more than 0 and at most 100 years"),
        (EventTimes(ttl_header="t"), {"t": "36526d"}, "more than 0 and at most 100 years"),
        (EventTimes(deliver_after_header="t"), {"t": "367d"}, "at most a year"),
        (EventTimes(deliver_at_header="t"), {"t": "2027-01-01"}, "milliseconds since 1970, at most a year from now"),
        (EventTimes(deliver_at_header="t"), {"t": "9" * 15}, "milliseconds since 1970, at most a year from now"),
    ],
)
def test_an_event_with_a_time_that_cannot_be_is_rejected_alone(
    times: EventTimes, header: dict[str, str], wanted: str
) -> None:
    batch = as_event_batch([Event(b"1", {"t": "1"}), Event(b"2", header), Event(b"3")])
    found = times.divide(batch, NOW_MS)
    assert [event.body for event in events_of(found.batch)] == [b"1", b"3"]
    assert all(isinstance(v, int) or len(v) == 2 for v in found.times)
    (rejected,) = found.rejected
    assert (rejected.event.column("body").to_pylist(), rejected.interceptor) == ([b"2"], "t")
    assert wanted in rejected.error


@pytest.mark.parametrize("given", [{"ttl": 0}, {"deliver_after": -1}, {"deliver_after": timedelta(days=367)}])
def test_a_time_for_all_events_that_cannot_be_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        EventTimes(**given)


def test_headers_are_read_without_a_call_for_each_event() -> None:
    times = EventTimes(ttl_header="t", deliver_after_header="a", deliver_at_header="at")
    counts = []
    for count in (10, 10_000):
        batch = batch_of(*[b"x"] * count, t="5", a="7", at=str(NOW_MS))
        times.divide(batch, NOW_MS)  # what is done once
        counts.append(python_calls(lambda batch=batch: times.divide(batch, NOW_MS) and None))  # type: ignore[misc]
    assert abs(counts[1] - counts[0]) <= 4
