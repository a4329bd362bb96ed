"""The producer: single events, sent by some threads and stored durably, end to end until the last future is done."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import psutil
import pyarrow as pa

import spillable_stream as ss
from benchmarks.aging import age
from benchmarks.events import Shape, bodies
from benchmarks.floors import WRITTEN, written
from benchmarks.ours import new_channel
from benchmarks.rounds import Contestant, Figures, Group, Plan, percentiles
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.format.numbered_batch import Numbers

__all__ = ["AGE", "LATENCY", "MANY", "OLD", "THREADS", "group_name", "groups", "threaded"]

THREADS = (1, 4, 8)
TRANSACTIONS = "put transactions of as many events, 1 thread"
LATENCY = "producer latency"
_HAND_OFF = "hand-off alone: queue.SimpleQueue, 1 thread"
_STORED, _BY_CPU = "stored", "by CPU second"
_SIZES_BYTES = (100, 550)
_BATCH_BYTES = 512 << 10  # the producer's threshold
_SAMPLED = 16  # how manieth sends are timed
_LONGER = 4  # than the other benchmarks: a batch fills in milliseconds
MANY = "producer to many"
_TARGETS = (1, 100, 10_000)
_AGE_SECONDS = 4.0
AGE, OLD = "producer age", f"{_AGE_SECONDS:.0f} s of sends"
_AGE_BUFFER_BYTES = 16 << 20


def group_name(body_bytes: int) -> str:
    """Return the name of a size's group."""
    return f"producer {body_bytes} B"


def threaded(threads: int) -> str:
    """Return a contestant's name."""
    return f"spillable_stream, Producer.send, {threads} thread{'' if threads == 1 else 's'}"


def groups(plan: Plan, _: Path) -> Iterator[Group]:
    """Yield the groups of speed, of latency and of memory."""
    seconds = plan.seconds * _LONGER
    for size in _SIZES_BYTES:
        batch = Shape(_BATCH_BYTES // size, size)
        contestants: dict[str, Contestant] = {
            WRITTEN: _floor(batch, plan.seconds),
            TRANSACTIONS: _transactions(batch, seconds),
            _HAND_OFF: _hand_off(size, seconds),
            **{threaded(count): _sends(size, seconds, count) for count in THREADS},
        }
        title = f"Single events of {size} B, durable, end to end until the last future is done"
        yield Group(group_name(size), title, "events/s", WRITTEN, contestants)
    contestants = {threaded(count): _latency(_SIZES_BYTES[0], seconds, count) for count in THREADS}
    title = f"How long a send of {_SIZES_BYTES[0]} B takes while the buffer has room"
    yield Group(LATENCY, title, "µs", "", contestants)
    contestants = {f"{count:,} target{'' if count == 1 else 's'}": _to_many(count, seconds) for count in _TARGETS}
    title = f"Single events of {_SIZES_BYTES[0]} B, sent in turn to some targets that do nothing, by 1 thread"
    yield Group(MANY, title, "events/s", "", contestants)
    title = f"Resident memory while events are sent, with a buffer of {_AGE_BUFFER_BYTES >> 20} MiB"
    yield Group(AGE, title, "MB", "", {OLD: lambda place: age(__name__, place, _AGE_SECONDS)}, 3)


def _floor(batch: Shape, seconds: float) -> Contestant:
    floor = written(batch, seconds)
    return lambda place: {_STORED: floor(place)["put"]}


def _timed(count: int, send: Callable[[int], int], end: Callable[[], None]) -> Figures:
    """Return how many events a second some threads send, until ``end`` returns, and how many with a second of CPU."""
    sent: list[int] = []
    threads = [threading.Thread(target=lambda number=i: sent.append(send(number))) for i in range(count)]
    began, cpu = time.perf_counter(), time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    end()
    took, cpu_took = time.perf_counter() - began, time.process_time() - cpu
    return {_STORED: sum(sent) / took, _BY_CPU: sum(sent) / cpu_took}


def _for_a_while(call: Callable[[bytes], object], size: int, seconds: float) -> int:
    """Call with one body after the other until the time is up, and return how often."""
    some, done, end = bodies(1_000, size), 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        for body in some:
            call(body)
        done += len(some)
    return done


def _sends(size: int, seconds: float, threads: int) -> Contestant:
    def run(directory: Path) -> Figures:
        with new_channel(directory, overflow_capacity=1 << 40) as channel, ss.Producer(channel) as producer:
            producer.send(b"the first").result()
            return _timed(threads, lambda _: _for_a_while(producer.send, size, seconds), producer.flush)

    return run


def _transactions(batch: Shape, seconds: float) -> Contestant:
    """Return who collects events into lists as long as the producer's batches, and puts each in a transaction."""

    def run(directory: Path) -> Figures:
        with new_channel(directory, overflow_capacity=1 << 40) as channel:
            waiting: list[ss.Event] = []

            def put(body: bytes) -> None:
                waiting.append(ss.Event(body))
                if len(waiting) >= batch.events:
                    commit()

            def commit() -> None:
                with channel.put_transaction() as tx:
                    tx.put_many(waiting)
                waiting.clear()

            return _timed(1, lambda _: _for_a_while(put, batch.body_bytes, seconds), commit)

    return run


def _hand_off(size: int, seconds: float) -> Contestant:
    """Return who hands events to another thread, which does nothing with them: what a queue alone takes."""

    def run(_: Path) -> Figures:
        queue: SimpleQueue[Any] = SimpleQueue()

        def take() -> None:
            while queue.get() is not None:
                pass

        taking = threading.Thread(target=take)
        taking.start()

        def end() -> None:
            queue.put(None)
            taking.join()

        return _timed(1, lambda _: _for_a_while(queue.put, size, seconds), end)

    return run


def _latency(size: int, seconds: float, threads: int) -> Contestant:
    """Return who times some sends; the buffer is so large that it never fills."""

    def run(directory: Path) -> Figures:
        found: list[float] = []

        def send(_: int) -> int:
            some, mine, end = bodies(1_000, size), [], time.perf_counter() + seconds
            while time.perf_counter() < end:
                for i, body in enumerate(some):
                    if i % _SAMPLED:
                        producer.send(body)
                    else:
                        began = time.perf_counter_ns()
                        producer.send(body)
                        mine.append((time.perf_counter_ns() - began) / 1000)
            found.extend(mine)
            return 1

        with (
            new_channel(directory, overflow_capacity=1 << 40) as channel,
            ss.Producer(channel, total_size_in_bytes=4 << 30) as producer,
        ):
            _timed(threads, send, producer.flush)
        return percentiles(found)

    return run


class _Nothing:
    """A target that does nothing, so that only the producer costs."""

    schema = EVENT_SCHEMA
    max_events = 10_000

    def __init__(self, name: str) -> None:
        self.name = name

    def claim(self, producer_id: str) -> None: ...

    def last_sequence(self, producer_id: str) -> int:
        return 0

    def commit(self, batch: pa.RecordBatch, producer_id: str, numbers: Numbers) -> tuple[int, int]:
        return 1, batch.num_rows

    def close(self) -> None: ...


def _to_many(count: int, seconds: float) -> Contestant:
    """Return who sends to each of some targets in turn."""

    def run(_: Path) -> Figures:
        keys = cycle([str(i) for i in range(count)])
        with ss.Producer({str(i): _Nothing(str(i)) for i in range(count)}) as producer:

            def send(body: bytes) -> None:
                producer.send(body, key=next(keys))

            return _timed(1, lambda _: _for_a_while(send, _SIZES_BYTES[0], seconds), producer.flush)

    return run


def _age_here(directory: Path, seconds: float) -> tuple[int, int]:
    """Send, as the child process of `age`, and return this process's resident bytes before and after."""
    with (
        new_channel(directory, overflow_capacity=1 << 40) as channel,
        ss.Producer(channel, total_size_in_bytes=_AGE_BUFFER_BYTES) as producer,
    ):
        _for_a_while(producer.send, _SIZES_BYTES[0], seconds / 4)
        young = psutil.Process().memory_info().rss
        _for_a_while(producer.send, _SIZES_BYTES[0], seconds)
        return young, psutil.Process().memory_info().rss


if __name__ == "__main__":  # the process that grows old
    print(*_age_here(Path(sys.argv[1]), float(sys.argv[2])))
