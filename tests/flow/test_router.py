"""Each event of a batch is in the parts of the channels that its headers name, or a dead letter with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream import Channel, Event
from spillable_stream.errors import OptionError, PutTooLargeError
from spillable_stream.flow.event_batch import as_event_batch, events_of
from spillable_stream.flow.event_times import EventTimes
from spillable_stream.flow.interceptors.base import InterceptorChain
from spillable_stream.flow.router import Router
from spillable_stream.flow.selectors import Multiplexing, Replicating, Routes, Selector
from spillable_stream.flow.surroundings import REAL
from tests.support.flow_batches import STILL, Picky, batch_of

SMALL = {"memory_capacity": 9, "overflow_capacity": 0, "byte_capacity": 1 << 20}


@pytest.fixture
def channels(tmp_path: Path) -> Iterator[dict[str, Channel]]:
    found = {"c1": Channel(tmp_path / "c1"), "c2": Channel(tmp_path / "c2", **SMALL), "dead": Channel(tmp_path / "d")}
    yield found
    for channel in found.values():
        channel.close()


def router(
    channels: dict[str, Channel],
    selector: Selector | None = None,
    dead_letter: str | None = "dead",
    times: dict[str, EventTimes] | None = None,
) -> Router:
    selector = Replicating() if selector is None else selector
    selector.bind(("c1", "c2"))
    chain = InterceptorChain([Picky()], STILL)
    return Router("a1.r1", channels, chain, selector, times or {}, dead_letter, STILL)


def bodies(parts: dict[str, pa.RecordBatch]) -> dict[str, list[bytes]]:
    return {name: [event.body for event in events_of(part)] for name, part in parts.items()}


def test_events_are_in_the_parts_that_the_selector_names_and_no_part_is_empty(channels: dict[str, Channel]) -> None:
    selector = Multiplexing("to", {"one": ["c1"]}, default=["c2"])
    parts = router(channels, selector).divide(batch_of(b"x", b"y", to="one"), 1, comes_again=True)
    assert bodies(parts.required) == {"c1": [b"x", b"y"]} and parts.optional == {}
    assert (parts.passed, parts.rejected, parts.times) == (2, 0, {})


def test_what_an_interceptor_and_a_channel_cannot_take_are_dead_letters_of_the_two(
    channels: dict[str, Channel],
) -> None:
    large = bytes(2 << 20)
    parts = router(channels).divide(batch_of(b"x", b"bad", large), 7, comes_again=True)
    assert bodies(parts.required) == {"c1": [b"x", large], "c2": [b"x"], "dead": [b"bad", large]}
    assert (parts.passed, parts.rejected) == (2, 2)
    origins = [event.headers["deadletter.component"] for event in events_of(parts.required["dead"])]
    ids = [event.headers["deadletter.id"] for event in events_of(parts.required["dead"])]
    assert origins == ["a1.r1/Picky", "a1.r1/c2"] and ids == ["a1.r1:7:0", "a1.r1:7:1"]


@pytest.mark.parametrize("comes_again", [True, False])
def test_one_event_that_never_fits_is_stuck_only_if_its_batch_comes_again(
    channels: dict[str, Channel], comes_again: bool
) -> None:
    without = router(channels, dead_letter=None)
    with pytest.raises(PutTooLargeError):
        without.divide(batch_of(bytes(2 << 20)), 7, comes_again=comes_again)
    assert without.stuck.why.startswith("the event a1.r1:7:0 can't pass" if comes_again else "")
    assert bool(without.stuck.why) == comes_again
    without.divide(batch_of(b"x"), 8, comes_again=comes_again)
    assert without.stuck.why == ""


def test_a_wrong_time_is_a_dead_letter_of_its_channel_or_stops_the_batch(channels: dict[str, Channel]) -> None:
    times = {"c1": EventTimes(ttl_header="keep")}
    batch = as_event_batch([Event(b"x", {"keep": "1"}), Event(b"y", {"keep": "long"})])
    parts = router(channels, times=times).divide(batch, 1, comes_again=True)
    assert bodies(parts.required) == {"c1": [b"x"], "c2": [b"x", b"y"], "dead": [b"y"]}
    assert set(parts.times) == {"c1"} and parts.rejected == 1
    stopped = router(channels, dead_letter=None, times=times)
    with pytest.raises(OptionError, match="long"):
        stopped.divide(batch, 2, comes_again=True)
    assert stopped.stuck.why.startswith("the event a1.r1:2:0 can't pass")


def test_a_dead_letter_of_a_batch_without_a_number_has_an_id_that_no_other_run_gives(
    channels: dict[str, Channel],
) -> None:
    """A source such as netcat counts its batches from 0 at each start."""
    ids = []
    for _ in range(2):
        chain, selector = InterceptorChain([Picky()], REAL), Replicating()
        selector.bind(("c1", "c2"))
        run = Router("a1.r1", channels, chain, selector, {}, "dead", REAL)
        for turn in (0, 1):
            parts = run.divide(batch_of(b"bad", b"bad"), turn, comes_again=False)
            ids += [event.headers["deadletter.id"] for event in events_of(parts.required["dead"])]
    assert len(set(ids)) == len(ids) == 8
    assert {(i.split(":")[0], i.split(":")[2]) for i in ids} == {("a1.r1", "0"), ("a1.r1", "1")}


def to(value: str, body: bytes) -> Event:
    return Event(body, {"to": value})


MIXED = {"must": ["c1", "c2"], "may": ["c1"], "all": ["c2"]}


def test_a_channel_that_some_events_must_reach_and_others_may_gets_all_of_them_in_order(
    channels: dict[str, Channel],
) -> None:
    """It has one part of a batch: what it may get, and did not get with that, nobody would put or count."""
    selector = Multiplexing("to", MIXED, optional={"may": ["c2"], "none": ["c2"]})
    events = [to("may", b"1"), to("must", b"2"), to("may", b"3"), to("none", b"4")]
    parts = router(channels, selector).divide(as_event_batch(events), 1, comes_again=True)
    assert bodies(parts.required) == {"c1": [b"1", b"2", b"3"], "c2": [b"1", b"2", b"3", b"4"]}
    assert parts.optional == {}
    parts = router(channels, selector).divide(as_event_batch([to("may", b"1")]), 2, comes_again=True)
    assert (bodies(parts.required), bodies(parts.optional)) == ({"c1": [b"1"]}, {"c2": [b"1"]})


class Both(Selector):
    """Sends each event to c1, which must have the first one, and may have all."""

    def select(self, batch: pa.RecordBatch, number: int) -> Routes:
        return Routes({"c1": pa.array([0])}, {"c1": None, "c2": pa.array([0])})


def test_no_event_is_twice_in_a_channel_that_must_and_may_have_it(channels: dict[str, Channel]) -> None:
    parts = router(channels, Both()).divide(batch_of(b"1", b"2"), 1, comes_again=True)
    assert (bodies(parts.required), bodies(parts.optional)) == ({"c1": [b"1", b"2"]}, {"c2": [b"1"]})


@pytest.mark.parametrize("times", [{}, {"c2": EventTimes(ttl=60.0)}], ids=["timeless", "ttl"])
def test_an_optional_channel_of_dead_letters_gets_both_the_events_and_these(
    channels: dict[str, Channel], times: dict[str, EventTimes]
) -> None:
    divided = router(channels, Replicating(optional=["c2"]), "c2", times)
    parts = divided.divide(batch_of(b"x", b"bad"), 1, comes_again=True)
    assert bodies(parts.required) == {"c1": [b"x"], "c2": [b"x", b"bad"]} and parts.optional == {}
    parts = divided.divide(batch_of(b"bad"), 2, comes_again=True)
    assert bodies(parts.required) == {"c2": [b"bad"]}
    parts = divided.divide(batch_of(b"x"), 3, comes_again=True)
    assert (bodies(parts.required), bodies(parts.optional)) == ({"c1": [b"x"]}, {"c2": [b"x"]})
