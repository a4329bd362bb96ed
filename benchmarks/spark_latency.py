"""From a commit in another process to the row in `foreachBatch`: the channel beside Spark's own sources.

A producer sends single rows at random moments, with the time at which it began to commit. The same
query takes them from each source and notes when `collect` in `foreachBatch` returned a row. The
moments come from one seed, so every source meets the same ones, and mostly finds the query idle.

Run as a program this module is the producer.
"""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import spillable_stream as ss
from benchmarks.rounds import Figures, Group, Plan, percentiles
from benchmarks.spark_session import session, stop, wait

__all__ = ["FILES", "GROUP", "NOOP", "OURS", "SOCKET", "Latencies", "groups"]

GROUP = "spark latency"

OURS = "spillable_stream"
SOCKET = "Spark's socket source: memory, no durability"
FILES = "Spark's Parquet file source: a file renamed into its directory, no sync"
NOOP = "Spark's rate source into noop: the whole micro-batch"

_EVENTS = 40
_FIRST_EVENTS = 15  # in the round that does not count, in which the JVM compiles
_WARM_UP_EVENTS = 10
_WARM_UP_BATCHES = 5
_GAP_SECONDS = (0.3, 0.9)
_LONGEST_SECONDS = 120
_ROUNDS = 1  # each takes more than a minute
_SCHEMA = pa.schema([("sent", pa.int64())])


def groups(_: Plan, __: Path) -> Iterator[Group]:
    """Yield the group."""
    with session() as spark:
        latencies = Latencies(spark)
        contestants = {
            NOOP: latencies.noop,
            SOCKET: latencies.from_socket,
            FILES: latencies.files,
            OURS: latencies.spillable,
        }
        title = "From a commit to the row in foreachBatch"
        yield Group(GROUP, title, "ms", NOOP, contestants, _ROUNDS, warm_ups=1)


class Latencies:
    """Measures single rows on their way, in milliseconds; those after the warm-up count.

    Args:
        spark: the session.
    """

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._seen = set[str]()

    def noop(self, place: Path) -> Figures:
        """Measure how long a micro-batch of one row of `rate` into `noop` takes."""
        writer = self._spark.readStream.format("rate").option("rowsPerSecond", 1).load().writeStream.format("noop")
        query = writer.option("checkpointLocation", str(place)).start()

        events = self._events("noop")

        def done() -> list[float]:
            return [float(r.durationMs["triggerExecution"]) for r in query.recentProgress if r.numInputRows]

        try:
            wait(query, lambda: len(done()) >= _WARM_UP_BATCHES + events // 2)
            return _figures(done()[_WARM_UP_BATCHES:])
        finally:
            stop(query)

    def spillable(self, place: Path) -> Figures:
        """Take rows from a channel; each is a transaction, synced."""
        with ss.Channel(place / "in", schema=_SCHEMA, minimum_required_space=0):
            pass
        return self._measure(place, self._spark.readStream.format("spillable").load(str(place / "in")), "channel")

    def files(self, place: Path) -> Figures:
        """Take rows from Parquet files."""
        (place / "in").mkdir()
        reader = self._spark.readStream.schema("sent BIGINT").format("parquet")
        return self._measure(place, reader.load(str(place / "in")), "files")

    def from_socket(self, place: Path) -> Figures:
        """Take lines from a socket."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            lines = self._spark.readStream.format("socket").option("host", "127.0.0.1").option("port", port).load()
            return self._measure(place, lines.selectExpr("CAST(value AS BIGINT) AS sent"), "socket", server)

    def _events(self, kind: str) -> int:
        """Return how many rows a source gets: fewer in its first round."""
        is_first = kind not in self._seen
        self._seen.add(kind)
        return _FIRST_EVENTS if is_first else _EVENTS

    def _measure(self, place: Path, stream: Any, kind: str, server: socket.socket | None = None) -> Figures:
        """Run a query and a producer, and return the rows' figures."""
        found: list[float] = []

        def note(batch: Any, _: int) -> None:
            rows = batch.collect()
            now = time.time_ns()
            found.extend((now - row.sent) / 1e6 for row in rows)

        writer = stream.writeStream.foreachBatch(note)
        query = writer.option("checkpointLocation", str(place / "checkpoint")).start()
        inherited = [] if server is None else [server.fileno()]
        events = self._events(kind)
        command = [sys.executable, "-m", __name__, kind, str(place / "in"), str(events), *map(str, inherited)]
        producer = subprocess.Popen(command, pass_fds=inherited)
        try:
            wait(query, lambda: len(found) >= events or producer.poll() not in (None, 0))
            return _figures(found[_WARM_UP_EVENTS:])
        finally:
            stop(query)
            producer.terminate()
            producer.wait()


def _figures(milliseconds: list[float]) -> Figures:
    found = percentiles(milliseconds)
    return {name: found[name] for name in ("p50", "p99")}


# ── the producer ────────────────────────────────────────────────────────────────────────────────


def _to_channel(send: Callable[[Callable[[int], None]], None], place: str) -> None:
    with ss.Channel(place, create=False) as channel:

        def put(sent: int) -> None:
            with channel.put_transaction() as tx:
                tx.put_batch(pa.record_batch([pa.array([sent])], schema=_SCHEMA))

        send(put)


def _to_files(send: Callable[[Callable[[int], None]], None], place: str) -> None:
    def write(sent: int) -> None:
        hidden = os.path.join(place, f".{sent}")
        pq.write_table(pa.table([pa.array([sent])], schema=_SCHEMA), hidden)
        os.rename(hidden, os.path.join(place, f"{sent}.parquet"))

    send(write)


def _to_socket(send: Callable[[Callable[[int], None]], None], descriptor: str) -> None:
    with socket.socket(fileno=int(descriptor)) as server:
        connection, _ = server.accept()  # Spark connects twice: once to look
        with connection:
            send(lambda sent: connection.sendall(b"%d\n" % sent))


def _send(commit: Callable[[int], None]) -> None:
    moments = random.Random(0)
    for _ in range(int(sys.argv[3])):
        time.sleep(moments.uniform(*_GAP_SECONDS))
        commit(time.time_ns())
    time.sleep(_LONGEST_SECONDS)  # until it is terminated: a socket that closes would be an end


if __name__ == "__main__":
    if sys.argv[1] == "channel":
        _to_channel(_send, sys.argv[2])
    elif sys.argv[1] == "files":
        _to_files(_send, sys.argv[2])
    else:
        _to_socket(_send, sys.argv[4])
