"""The sink ``parquet``: events as rows of Parquet files, in the channel's columns."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any

import pyarrow as pa

from spillable_stream.flow.checked_arguments import Count, OneOf, Size, checked
from spillable_stream.flow.sinks.bucket_sink import BucketSink
from spillable_stream.flow.sinks.buckets import Names, RollRules, Times
from spillable_stream.flow.sinks.open_file import Content

__all__ = ["Parquet"]


class Parquet(BucketSink):
    """Writes Parquet files, with the columns of the channel: ``headers`` and ``body``, or a typed channel's own.

    Each event is once in the closed files: its take is committed when the file has its name. Options are those of
    `Hdfs`, with files that are larger by default.

    Args:
        path: the directory, with escapes; in a typed channel only escapes of time, which are the clock's.
        file_prefix: what the names of files begin with.
        file_suffix: what they end with.
        in_use_suffix: what the name of a file ends with while it is written.
        roll_interval: after how many seconds a new file begins; 0 for never.
        roll_size: after how many bytes of bodies; 0 for never.
        roll_count: after how many events; 0 for never.
        idle_timeout: after how many seconds without an event a file is closed; 0 for never.
        batch_size: how many events a take has at most.
        round: whether the time in the path is rounded down.
        round_value: to a multiple of how many units.
        round_unit: ``second``, ``minute`` or ``hour``.
        time_zone: the time zone of the path; the host's by default.
        use_local_time_stamp: whether the time is that of the sink rather than the header ``timestamp``.
        max_open_files: how many files are open at most.
        close_tries: as `Hdfs`.
        retry_interval: as `Hdfs`.
        compression: how columns are compressed: none, snappy, gzip, zstd, lz4 or brotli.
        row_group_events: how many events a row group has at most.
        channel: the name of the channel, for `Agent`.
        now: the clock, in seconds since 1970; for tests.

    Raises:
        OptionError: options are not valid.
    """

    @checked
    def __init__(
        self,
        path: str,
        *,
        file_prefix: str = "FlumeData",
        file_suffix: str = "",
        in_use_suffix: str = ".tmp",
        roll_interval: Size = 300,
        roll_size: Size = 128 << 20,
        roll_count: Size = 0,
        idle_timeout: Size = 0,
        batch_size: Count = 100,
        round: bool = False,
        round_value: Count = 1,
        round_unit: Annotated[str, OneOf("second", "minute", "hour")] = "second",
        time_zone: str | None = None,
        use_local_time_stamp: bool = False,
        max_open_files: Count = 5000,
        close_tries: Size = 0,
        retry_interval: Size = 180,
        compression: Annotated[str, OneOf("none", "snappy", "gzip", "zstd", "lz4", "brotli")] = "zstd",
        row_group_events: Count = 100_000,
        channel: str = "",
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(
            path,
            file_prefix,
            names=Names(file_suffix or ".parquet", "", in_use_suffix),
            rolling=RollRules(roll_interval, roll_size, roll_count, idle_timeout),
            times=Times.of_options(
                time_zone, round_unit if round else None, round_value, use_local_time_stamp=use_local_time_stamp
            ),
            content=lambda: _Rows(compression, row_group_events),
            can_be_cut=False,
            max_open_files=max_open_files,
            close_tries=close_tries,
            retry_interval=retry_interval,
            batch_size=batch_size,
            channel=channel,
            now=now,
        )


class _Rows(Content):
    """A Parquet file, whose bytes come out row group by row group."""

    def __init__(self, compression: str, row_group_events: int) -> None:
        self._compression, self._most = compression, row_group_events
        self._held: list[pa.RecordBatch] = []
        self._events = 0
        self._bytes = _Outgoing()
        self._writer: Any = None

    def encode(self, batch: pa.RecordBatch) -> pa.Buffer | bytes:
        self._held.append(batch)
        self._events += batch.num_rows
        if self._events >= self._most:
            self._write()
        return self._bytes.take()

    def _write(self) -> None:
        import pyarrow.parquet as pq

        if self._writer is None:
            schema = self._held[0].schema
            self._writer = pq.ParquetWriter(pa.PythonFile(self._bytes, "w"), schema, compression=self._compression)
        self._writer.write_table(pa.Table.from_batches(self._held), row_group_size=self._most)
        self._held, self._events = [], 0

    def end(self) -> bytes:
        if self._held:
            self._write()
        if self._writer is not None:
            self._writer.close()
        return self._bytes.take()


class _Outgoing:
    """Collects what a writer writes."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._written = 0

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        self._written += len(data)
        return len(data)

    def tell(self) -> int:
        return self._written

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def take(self) -> bytes:
        found, self._parts = b"".join(self._parts), []
        return found
