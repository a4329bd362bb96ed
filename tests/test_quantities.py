"""Times and sizes: one set of words, for options and for every call."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spillable_stream as ss
from spillable_stream import Channel, Event, OptionError, flow
from spillable_stream.quantities import duration_seconds, is_number, milliseconds, size_bytes, whole_seconds


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (5, 5.0),
        (-1, -1.0),
        (Fraction(1, 4), 0.25),
        pytest.param(10**400, float("inf"), id="huge"),
        ("300", 300.0),
        ("1e-3", 0.001),
        ("500ms", 0.5),
        (" 1.5 H ", 5400.0),
        ("7d", 604_800.0),
        (timedelta(minutes=5), 300.0),
    ],
)
def test_a_time_span_is_a_number_a_text_with_a_unit_or_a_timedelta(value: object, seconds: float) -> None:
    assert duration_seconds(value) == seconds


@pytest.mark.parametrize(
    "value", [None, "", "m", "5 weeks", "5min", "1.2.3s", "-5m", "²s", "nan", True, 1j, [], np.timedelta64(3, "s")]
)
def test_anything_else_is_not_a_time_span(value: object) -> None:
    with pytest.raises(ValueError):
        duration_seconds(value)


def test_what_has_a_unit_is_converted_and_the_rest_left_to_its_check() -> None:
    times = [milliseconds(v) for v in ("2s", "1.4ms", timedelta(hours=1), 5, "5", "-1", "1.5", "soon", None)]
    assert times == [2000, 1, 3_600_000, 5, 5, -1, "1.5", "soon", None]
    sizes = [size_bytes(v) for v in ("64KiB", "2 mib", "1.5GiB", "1TiB", 5, "5", " 4_096 ", "1.5", "64MB", None)]
    assert sizes == [65_536, 2 << 20, 3 << 29, 1 << 40, 5, 5, 4096, "1.5", "64MB", None]
    seconds = [whole_seconds(v) for v in ("2h", "1.15m", "500ms", "1000ms", 5, "5", "soon", None)]
    assert seconds == [7200, 69, "500ms", 1, 5, "5", "soon", None]


def test_a_number_is_any_real_one_and_no_truth_value_or_time_span() -> None:
    assert all(map(is_number, (0, -1.5, float("nan"), Fraction(1, 4), np.float32(2), np.int8(3))))
    for value in (None, True, np.True_, "3", 1j, np.timedelta64(3, "s"), np.timedelta64(3)):
        assert not is_number(value)


def public_parameters() -> Iterator[tuple[str, inspect.Parameter]]:
    """Yield each parameter of what the package and the flow export, with the call's name."""
    for room in (ss, flow):
        for name in room.__all__:
            thing = getattr(room, name)
            if not inspect.isclass(thing):
                calls = {name: thing} if callable(thing) else {}
            elif issubclass(thing, BaseException) and not issubclass(thing, ss.Retry):
                calls = {}
            else:
                own = {m: f for m, f in vars(thing).items() if callable(f) and not m.startswith("_")}
                calls = {f"{name}.{m}": f for m, f in {"__init__": thing.__init__, **own}.items()}
            for call, function in calls.items():
                for parameter in inspect.signature(function).parameters.values():
                    yield call, parameter


TIMES = re.compile(r"_seconds$|^ttl$|^deliver_after$|^after$|^backoff$|^timeout$|_ms$")
NO_TIMES = {"Consumer.prepare", "LoadBalance.__init__", "HttpSink.__init__", "EventTimes.divide"}
RECORDS = re.compile(r"(Stats|Attempt|Result|Progress|Report|Usage|Surroundings|Failures?)\.__init__$|^Producer\.last")


def test_every_public_call_that_takes_a_time_takes_it_in_the_same_words() -> None:
    found = {
        f"{call}({parameter.name})": str(parameter.annotation).removesuffix(" | None")
        for call, parameter in public_parameters()
        if TIMES.search(parameter.name) and call not in NO_TIMES and not RECORDS.search(call)
    }
    assert len(found) > 30
    assert {call: kind for call, kind in found.items() if kind not in ("Duration", "Milliseconds")} == {}


CALLS: dict[str, Callable[[Channel, Any], object]] = {
    "take": lambda c, t: take(c, "take", timeout_seconds=t),
    "take_many": lambda c, t: take(c, "take_many", 1, timeout_seconds=t),
    "take_batch": lambda c, t: take(c, "take_batch", 1, timeout_seconds=t),
    "put ttl": lambda c, t: put(c, ttl=t),
    "put deliver_after": lambda c, t: put(c, deliver_after=t),
    "consumer": lambda c, t: c.consumer("g", owner_timeout_seconds=t).close(),
    "worker": lambda c, t: c.worker("g", print, backoff=t, timeout=t).run(until_empty=True, stop_timeout_seconds=t),
    "retry": lambda _, t: ss.Retry(after=t),
    "send ttl": lambda c, t: send(c, ttl=t),
    "send deliver_after": lambda c, t: send(c, deliver_after=t),
    "send max_block_ms": lambda c, t: send(c, max_block_ms=t),
    "flush": lambda c, t: producer(c).flush(t),
    "close": lambda c, t: producer(c).close(t),
    "handler": lambda c, t: ss.ProducerHandler(producer(c), max_block_ms=t, flush_timeout_seconds=t),
    "option": lambda c, t: Channel(c.path, keep_alive=t).close(),
    "option in milliseconds": lambda c, t: ss.Producer(c, linger_ms=t).close(),
}


def put(channel: Channel, **times: Any) -> None:
    with channel.put_transaction() as tx:
        tx.put(Event(b"a"), **times)


def take(channel: Channel, call: str, *arguments: Any, **times: Any) -> None:
    with channel.take_transaction("g") as tx:
        assert getattr(tx, call)(*arguments, **times)


def producer(channel: Channel) -> ss.Producer:
    return ss.Producer(channel, linger_ms=0)


def send(channel: Channel, **times: Any) -> None:
    with producer(channel) as own:
        own.send(Event(b"a"), **times)


@pytest.fixture
def channel(path: Path) -> Iterator[Channel]:
    with Channel(path, minimum_required_space=0) as channel:
        put(channel)
        yield channel


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("time", ["5m", "30", timedelta(seconds=30), 30])
def test_a_call_takes_a_time_with_a_unit(channel: Channel, call: str, time: object) -> None:
    CALLS[call](channel, time)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("time", ["5 weeks", "-5m", timedelta(seconds=-30), -30])
def test_a_call_refuses_what_is_not_a_time_and_what_is_negative(channel: Channel, call: str, time: object) -> None:
    with pytest.raises(OptionError, match=r"must be .*, not |must be more than 0"):
        CALLS[call](channel, time)


def test_sizes_of_options_and_calls_have_units(path: Path) -> None:
    with Channel(path, minimum_required_space="1MiB", max_file_size="16 MiB") as channel:
        assert (channel.options["minimum_required_space"], channel.options["max_file_size"]) == (1 << 20, 16 << 20)
        assert list(channel.read(max_bytes="64KiB")) == list(channel.read(max_bytes="65536")) == []
        with pytest.raises(OptionError, match=r"^max_bytes must be bytes, or a number with KiB, MiB, GiB or TiB"):
            channel.read(max_bytes="64MB")
