"""A chain runs interceptors one after the other, and finds the events that they can't pass."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from hypothesis import given

from spillable_stream import Event
from spillable_stream.errors import OptionError
from spillable_stream.flow.event_batch import Header, as_event_batch, events_of
from spillable_stream.flow.interceptors import base
from spillable_stream.flow.interceptors.base import EventInterceptor, HeaderInterceptor, Interceptor, InterceptorChain
from spillable_stream.flow.interceptors.headers import Static, Timestamp
from spillable_stream.flow.interceptors.regex_filter import RegexFilter
from tests.support.flow_batches import EVENTS, STILL, batch_of, headers_of


class Doubling(Interceptor):
    def intercept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return as_event_batch([e for event in events_of(batch) for e in (event, event)])


class NoB(EventInterceptor):
    """Refuses bodies with a b, and drops empty ones."""

    def intercept(self, event: Event) -> Event | None:
        if b"b" in event.body:
            raise ValueError("a b")
        return Event(event.body.upper(), event.headers) if event.body else None


class Told(HeaderInterceptor):
    def __init__(self, told: list[str], name: str, fails: bool = False) -> None:
        self.told, self.name, self.fails = told, name, fails

    def initialize(self) -> None:
        if self.fails:
            raise RuntimeError(self.name)
        self.told.append(f"+{self.name}")

    def headers(self, batch: pa.RecordBatch) -> list[Header]:
        return [Header(self.name, "1")]

    def close(self) -> None:
        self.told.append(f"-{self.name}")


def test_interceptors_run_in_order_and_stop_where_nothing_is_left() -> None:
    chain = InterceptorChain([NoB(), Doubling(), RegexFilter("^X")])
    assert [e.body for e in events_of(chain.intercept([Event(b"x"), Event(b""), Event(b"y")]))] == [b"X", b"X"]
    assert InterceptorChain([RegexFilter("nothing"), NoB()]).intercept(batch_of(b"b")).num_rows == 0


def test_neighbours_that_set_headers_are_one_pass_and_a_later_one_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    real = base.add_headers
    monkeypatch.setattr(base, "add_headers", lambda batch, added: calls.append(len(added)) or real(batch, added))
    chain = InterceptorChain(
        [Static(key="a", value="1"), Timestamp(), Static(key="a", value="2", preserve_existing=False)], STILL
    )
    assert headers_of(chain.intercept(batch_of(b"x"))) == [{"a": "2", "timestamp": "1700000000123"}]
    assert calls == [3]


@given(EVENTS)
def test_screening_parts_events_into_those_that_pass_and_those_that_can_not(events: list[Event]) -> None:
    passed, rejected = InterceptorChain([NoB()]).screen(events)
    assert events_of(passed) == [Event(e.body.upper(), e.headers) for e in events if e.body and b"b" not in e.body]
    assert [events_of(r.event) for r in rejected] == [[e] for e in events if b"b" in e.body]
    assert all(r.interceptor == "NoB" and r.error == "ValueError: a b" for r in rejected)


def test_without_screening_what_an_interceptor_raises_is_raised() -> None:
    with pytest.raises(ValueError, match="a b"):
        InterceptorChain([NoB()]).intercept(batch_of(b"b"))


def test_interceptors_are_closed_where_a_later_one_cannot_be_initialized() -> None:
    told: list[str] = []
    with pytest.raises(RuntimeError, match="two"):
        InterceptorChain([Told(told, "one"), Told(told, "two", fails=True)]).initialize()
    assert told == ["+one", "-one"]


def test_batches_are_run_through_between_initialize_and_close() -> None:
    told: list[str] = []
    chain = InterceptorChain([Told(told, "one")])
    assert [headers_of(b) for b in chain.apply(iter([batch_of(b"x"), batch_of(b"y")]))] == [
        [{"one": "1"}],
        [{"one": "1"}],
    ]
    assert told == ["+one", "-one"]


def test_a_chain_goes_to_other_processes() -> None:
    chain = pickle.loads(pickle.dumps(InterceptorChain([RegexFilter("x"), Static()])))
    assert headers_of(chain.intercept(batch_of(b"x", b"y"))) == [{"key": "value"}]


def test_something_else_is_not_an_interceptor() -> None:
    with pytest.raises(OptionError, match="must be an Interceptor or an EventInterceptor, not 'timestamp'"):
        InterceptorChain(["timestamp"])  # type: ignore[list-item]


@pytest.mark.parametrize("kind", [Interceptor, EventInterceptor, HeaderInterceptor])
def test_a_class_without_its_method_says_so(kind: type) -> None:
    with pytest.raises(NotImplementedError, match=kind.__name__):
        kind().intercept(batch_of(b"x"))


class Ends(Interceptor):
    """Notes that it was closed, and raises."""

    def __init__(self, ended: list[int], number: int) -> None:
        self.ended, self.number = ended, number

    def initialize(self) -> None:
        if self.number == 4:
            raise ZeroDivisionError

    def close(self) -> None:
        self.ended.append(self.number)
        raise ValueError(self.number)


def test_an_interceptor_that_cannot_be_closed_keeps_no_other_one_open() -> None:
    ended: list[int] = []
    with pytest.raises(ValueError):
        InterceptorChain([Ends(ended, 1), Ends(ended, 2), Ends(ended, 3)]).close()
    assert ended == [1, 2, 3]
    ended.clear()
    with pytest.raises(ZeroDivisionError):
        InterceptorChain([Ends(ended, 1), Ends(ended, 2), Ends(ended, 4)]).initialize()
    assert sorted(ended) == [1, 2]
