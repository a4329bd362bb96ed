"""Print what the channel does beside what the machine can do: ``make bench``.

Every round runs each contestant once, in turn, so that a slow moment of the machine hits all of
them; the figures are medians over the rounds, the ratios are medians of each round's own ratio.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks import durable_put, memory_tier, replay, spark
from spillable_stream.termination import exit_on_sigterm

Round = dict[str, float]

_SPARK_ROUNDS = 3  # a round of Spark takes minutes


def report(title: str, unit: str, rounds: list[Round], base: str) -> None:
    """Print medians, their spread and the ratio to the contestant ``base``."""
    print(f"\n{title} (median of {len(rounds)} rounds)")
    for name in rounds[0]:
        values = sorted(r[name] for r in rounds)
        ratio = statistics.median(r[name] / r[base] for r in rounds)
        spread = f"{values[0]:,.0f} to {values[-1]:,.0f}"
        print(f"  {name:<46} {statistics.median(values):>12,.0f} {unit}   {ratio:6.2f} x   ({spread})")


def interleaved(contestants: dict[str, Callable[[Path], float]], rounds: int, directory: Path) -> list[Round]:
    """Run every contestant once a round, in an order that turns."""
    names = list(contestants)
    found = []
    for i in range(rounds):
        turned = names[i % len(names) :] + names[: i % len(names)]
        figures = {}
        for name in turned:
            with tempfile.TemporaryDirectory(dir=directory) as place:
                figures[name] = contestants[name](Path(place))
        found.append({name: figures[name] for name in names})
    return found


def durable_puts(arguments: argparse.Namespace) -> None:
    """Durable puts beside plain writes and syncs."""
    rounds = interleaved(durable_put.CONTESTANTS, arguments.rounds, arguments.directory)
    title = "Durable put, one thread, transactions of 1,000 events of 100 bytes"
    report(title, "events/s", rounds, durable_put.FLOOR)


def memory_tiers(arguments: argparse.Namespace) -> None:
    """The memory tier beside copies in memory."""
    for size in memory_tier.TRANSACTIONS:
        rounds = interleaved(memory_tier.contestants(size), arguments.rounds, arguments.directory)
        title = f"Memory tier, Arrow batches, transactions of {memory_tier.EVENTS:,} events of {size:,} bytes"
        report(title, "events/s", rounds, memory_tier.FLOOR)


def replays(arguments: argparse.Namespace) -> None:
    """Opening a channel with a backlog of 4 million events."""
    with tempfile.TemporaryDirectory(dir=arguments.directory) as place:
        path = replay.make(Path(place))
        rounds = interleaved(replay.contestants(path), arguments.rounds, arguments.directory)
        before, after = replay.resident_mebibytes(path)
    title = f"Open with {replay.TRANSACTIONS:,} transactions of {replay.EVENTS:,} events"
    report(title, "events/s", rounds, replay.FLOOR)
    print(f"  a process's peak resident memory, imports done: {before} MiB; after the open: {after} MiB")


def spark_all(arguments: argparse.Namespace) -> None:
    """Spark's source, sink and latency beside Spark's own; writes docs/benchmarks.md."""
    spark.run(arguments.directory, min(arguments.rounds, _SPARK_ROUNDS), write=arguments.write)


BENCHMARKS = {"put": durable_puts, "memory": memory_tiers, "replay": replays, "spark": spark_all}


def main() -> None:
    """Run the benchmarks that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(BENCHMARKS), metavar="put|memory|replay|spark")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--directory", type=Path, default=Path.cwd(), help="where to write; its disk is measured")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md and .json (spark only)")
    arguments = parser.parse_args()
    for name in arguments.names:
        BENCHMARKS[name](arguments)


if __name__ == "__main__":
    with exit_on_sigterm():
        main()
