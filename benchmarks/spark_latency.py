"""From a commit in another process to the row in `foreachBatch`: the channel beside Spark's own sources.

A producer sends single rows at random moments, with the time at which it began to commit. The same
query takes them from each source and notes when `collect` in `foreachBatch` returned a row. The
moments come from one seed, so every source meets the same ones, and mostly finds the query idle.

Run as a program this module is the producer.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import spillable_stream as ss

__all__ = ["FILES", "NOOP", "OURS", "SOCKET", "Latencies"]

OURS = "spillable_stream"
SOCKET = "Spark's socket source: memory, no durability"
FILES = "Spark's Parquet file source: a file renamed into its directory, no sync"
NOOP = "Spark's `rate` into `noop`: the whole micro-batch"

_EVENTS = 40
_WARM_UP_EVENTS = 10
_GAP_SECONDS = (0.3, 0.9)
_LONGEST_SECONDS = 120
_SCHEMA = pa.schema([("sent", pa.int64())])


class Latencies:
    """Measures single rows on their way.

    Args:
        spark: the session.
        directory: where to write.
    """

    def __init__(self, spark: Any, directory: Path) -> None:
        self._spark = spark
        self._directory = directory
        self._round = 0

    def contestants(self) -> dict[str, Callable[[], list[float]]]:
        """Return what measures each source: milliseconds of every row after the warm-up."""
        return {NOOP: self.noop, SOCKET: self.socket, FILES: self.files, OURS: self.spillable}

    def noop(self) -> list[float]:
        """Return how long a micro-batch of one row of `rate` into `noop` takes."""
        place = self._place()
        writer = self._spark.readStream.format("rate").option("rowsPerSecond", 1).load().writeStream.format("noop")
        query = writer.option("checkpointLocation", str(place / "checkpoint")).start()
        try:
            wanted = 5 + _EVENTS // 2
            _wait(query, lambda: sum(1 for r in query.recentProgress if r.numInputRows) >= wanted)
            return [float(r.durationMs["triggerExecution"]) for r in query.recentProgress if r.numInputRows][5:]
        finally:
            query.stop()
            shutil.rmtree(place, ignore_errors=True)

    def spillable(self) -> list[float]:
        """Take rows from a channel; each is a transaction, synced."""
        place = self._place()
        with ss.Channel(place / "in", schema=_SCHEMA, minimum_required_space=0):
            pass
        return self._measure(place, self._spark.readStream.format("spillable").load(str(place / "in")), "channel")

    def files(self) -> list[float]:
        """Take rows from Parquet files."""
        place = self._place()
        (place / "in").mkdir()
        reader = self._spark.readStream.schema("sent BIGINT").format("parquet")
        return self._measure(place, reader.load(str(place / "in")), "files")

    def socket(self) -> list[float]:
        """Take lines from a socket."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            lines = self._spark.readStream.format("socket").option("host", "127.0.0.1").option("port", port).load()
            return self._measure(self._place(), lines.selectExpr("CAST(value AS BIGINT) AS sent"), "socket", server)

    def _place(self) -> Path:
        place = self._directory / uuid.uuid4().hex
        place.mkdir()
        return place

    def _measure(self, place: Path, stream: Any, kind: str, server: socket.socket | None = None) -> list[float]:
        """Run a query and a producer, and return each row's milliseconds."""
        found: list[float] = []

        def note(batch: Any, _: int) -> None:
            rows = batch.collect()
            now = time.time_ns()
            found.extend((now - row.sent) / 1e6 for row in rows)

        writer = stream.writeStream.foreachBatch(note)
        query = writer.option("checkpointLocation", str(place / "checkpoint")).start()
        inherited = [] if server is None else [server.fileno()]
        command = [sys.executable, "-m", __name__, kind, str(place / "in"), *map(str, inherited)]
        producer = subprocess.Popen(command, pass_fds=inherited)
        try:
            _wait(query, lambda: len(found) >= _EVENTS or producer.poll() not in (None, 0))
            return found[_WARM_UP_EVENTS:]
        finally:
            query.stop()
            producer.terminate()
            producer.wait()
            shutil.rmtree(place, ignore_errors=True)


def _wait(query: Any, done: Callable[[], bool]) -> None:
    give_up = time.monotonic() + _LONGEST_SECONDS
    while not done():
        if query.exception() is not None:
            raise query.exception()
        if time.monotonic() > give_up:
            raise AssertionError("the rows did not all come through")
        time.sleep(0.05)


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
    for _ in range(_EVENTS):
        time.sleep(moments.uniform(*_GAP_SECONDS))
        commit(time.time_ns())
    time.sleep(_LONGEST_SECONDS)  # until it is terminated: a socket that closes would be an end


if __name__ == "__main__":
    if sys.argv[1] == "channel":
        _to_channel(_send, sys.argv[2])
    elif sys.argv[1] == "files":
        _to_files(_send, sys.argv[2])
    else:
        _to_socket(_send, sys.argv[3])
