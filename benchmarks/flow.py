"""The flow: batches through interceptors and selectors into channels, beside plain puts of the same events."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa

import spillable_stream as ss
from benchmarks.events import Shape, event_batch
from benchmarks.ours import new_channel
from benchmarks.rounds import Contestant, Figures, Group, Plan
from spillable_stream import flow
from spillable_stream.flow.event_batch import select_rows
from spillable_stream.flow.interceptors.base import AnyInterceptor, InterceptorChain
from spillable_stream.flow.selectors import Selector
from spillable_stream.flow.sinks.null import Null
from spillable_stream.format.batch import EVENT_SCHEMA

__all__ = ["CASES", "groups"]

_SHAPE = Shape(10_000, 100, 2)
_FLOW, _PLAIN = "flow", "plain puts"
_STORED, _BY_CPU = "stored", "by CPU second"
_COUNTRIES = ("NL", "BE", "DE", "FR")

_LINE = b"x" * 99 + b"\n"
_LINES_A_SECOND = 6_000_000  # of the time of a plan: so many that the start and the end of an agent cost little

_EXTRACT = r'"id":(\d+),"at":(\d+),"user":"([^"]*)"'

CASES: dict[str, tuple[Callable[[], list[AnyInterceptor]], Callable[[], Selector], int]] = {
    "no interceptor, one channel": (list, flow.Replicating, 1),
    "timestamp, host and static": (lambda: [flow.Timestamp(), flow.Host(), flow.Static()], flow.Replicating, 1),
    "regex_filter": (lambda: [flow.RegexFilter(r'"amount":\d+')], flow.Replicating, 1),
    "regex_extractor, three groups": (
        lambda: [flow.RegexExtractor(_EXTRACT, ["id", "at", "user"])],
        flow.Replicating,
        1,
    ),
    "replicating to two": (list, flow.Replicating, 2),
    "multiplexing to four": (
        list,
        lambda: flow.Multiplexing("country", {c: [f"c{i}"] for i, c in enumerate(_COUNTRIES)}),
        4,
    ),
}
"""The interceptors, the selector and the number of channels of each comparison."""


def groups(plan: Plan, _: Path) -> Iterator[Group]:
    """Yield a group for each way through a flow."""
    for name, (interceptors, selector, channels) in CASES.items():
        contestants = {
            _PLAIN: _plain(interceptors, selector, channels, plan.seconds),
            _FLOW: _through(interceptors, selector, channels, plan.seconds),
        }
        yield Group(f"flow: {name}", f"{name}: {_SHAPE}, on disk", "events/s", _PLAIN, contestants)
    contestants = {
        "plain takes": _takes(plan.seconds, into_sink=False),
        "null sink": _takes(plan.seconds, into_sink=True),
    }
    yield Group("flow: null sink", f"A channel into the null sink: {_SHAPE}", "events/s", "plain takes", contestants)
    batches = {f"batches of {size:,}": _tailed(plan.seconds, size) for size in (1_000, 10_000)}
    title = f"taildir, a channel on disk, file_roll: lines of {len(_LINE)} B"
    yield Group("flow: from file to file", title, "lines/s", "", batches)


def _timed(step: Callable[[], int], seconds: float) -> Figures:
    """Return how many events a second a step does, and how many with a second of processor time."""
    step()
    done, began, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - began < seconds:
        done += step()
    return {_STORED: done / (time.perf_counter() - began), _BY_CPU: done / (time.process_time() - cpu)}


def _channels(stack: ExitStack, directory: Path, count: int) -> dict[str, ss.Channel]:
    names = [f"c{i}" for i in range(count)]
    return {n: stack.enter_context(new_channel(directory / n, overflow_capacity=1 << 40)) for n in names}


def _plain(
    interceptors: Callable[[], list[AnyInterceptor]], selector: Callable[[], Selector], count: int, seconds: float
) -> Contestant:
    """Return who puts what the flow would put, one channel after the other; made once."""

    def run(directory: Path) -> Figures:
        with ExitStack() as stack:
            channels = _channels(stack, directory, count)
            parts = _parts(interceptors(), selector(), list(channels))

            def step() -> int:
                for name, part in parts.items():
                    with channels[name].put_transaction() as tx:
                        tx.put_batch(part)
                return _SHAPE.events

            return _timed(step, seconds)

    return run


def _parts(
    interceptors: Sequence[AnyInterceptor], selector: Selector, channels: Sequence[str]
) -> dict[str, pa.RecordBatch]:
    selector.bind(channels)
    passed = InterceptorChain(interceptors).intercept(event_batch(EVENT_SCHEMA, _SHAPE))
    return {name: select_rows(passed, rows) for name, rows in selector.select(passed, 1).required.items()}


def _through(
    interceptors: Callable[[], list[AnyInterceptor]], selector: Callable[[], Selector], count: int, seconds: float
) -> Contestant:
    def run(directory: Path) -> Figures:
        with ExitStack() as stack:
            channels, batch = _channels(stack, directory, count), event_batch(EVENT_SCHEMA, _SHAPE)
            processor = stack.enter_context(flow.ChannelProcessor(channels, interceptors(), selector()))

            def step() -> int:
                return processor.process(batch).received

            return _timed(step, seconds)

    return run


def _takes(seconds: float, *, into_sink: bool) -> Contestant:
    def run(directory: Path) -> Figures:
        with new_channel(directory, overflow_capacity=1 << 40) as channel:
            batch = event_batch(channel.schema, _SHAPE)
            sink = Null(batch_size=_SHAPE.events)
            if into_sink:
                sink.open(channel)
            spent = cpu = 0.0
            done = 0
            while spent < seconds:
                with channel.put_transaction() as tx:
                    tx.put_batch(batch)
                began, cpu_began = time.perf_counter(), time.process_time()
                if into_sink:
                    sink.process()
                else:
                    with channel.take_transaction() as taking:
                        taking.take_batch(_SHAPE.events)
                spent += time.perf_counter() - began
                cpu += time.process_time() - cpu_began
                done += _SHAPE.events
            if into_sink:
                sink.close()
            return {_STORED: done / spent, _BY_CPU: done / cpu}

    return run


def _tailed(seconds: float, batch_size: int) -> Contestant:
    """Return who moves the lines of a file through a channel into another file."""

    def run(directory: Path) -> Figures:
        lines = int(seconds * _LINES_A_SECOND)
        (directory / "in").mkdir()
        (directory / "in" / "app.log").write_bytes(_LINE * lines)
        with new_channel(directory / "channel", memory_capacity=0, overflow_capacity=1 << 40) as channel:
            tail = flow.TailDir(
                {"app": f"{directory}/in/.*"}, position_file=directory / "positions.json", batch_size=batch_size
            )
            (directory / "out").mkdir()
            agent = flow.Agent(
                sources=[flow.Source(tail, flow.ChannelProcessor({"c1": channel}, producer="a1.r1"), "r1")],
                sinks=[flow.FileRoll(directory / "out", batch_size=batch_size, roll_interval=0, channel="c1")],
                name="a1",
            )
            began, cpu = time.perf_counter(), time.process_time()
            agent.run(once=True)
            return {_STORED: lines / (time.perf_counter() - began), _BY_CPU: lines / (time.process_time() - cpu)}

    return run
