"""What the project aims at, and whether a run reached it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from benchmarks import (
    backlog,
    end_to_end,
    footprint,
    objects,
    peer_rates,
    producer,
    puts,
    spark_latency,
    spark_objects,
    spark_rows,
    spark_session,
    spark_sink,
    spark_source,
    spark_start,
    sustained,
)
from benchmarks.events import Shape
from benchmarks.floors import COPY, PREALLOCATED, WRITTEN
from benchmarks.ours import BATCHES, EVENTS
from benchmarks.rounds import Comparison

__all__ = ["SPARK_TARGETS", "TARGETS", "Outcome", "Target", "beside", "outcomes"]


@dataclass(frozen=True)
class Target:
    """One aim.

    Args:
        what: the value to reach.
        group: where it is measured.
        figure: which of the figures.
        contestants: who; the best of them counts.
        least: the least value, or the least ratio where there is something to compare with.
        most: the most.
        against: with whom the ratio is made; of several, the worst ratio counts.
        most_above: how much more than those it may be, where the difference counts and not the ratio.
        bound: whom nobody can surpass here: where that one misses the target, it is out of reach.
    """

    what: str
    group: str
    figure: str
    contestants: tuple[str, ...]
    least: float | None = None
    most: float | None = None
    against: tuple[str, ...] = ()
    most_above: float | None = None
    bound: str = ""

    def met_by(self, value: float) -> bool:
        """Tell whether a value, or a ratio, or a difference, is enough."""
        if self.most_above is not None:
            return value <= self.most_above
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)


@dataclass(frozen=True)
class Outcome:
    """What became of a target.

    Args:
        target: the target.
        unit: of the values.
        reached: the median that was reached; None if it was not measured.
        beside: whom it is compared with, and their median: of the target, or else the machine's floor.
        beside_value: their median.
        ratio: the median of the rounds' ratios to them.
        short: of those that it is compared with, the ones whose ratio is not enough.
        above: the median of the rounds' differences to them, if that counts.
        bound: the ratio, or the difference, of the target's bound.
    """

    target: Target
    unit: str = ""
    reached: float | None = None
    beside: str = ""
    beside_value: float | None = None
    ratio: float | None = None
    short: tuple[str, ...] = ()
    above: float | None = None
    bound: float | None = None

    @property
    def verdict(self) -> str:
        """Whether the target was met, or can be."""
        if self.target.most_above is not None:
            decisive = self.above
        else:
            decisive = self.ratio if self.target.against else self.reached
        if decisive is None:
            return "not measured"
        if self.target.met_by(decisive):
            return "met"
        if self.bound is None or self.target.met_by(self.bound):
            return "missed"
        return f"out of reach: at best {beside(self.bound, self.target, self.unit)}"


def beside(value: float, target: Target, unit: str) -> str:
    """Return how a target shows a ratio, or a difference."""
    if target.most_above is None:
        return f"{value:.2f} x"
    return f"{value:+,.0f} {unit}" if target.most_above >= 10 else f"{value:+,.2f} {unit}"


_THOUSAND, _HUNDRED, _ONE = Shape(1_000, 100), Shape(100, 100), Shape(1, 100)
_HEADERS, _LARGE = Shape(1_000, 100, 3), Shape(100, 16 << 10)
_MOST_THREADS = puts.threaded(BATCHES, puts.THREADS[-1])
_BOTH_WAYS = (end_to_end.THREADS, end_to_end.PROCESSES)
_LARGE_TAKES = tuple(f"{way}, {end_to_end.LARGE_TAKES}" for way in _BOTH_WAYS)
_AT_ONE, _AT_MORE = 1.0, 2.0
_OPEN_MS = 50.0
_RESIDENT_MB = 150.0
_GROWTH_MB = 5.0
_REPLAY_MS = {4_000_000: 1_000.0, 20_000_000: 4_000.0}
_OF_PLAIN_OBJECTS = 0.8
_OF_PUTS = ((objects.loopback_name, "on this machine", (0.5, 0.8)), (objects.region_name, "in the region", (0.65, 0.7)))
_OF_GROUPED_PUTS = ((objects.GROUPED_LOOPBACK, "on this machine", 0.2), (objects.GROUPED_REGION, "in the region", 0.5))
_OPEN_IN_A_STORE_MS = 2_000.0
_LOG_MS = 1.5  # beside a GET
_OF_A_SHARE = 0.5  # of what all have together
_OF_PYTHON = 0.97  # of the fastest source in Python that there can be
_LATENCY_MS = 50.0
_FIRST_BATCH_MS = 500.0
_LARGE_BACKLOG = 100_000_000
_OPENED = (1_000_000, 4_000_000, 10_000_000, 20_000_000)


def _speed() -> Iterator[Target]:
    put_1, put_1000 = puts.group_name(_ONE), puts.group_name(_THOUSAND)
    for shape, least in ((_THOUSAND, 0.7), (_HUNDRED, 0.6), (_ONE, 0.7)):
        what, group = f"durable put, steady state, {shape}", sustained.steady_name(shape)
        yield Target(what, group, "put", (BATCHES,), least, against=(WRITTEN,))
    what, group = f"durable put, growing backlog, {_THOUSAND}", sustained.growing_name(_THOUSAND)
    yield Target(what, group, "put", (BATCHES,), 0.9, against=(PREALLOCATED,))
    yield Target(
        "durable put, 8 threads, 1,000 × 100 B", put_1000, "put", (_MOST_THREADS,), 0.9, against=(puts.SEQUENTIAL,)
    )
    yield Target("durable put, 8 threads, 1 × 100 B", put_1, "put", (_MOST_THREADS,), 5.0, against=(BATCHES,))
    yield Target("take and commit, 1,000 × 100 B", put_1000, "take", (BATCHES,), 3e6)
    on_disk = end_to_end.disk_name(_THOUSAND)
    yield Target("end to end, durable, 1,000 × 100 B", on_disk, "end to end", _BOTH_WAYS, 2e6)
    memory = end_to_end.memory_name
    what = f"end to end, memory tier, 1,000 × 100 B, {end_to_end.LARGE_TAKES}"
    yield Target(what, memory(_THOUSAND), "end to end", _LARGE_TAKES, 5e6)
    yield Target(f"end to end, memory tier, {_LARGE}", memory(_LARGE), "end to end", _BOTH_WAYS, 0.25, against=(COPY,))
    with_headers = puts.group_name(_HEADERS)
    yield Target("durable put, Python events with 3 headers, 1,000 × 100 B", with_headers, "put", (EVENTS,), 4e5)
    yield Target("take, Python events with 3 headers, 1,000 × 100 B", with_headers, "take", (EVENTS,), 4e5)


def _peers() -> Iterator[Target]:
    for figure in ("put", "take"):
        for events in peer_rates.TRANSACTIONS:
            what = f"durable {figure} beside every other product, {Shape(events, 100)}"
            least = _AT_ONE if events == 1 else _AT_MORE
            group = peer_rates.group_name(events)
            yield Target(what, group, figure, (BATCHES,), least, against=peer_rates.DURABLE)


def _opening() -> Iterator[Target]:
    for events in _OPENED:
        group = backlog.open_name(events)
        yield Target(f"open, {events:,} events, checkpoint", group, "open", (backlog.CHECKPOINT,), most=_OPEN_MS)
    for events, most in _REPLAY_MS.items():
        for way, more in ((backlog.LOG, ""), (backlog.REBOOT, ", after a reboot")):
            what = f"open, {events:,} events, no checkpoint{more}"
            yield Target(what, backlog.open_name(events), "open", (way,), most=most)
    what = f"resident memory, a backlog of {_LARGE_BACKLOG:,} events"
    large = backlog.large_name(_LARGE_BACKLOG)
    yield Target(what, large, "resident", (backlog.OPENED,), most=_RESIDENT_MB)
    what = "growth of resident memory as a backlog ages"
    yield Target(what, footprint.AGE, "growth", (footprint.OLD,), most=_GROWTH_MB)
    what = "import beyond pyarrow's own"
    yield Target(what, footprint.IMPORT, "import", (footprint.IMPORTED,), most=150.0)
    yield Target("pandas imported (1) or not (0)", footprint.PANDAS, "imported", (footprint.IMPORTED,), most=0.0)


def _producer() -> Iterator[Target]:
    for threads in producer.THREADS:
        who = (producer.threaded(threads),)
        what = f"{threads} thread{'' if threads == 1 else 's'}"
        yield Target(f"sends of 100 B, {what}", producer.group_name(100), "stored", who, 1e6 if threads == 1 else 3e5)
        yield Target(f"sends of 550 B, {what}", producer.group_name(550), "stored", who, 3e5)
        yield Target(f"p99 of a send, {what}", producer.LATENCY, "p99", who, most=100.0)
    what = "growth of resident memory while events are sent"
    yield Target(what, producer.AGE, "growth", (producer.OLD,), most=_GROWTH_MB)


def _objects() -> Iterator[Target]:
    for group_name, where, ratios in _OF_PUTS:
        for shape, least in zip(objects.SHAPES, ratios, strict=False):
            what, group, put = f"put in a store {where}, {shape}", group_name(shape), (objects.FLOOR,)
            yield Target(what, group, "put", (BATCHES,), least, against=put, bound=objects.PROVEN)
    what, group, get = (
        f"what the log adds to a commit, {_THOUSAND}",
        objects.loopback_name(_THOUSAND),
        (objects.PROVEN,),
    )
    yield Target(what, group, objects.COMMIT, (BATCHES,), against=get, most_above=_LOG_MS)
    for grouped_name, where, least in _OF_GROUPED_PUTS:
        what, put = f"1,000 transactions of one event in a group, in a store {where}", (objects.FLOOR,)
        yield Target(what, grouped_name, "put", (BATCHES,), least, against=put, bound=objects.PROVEN)
    yield Target("following in a store", objects.FOLLOW, "read", (objects.HANDLE,), 0.8, against=(objects.GETS,))
    what, behind = f"open in a store, {objects.SLOTS:,} slots behind", (objects.behind(objects.SLOTS),)
    yield Target(what, objects.OPEN, "open", behind, most=_OPEN_IN_A_STORE_MS)
    one, *more = map(objects.writers_name, objects.WRITER_COUNTS)
    for writers in more:
        what = f"{writers} of a channel in a store, together"
        yield Target(what, objects.WRITERS, "together", (writers,), 0.6, against=(one,))
        what = f"{writers} of a channel in a store, the one with the least"
        yield Target(what, objects.WRITERS, objects.OF_A_SHARE, (writers,), _OF_A_SHARE)


def _spark() -> Iterator[Target]:
    for kind in spark_rows.KINDS:
        what, group, ours = f"Spark's source, {kind.name}", spark_source.group_name(kind), (spark_source.OURS,)
        limit, peer = (spark_source.LIMIT,), (spark_source.PEER,)
        yield Target(f"{what}, of what Python can", group, spark_session.ROWS, ours, _OF_PYTHON, against=limit)
        with_peer = f"{what}, beside Parquet"
        yield Target(with_peer, group, spark_session.ROWS, ours, _AT_ONE, against=peer, bound=spark_source.LIMIT)
    for kind in spark_rows.KINDS:
        what, group, ours = (
            f"Spark's sink, {kind.name}, beside Parquet",
            spark_sink.group_name(kind),
            (spark_sink.OURS,),
        )
        peer, bound = (spark_sink.PEER,), spark_sink.LIMIT
        yield Target(what, group, spark_session.ROWS, ours, _AT_ONE, against=peer, bound=bound)
    for kind in spark_rows.KINDS:
        ours, plain = (spark_objects.OURS,), (spark_objects.PLAIN,)
        for group, what in (
            (spark_objects.sink_name(kind), f"sink in a store, {kind.name}"),
            (spark_objects.large_sink_name(kind), f"sink in a store, {kind.name}, larger batches"),
            (spark_objects.source_name(kind), f"source in a store, {kind.name}"),
        ):
            of_plain = f"Spark's {what}, of plain objects"
            yield Target(of_plain, group, spark_session.ROWS, ours, _OF_PLAIN_OBJECTS, against=plain)
    what, floor = "Spark's latency above a micro-batch", (spark_latency.NOOP,)
    yield Target(what, spark_latency.GROUP, "p50", (spark_latency.OURS,), against=floor, most_above=_LATENCY_MS)
    for group, what in ((spark_start.SOURCE, "source"), (spark_start.SINK, "sink")):
        what, peer = f"Spark's {what}, first batch of a query", (spark_start.PEER,)
        ours = (spark_start.OURS,)
        more, bound = _FIRST_BATCH_MS, spark_start.LIMIT
        yield Target(what, group, spark_start.FIRST, ours, against=peer, most_above=more, bound=bound)


TARGETS = (*_speed(), *_peers(), *_opening(), *_producer(), *_objects())
SPARK_TARGETS = (*_spark(),)


def outcomes(found: Mapping[str, Comparison], targets: tuple[Target, ...] = TARGETS) -> list[Outcome]:
    """Return what became of every target."""
    return [_outcome(t, found[t.group]) if t.group in found else Outcome(t) for t in targets]


def _outcome(target: Target, found: Comparison) -> Outcome:
    figure, unit = target.figure, found.unit_of(target.figure)
    able = [name for name in target.contestants if found.has(name, figure)]
    if not able:
        return Outcome(target)
    choose = max if target.most is None and target.most_above is None else min
    best = choose(able, key=lambda name: found.median(name, figure))
    reached = found.median(best, figure)
    others = [name for name in target.against or (found.floor,) if found.has(name, figure)]
    if not others:
        return Outcome(target, unit, reached)
    if target.most_above is not None:
        differences = {name: found.above(best, figure, name) for name in others}
        worst = max(others, key=lambda name: differences[name])
    else:
        differences = {}
        worst = min(others, key=lambda name: found.ratio(best, figure, name))
    ratios = {name: found.ratio(best, figure, name) for name in others}
    enough = {name: target.met_by(differences.get(name, ratios[name])) for name in others}
    compare = found.ratio if target.most_above is None else found.above
    return Outcome(
        target,
        unit,
        reached,
        worst,
        found.median(worst, figure),
        ratios[worst],
        tuple(name for name in others if target.against and not enough[name]),
        differences.get(worst),
        compare(target.bound, figure, worst) if found.has(target.bound, figure) else None,
    )
