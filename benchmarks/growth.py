"""How cost grows with work: a longer backlog, more groups, processes, channels, columns, and transactions a second."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pyarrow as pa

import spillable_stream as ss
from benchmarks.events import Shape
from benchmarks.ours import BATCHES, new_channel, put_step, take_step
from benchmarks.rounds import Contestant, Figures, Group, Plan
from spillable_stream.format.packing import pack
from spillable_stream.state.block import Block
from spillable_stream.state.channel_state import ChannelState

__all__ = [
    "AXES",
    "CHANNELS",
    "COLUMNS",
    "EVENTS",
    "GROUPS",
    "PICTURE_TITLES",
    "PROCESSES",
    "RATES",
    "groups",
    "size_of",
]

EVENTS, GROUPS, PROCESSES = "growth: backlog", "growth: groups", "growth: processes"
CHANNELS, COLUMNS, RATES = "growth: channels", "growth: columns", "growth: transactions a second"
AXES: dict[str, tuple[int, ...]] = {
    EVENTS: (100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000),
    GROUPS: (1, 10, 100, 1_000, 10_000),
    PROCESSES: (1, 2, 4, 8, 16),
    CHANNELS: (1, 10, 100, 1_000),
    COLUMNS: (1, 10, 100, 1_000),
    RATES: (10, 100, 1_000),
}
_TITLES = {
    EVENTS: "A longer backlog, of events of 100 B in files of 64 MiB",
    GROUPS: "More groups, each with a position of its own",
    PROCESSES: "More processes that put at once, 100 × 100 B",
    CHANNELS: "More channels that one process has open",
    COLUMNS: "More columns of 64-bit integers, in transactions of 100 rows",
    RATES: "More transactions a second, each a put and a take of 1 × 100 B",
}
PICTURE_TITLES = {
    EVENTS: "events that wait",
    GROUPS: "groups",
    PROCESSES: "processes that put at once",
    CHANNELS: "open channels of a process",
    COLUMNS: "columns",
    RATES: "transactions a second",
}
_ONE, _HUNDRED = Shape(1, 100), Shape(100, 100)
_BLOCK_EVENTS = 500_000  # what one file of 64 MiB holds
_ROUNDS = 3
_LONG = (GROUPS, CHANNELS)  # to make so many takes half a minute, and each cost is a median already
_MOST = 200  # transactions of a measurement
_PUT, _TAKE = "put, µs", "take, µs"


def groups(plan: Plan, _: Path) -> Iterator[Group]:
    """Yield a group for each kind of work, with a contestant for each size of it."""
    makers: dict[str, Callable[[int, float], Contestant]] = {
        EVENTS: _backlog,
        GROUPS: _with_groups,
        PROCESSES: _processes,
        CHANNELS: _channels,
        COLUMNS: _columns,
        RATES: _at_a_rate,
    }
    for axis, make in makers.items():
        contestants = {f"{size:,}": make(size, plan.seconds) for size in AXES[axis]}
        yield Group(axis, _TITLES[axis], "", "", contestants, 1 if axis in _LONG and not plan.full else _ROUNDS)


def size_of(contestant: str) -> int:
    """Return the size that a contestant's name says."""
    return int(contestant.replace(",", ""))


def _cpu_us(step: Callable[[], object], seconds: float) -> float:
    """Return the median of the calling thread's processor time, in microseconds."""
    found: list[float] = []
    end = time.perf_counter() + seconds
    while len(found) < 3 or (len(found) < _MOST and time.perf_counter() < end):
        found.append(_cpu_once(step))
    return sorted(found)[len(found) // 2]


def _in_turn(channel: ss.Channel, seconds: float, per_second: float = math.inf) -> Figures:
    """Return what a put and a take of one event cost, done in turn, at a rate."""
    return _costs(put_step(channel, _ONE, BATCHES), take_step(channel, 1, BATCHES), seconds, per_second)


def _costs(
    put: Callable[[], object], take: Callable[[], object], seconds: float, per_second: float = math.inf
) -> Figures:
    for _ in range(3):
        put()
        take()
    began = time.perf_counter()
    costs: list[tuple[float, float]] = []
    while len(costs) < 3 or (len(costs) < _MOST and time.perf_counter() - began < seconds):
        time.sleep(max(0.0, began + len(costs) / per_second - time.perf_counter()))
        costs.append((_cpu_once(put), _cpu_once(take)))
    return {name: sorted(c[i] for c in costs)[len(costs) // 2] for i, name in enumerate((_PUT, _TAKE))}


def _cpu_once(step: Callable[[], object]) -> float:
    began = time.thread_time_ns()
    step()
    return (time.thread_time_ns() - began) / 1000


def _backlog(events: int, seconds: float) -> Contestant:
    """Return who puts and takes at a backlog that is there in the state alone, behind a few events to take."""

    def run(directory: Path) -> Figures:
        with new_channel(directory, overflow_capacity=1 << 50, checkpoint_interval=1 << 40) as channel:
            put = put_step(channel, _ONE, BATCHES)
            for _ in range(_MOST + 10):
                put()
            state = channel.engine().follow()
            _add_backlog(state, events)
            found = _in_turn(channel, seconds)
            image = pack(state.image())
            found["checkpoint, µs"] = _cpu_us(lambda: pack(state.image()), seconds)
            found["restore, µs"] = _cpu_us(lambda: ChannelState.from_image(state.image()), seconds)
            return {**found, "checkpoint, kB": len(image) / 1e3}

    return run


def _add_backlog(state: ChannelState, events: int) -> None:
    for number, first in enumerate(range(0, events, _BLOCK_EVENTS)):
        count = min(_BLOCK_EVENTS, events - first)
        state.blocks.add(Block(state.next_id, count, 1_000 + number, 4_096, 100 * count, state.time_us))
        state.next_id += count


def _with_groups(count: int, seconds: float) -> Contestant:
    def run(directory: Path) -> Figures:
        with new_channel(directory, checkpoint_interval=1 << 40) as channel:
            put = put_step(channel, _ONE, BATCHES)
            put()
            for number in range(1, count):
                with channel.take_transaction(f"group-{number}") as tx:
                    tx.take_batch(1)
                channel.consumer(f"group-{number}").close()
            found = _in_turn(channel, seconds)
            state = channel.engine().follow()
            found["checkpoint, µs"] = _cpu_us(lambda: pack(state.image()), seconds)
            return {**found, "checkpoint, kB": len(pack(state.image())) / 1e3}

    return run


def _processes(count: int, seconds: float) -> Contestant:
    """Return who lets so many processes put, and says what of the time one put of all took."""

    def run(directory: Path) -> Figures:
        with new_channel(directory) as channel:
            command = [sys.executable, "-m", __name__, str(channel.path), str(max(seconds, 0.01) * 4)]
            with ExitStack() as stack:
                children = []
                for _ in range(count):
                    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                    stack.callback(child.wait)
                    stack.callback(child.kill)
                    children.append(child)
                for child in children:
                    _word(child)
                for child in children:
                    assert child.stdin is not None
                    child.stdin.write("go\n")
                    child.stdin.flush()
                done = [float(word) for child in children for word in _word(child).split()]
        puts, took = sum(done[::2]), max(done[1::2])
        return {
            "put, all together, µs": 1e6 * took / puts,
            "put, of the slowest, µs": 1e6 * max(done[1::2]) / min(done[::2]),
        }

    return run


def _word(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    if not (line := child.stdout.readline()):
        raise RuntimeError("a putting process failed")
    return line


def _channels(count: int, seconds: float) -> Contestant:
    def run(directory: Path) -> Figures:
        before = psutil.Process().memory_info().rss
        with ExitStack() as stack:
            began = time.thread_time_ns()
            opened = [stack.enter_context(new_channel(directory / f"{number}")) for number in range(count)]
            opening = (time.thread_time_ns() - began) / 1000 / count
            found = _in_turn(opened[-1], seconds)
            grown = psutil.Process().memory_info().rss - before
        return {**found, "create, µs": opening, "resident, kB": grown / 1e3 / count}

    return run


def _columns(count: int, seconds: float) -> Contestant:
    def run(directory: Path) -> Figures:
        names = [f"column{i}" for i in range(count)]
        schema = pa.schema([(name, pa.int64()) for name in names])
        batch = pa.RecordBatch.from_pydict({name: list(range(100)) for name in names}, schema=schema)
        with new_channel(directory, schema=schema) as channel:

            def put() -> None:
                with channel.put_transaction() as tx:
                    tx.put_batch(batch)

            return _costs(put, take_step(channel, 100, BATCHES), seconds)

    return run


def _at_a_rate(per_second: int, seconds: float) -> Contestant:
    """Return who puts and takes at a rate, and says what each costs: caches are cold where there are few."""

    def run(directory: Path) -> Figures:
        with new_channel(directory) as channel:
            return _in_turn(channel, 4 * seconds, per_second)

    return run


def _put_here(path: str, seconds: float) -> tuple[int, float]:
    """Put when told to, as a child process, and return how many transactions that were and how long it took."""
    with ss.Channel(path, create=False) as channel:
        step = put_step(channel, _HUNDRED, BATCHES)
        step()
        print("ready", flush=True)
        sys.stdin.readline()
        began, done = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            step()
            done += 1
        return done, time.perf_counter() - began


if __name__ == "__main__":  # a putting process
    print(*_put_here(sys.argv[1], float(sys.argv[2])), flush=True)
