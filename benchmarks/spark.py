"""All of Spark's benchmarks: the source, the sink, and latency, beside Spark's own; written to the document."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

from benchmarks import spark_latency, spark_sink, spark_source
from benchmarks.document import Figure, machine, table, write_section
from benchmarks.spark_latency import Latencies
from benchmarks.spark_rows import KINDS
from benchmarks.spark_session import session
from benchmarks.spark_sink import Sinks
from benchmarks.spark_source import Sources

__all__ = ["run"]

_RATIO_TARGET = 1.0
_LATENCY_TARGET_MS = 50.0

_SINK_FLOORS = [spark_sink.LIMIT, spark_sink.NOTHING, spark_sink.DISK]

Rounds = dict[str, list[Any]]  # contestant → what it reached in each round


def run(directory: Path, rounds: int, document: Path | None) -> None:
    """Measure everything, print it, and write it to the document if that is wanted.

    Args:
        directory: where to write; its disk is measured.
        rounds: how often each contestant runs.
        document: the directory of the document to write; None to write none.
    """
    began = time.monotonic()
    found: dict[str, Any] = {"rounds": rounds, "source": {}, "sink": {}}
    with session() as spark, tempfile.TemporaryDirectory(dir=directory) as place:
        for kind in KINDS:
            with tempfile.TemporaryDirectory(dir=place) as of_kind:
                sources = Sources(spark, kind, Path(of_kind))
                found["source"][kind.name] = _in_turn(
                    {
                        spark_source.PEER: sources.parquet,
                        spark_source.OURS: sources.spillable,
                        spark_source.LIMIT: sources.limit,
                    },
                    rounds,
                )
            with tempfile.TemporaryDirectory(dir=place) as of_kind:
                sinks = Sinks(spark, kind, Path(of_kind))
                found["sink"][kind.name] = _in_turn(
                    {
                        spark_sink.OURS: sinks.spillable,  # first: the disk's floor is of its bytes
                        spark_sink.PEER: sinks.parquet,
                        spark_sink.LIMIT: sinks.limit,
                        spark_sink.NOTHING: sinks.noop,
                        spark_sink.DISK: sinks.disk,
                    },
                    rounds,
                    turn=False,
                )
        latencies = _in_turn(Latencies(spark, Path(place)).contestants(), max(1, rounds // 2))
        found["latency_ms"] = {name: sorted(chain.from_iterable(rows)) for name, rows in latencies.items()}
        found["spark"] = spark.version
    found["seconds"] = round(time.monotonic() - began)
    text = _section(found)
    print(text)
    if document:
        write_section("spark", text, found, document)


def _in_turn(contestants: dict[str, Callable[[], Any]], rounds: int, *, turn: bool = True) -> Rounds:
    """Run every contestant once a round; the order turns. The first round is not counted: the JVM still compiles."""
    names = list(contestants)
    found: Rounds = {name: [] for name in names}
    for i in range(rounds + 1):
        start = i % len(names) if turn else 0
        for name in names[start:] + names[:start]:
            found[name].append(contestants[name]())
    return {name: figures[1:] for name, figures in found.items()}


def _section(found: dict[str, Any]) -> str:
    rounds = found["rounds"]
    parts = [
        f"## Spark {found['spark']}\n\n`make bench-spark`, {rounds} rounds, {found['seconds']} s. {machine()}",
        "### Source: into `noop`\n\n" + _SOURCE_METHOD,
        table(
            Figure("rows", "channel, rows/s", "Parquet, rows/s", "ratio", "CPU; Python's limit, rows/s", "target"),
            [_throughput(k.title, found["source"][k.name], spark_source.PEER, [spark_source.LIMIT]) for k in KINDS],
        ),
        "### Sink: from `rate-micro-batch`\n\n" + _SINK_METHOD,
        table(
            Figure(
                "rows",
                "channel, rows/s",
                "Parquet, rows/s",
                "ratio",
                "CPU; Python's limit; noop; disk, rows/s",
                "target",
            ),
            [_throughput(k.title, found["sink"][k.name], spark_sink.PEER, _SINK_FLOORS) for k in KINDS],
        ),
        "### Latency: from a commit to the row in `foreachBatch`\n\n" + _LATENCY_METHOD,
        _latency(found["latency_ms"]),
    ]
    return "\n\n".join(parts)


def _throughput(title: str, rounds: Rounds, peer: str, floors: list[str]) -> Figure:
    def median(name: str, figure: str = "rows_per_second") -> float:
        return statistics.median(r[figure] for r in rounds[name])

    def ratio(figure: str) -> float:
        pairs = zip(rounds[spark_source.OURS], rounds[peer], strict=True)
        return statistics.median(ours[figure] / theirs[figure] for ours, theirs in pairs)

    reached, cpu = ratio("rows_per_second"), 1 / ratio("cpu_ns_per_row")
    floor = "; ".join([f"{cpu:.2f} x", *(f"{median(name):,.0f}" for name in floors)])
    return Figure(
        title,
        f"{median(spark_source.OURS):,.0f}",
        f"{median(peer):,.0f}",
        f"{reached:.2f} x",
        floor,
        f"{_RATIO_TARGET:.1f} x: {'met' if reached >= _RATIO_TARGET else 'missed'}",
    )


def _latency(milliseconds: dict[str, list[float]]) -> str:
    floor = statistics.median(milliseconds[spark_latency.NOOP])
    lines = ["| from | p50, ms | p99, ms | rows | above the floor, ms | target |", "|---|---:|---:|---:|---:|---|"]
    for name, values in milliseconds.items():
        p50, above = statistics.median(values), statistics.median(values) - floor
        p99 = values[min(len(values) - 1, round(0.99 * (len(values) - 1)))]
        target = ""
        if name == spark_latency.OURS:
            target = f"+{_LATENCY_TARGET_MS:.0f}: {'met' if above <= _LATENCY_TARGET_MS else 'missed'}"
        lines.append(f"| {name} | {p50:.0f} | {p99:.0f} | {len(values)} | {above:+.0f} | {target} |")
    return "\n".join(lines)


_SOURCE_METHOD = """\
The rows lie in a channel, put in transactions of 10,000 (`transactionCapacity`'s default), and in Parquet files that
Spark wrote (snappy), two files a micro-batch. Both are in the page cache. A query reads micro-batches of equal size
into `noop`, once before it counts: the JVM compiles meanwhile. Rows a second are over the batches' own
`triggerExecution`, without the first two. The channel checks every byte's checksum. *CPU* is what Parquet took for a
row, in the JVM and in Python's workers, over what the channel took. *Python's limit* is a source in Python that yields
one batch from memory again and again: what Spark takes to pass rows from Python, without any storage."""

_SINK_METHOD = """\
`rate-micro-batch` makes the same rows for every sink. Parquet's sink (snappy, with its commit log `_spark_metadata`)
syncs nothing, so what it wrote can be lost with the host; the channel syncs every batch before it is committed.
*Python's limit* is a sink in Python that drops the rows, *noop* drops them in the JVM, and *disk* writes the channel's
bytes of a batch with plain writes and syncs them."""

_LATENCY_METHOD = """\
Another process commits single rows at random moments, 0.3 to 0.9 s apart, each with the time when its commit began,
so the channel's figure has its sync in it. `foreachBatch` notes the time when `collect` has brought the row to the
driver. Every source meets the same moments and finds the query idle most of the time.

*The floor* is what Spark takes for a whole micro-batch of one row from `rate` into `noop` (`triggerExecution`):
nothing is waited for, and nothing comes from outside, so no source can be as quick. What a source in Spark's own JVM
can do is shown by its socket source, which polls an array in memory, through the same query and at the same moments.
A row that comes while a batch is under way waits for its end: half a batch on average, at worst a whole one more."""
