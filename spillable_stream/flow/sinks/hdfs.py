"""The sink ``hdfs``: files by path and time, on this host, in Hadoop's file system, or in an object store."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spillable_stream.errors import OptionError
from spillable_stream.flow.checked_arguments import Count, OneOf, Size, checked
from spillable_stream.flow.event_batch import header
from spillable_stream.flow.sinks.bucket_sink import BucketSink
from spillable_stream.flow.sinks.buckets import Names, RollRules, Times
from spillable_stream.flow.sinks.compression import EXTENSIONS, compressor
from spillable_stream.flow.sinks.open_file import Content
from spillable_stream.flow.sinks.sequence_file import SequenceFileEncoder
from spillable_stream.flow.sinks.serializers import Serializer
from spillable_stream.flow.sinks.serializers import serializer as serializer_of
from spillable_stream.shown_value import shown

__all__ = ["Hdfs"]


class Hdfs(BucketSink):
    """Writes events into files whose paths come from their headers and times.

    Each event is once in the closed files. A DataStream or a SequenceFile on this host counts batch by batch; a
    CompressedStream, and every file elsewhere, counts when it is closed.

    Args:
        path: the directory, with escapes such as ``%Y`` and ``%{header}``. `destinations.resolve` says where it leads.
        file_prefix: what the names of files begin with, with escapes.
        file_suffix: what they end with; by default the codec's extension.
        in_use_prefix: what the name of a file begins with while it is written.
        in_use_suffix: what it ends with until then.
        empty_in_use_suffix: whether it has no such suffix. A file that counts when it is closed is hidden then while
            it is written.
        roll_interval: after how many seconds a new file begins; 0 for never.
        roll_size: after how many bytes of bodies; 0 for never.
        roll_count: after how many events; 0 for never.
        idle_timeout: after how many seconds without an event a file is closed; 0 for never.
        batch_size: how many events a take has at most.
        file_type: ``SequenceFile``, ``DataStream`` or ``CompressedStream``.
        codec: how a CompressedStream, or a SequenceFile batch by batch, is compressed: gzip, bzip2, zstd, deflate,
            snappy or lz4.
        write_format: the values of a SequenceFile: ``Writable`` or ``Text``.
        round: whether the time in the path is rounded down.
        round_value: to a multiple of how many units.
        round_unit: ``second``, ``minute`` or ``hour``.
        time_zone: the time zone of the path; the host's by default.
        use_local_time_stamp: whether the time is that of the sink rather than the header ``timestamp``.
        max_open_files: how many files are open at most.
        close_tries: how often the naming of a file is tried; 0 for no limit.
        retry_interval: the wait between two such tries, in seconds.
        serializer: how an event is written in a DataStream or CompressedStream; see `FileRoll`.
        serializer_properties: what the serializer is built from, as ``appendNewline``.
        channel: the name of the channel, for `Agent`.
        now: the clock, in seconds since 1970; for tests.

    Raises:
        OptionError: options are not valid, or do not fit together.
    """

    @checked
    def __init__(
        self,
        path: str,
        *,
        file_prefix: str = "FlumeData",
        file_suffix: str = "",
        in_use_prefix: str = "",
        in_use_suffix: str = ".tmp",
        empty_in_use_suffix: bool = False,
        roll_interval: Size = 30,
        roll_size: Size = 1024,
        roll_count: Size = 10,
        idle_timeout: Size = 0,
        batch_size: Count = 100,
        file_type: str = "SequenceFile",
        codec: str | None = None,
        write_format: str = "Writable",
        round: bool = False,
        round_value: Count = 1,
        round_unit: Annotated[str, OneOf("second", "minute", "hour")] = "second",
        time_zone: str | None = None,
        use_local_time_stamp: bool = False,
        max_open_files: Count = 5000,
        close_tries: Size = 0,
        retry_interval: Size = 180,
        serializer: str | Serializer = "TEXT",
        serializer_properties: Mapping[str, str] | None = None,
        channel: str = "",
        now: Callable[[], float] = time.time,
    ) -> None:
        kind = _checked_kind(file_type, codec, write_format)
        encoder = serializer_of(serializer, serializer_properties) if isinstance(serializer, str) else serializer
        makers: dict[str, Callable[[], Content]] = {
            "sequencefile": lambda: _Sequence(write_format, codec, self),
            "datastream": lambda: _Text(encoder),
            "compressedstream": lambda: _Compressed(encoder, codec or ""),
        }
        super().__init__(
            path,
            file_prefix,
            names=Names(
                file_suffix or (EXTENSIONS[codec.lower()] if codec else ""),
                in_use_prefix,
                "" if empty_in_use_suffix else in_use_suffix,
            ),
            rolling=RollRules(roll_interval, roll_size, roll_count, idle_timeout),
            times=Times.of_options(
                time_zone, round_unit if round else None, round_value, use_local_time_stamp=use_local_time_stamp
            ),
            content=makers[kind],
            can_be_cut=kind != "compressedstream",
            max_open_files=max_open_files,
            close_tries=close_tries,
            retry_interval=retry_interval,
            batch_size=batch_size,
            channel=channel,
            now=now,
        )


def _checked_kind(file_type: str, codec: str | None, write_format: str) -> str:
    """Return the file type in lower case; refuse options that do not fit together."""
    kind = file_type.lower()
    if kind not in ("sequencefile", "datastream", "compressedstream"):
        raise OptionError(
            f"there is no file type {shown(file_type)}; give SequenceFile, DataStream or CompressedStream"
        )
    if kind == "compressedstream" and not codec:
        raise OptionError("a CompressedStream needs a codec; give hdfs.codeC = gzip")
    if codec:
        compressor(codec)
        if kind == "datastream":
            raise OptionError("a DataStream is not compressed; give hdfs.fileType = CompressedStream, or no hdfs.codeC")
    if write_format.capitalize() not in ("Writable", "Text"):
        raise OptionError(f"there is no write format {shown(write_format)}; give Writable or Text")
    return kind


class _Text(Content):
    """A DataStream."""

    def __init__(self, encoder: Serializer) -> None:
        self.encode = encoder.encode  # type: ignore[method-assign]


class _Compressed(Content):
    """A CompressedStream."""

    def __init__(self, encoder: Serializer, codec: str) -> None:
        self._encoder, self._stream = encoder, compressor(codec)

    def encode(self, batch: pa.RecordBatch) -> pa.Buffer | bytes:
        return self._stream.compress(bytes(self._encoder.encode(batch)))

    def end(self) -> bytes:
        return self._stream.flush()


class _Sequence(Content):
    """A SequenceFile: keys are the events' times."""

    def __init__(self, write_format: str, codec: str | None, sink: Hdfs) -> None:
        self._file = SequenceFileEncoder(write_format.capitalize(), codec)
        self._sink = sink

    def begin(self) -> bytes:
        return self._file.header()

    def encode(self, batch: pa.RecordBatch) -> pa.Buffer | bytes:
        texts = header(batch, "timestamp")
        is_known = pc.match_substring_regex(texts, r"\A[0-9]{1,15}\z").fill_null(False)
        now = str(int(self._sink.now() * 1000))
        times = pc.if_else(is_known, texts, now).cast(pa.int64()).to_numpy(zero_copy_only=False)
        return self._file.encode(batch.column(1), times.astype(np.int64))
