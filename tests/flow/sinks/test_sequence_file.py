from __future__ import annotations

import gzip
import struct
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from spillable_stream.errors import OptionError
from spillable_stream.flow.sinks.compression import EXTENSIONS
from spillable_stream.flow.sinks.sequence_file import SequenceFileEncoder

BODIES = [b"", b"a", b"x" * 127, b"y" * 128, b"z" * 70_000, "ü".encode()]


def write(path: Path, write_format: str, rounds: int = 3, codec: str | None = None) -> list[tuple[int, bytes]]:
    encoder, records = SequenceFileEncoder(write_format, codec, marker=b"m" * 16), []
    data = encoder.header()
    for i in range(rounds):
        times = np.arange(len(BODIES)) + 1000 * i
        data += encoder.encode(pa.array(BODIES, pa.binary()), times)
        records += list(zip(times.tolist(), BODIES, strict=True))
    many = pa.array([b"%d" % i for i in range(100)], pa.binary())
    data += encoder.encode(many.slice(10), np.arange(10, 100))
    path.write_bytes(data)
    return records + [(i, b"%d" % i) for i in range(10, 100)]


def vint(data: bytes, at: int) -> tuple[int, int]:
    first = struct.unpack_from("b", data, at)[0]
    if first >= -112:
        return first, at + 1
    size = -112 - first
    return int.from_bytes(data[at + 1 : at + 1 + size], "big"), at + 1 + size


def read(data: bytes, *, text: bool) -> list[tuple[int, bytes]]:
    """Read a file as Hadoop does: the format's own words."""
    assert data[:4] == b"SEQ\x06"
    at, names = 4, []
    for _ in range(2):
        size, at = vint(data, at)
        names.append(data[at : at + size].decode())
        at += size
    value = "Text" if text else "BytesWritable"
    assert names == ["org.apache.hadoop.io.LongWritable", f"org.apache.hadoop.io.{value}"]
    assert data[at : at + 6] == b"\0" * 6
    marker, at = data[at + 6 : at + 22], at + 22
    found = []
    while at < len(data):
        size = struct.unpack_from(">i", data, at)[0]
        if size == -1:
            assert data[at + 4 : at + 20] == marker
            at += 20
            continue
        key_size, time = struct.unpack_from(">iq", data, at + 4)
        assert key_size == 8
        value = data[at + 16 : at + 8 + size]
        length, start = vint(value, 0) if text else (struct.unpack_from(">i", value)[0], 4)
        assert len(value) == start + length
        found.append((time, value[start:]))
        at += 8 + size
    return found


@pytest.mark.parametrize("write_format", ["Writable", "Text"])
def test_a_file_is_what_hadoop_reads(tmp_path: Path, write_format: str) -> None:
    records = write(tmp_path / "f", write_format)
    data = (tmp_path / "f").read_bytes()
    assert read(data, text=write_format == "Text") == records
    assert b"\xff\xff\xff\xff" + b"m" * 16 in data


def column(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = vint(data, at)
    return gzip.decompress(data[at : at + size]), at + size


@pytest.mark.parametrize("write_format", ["Writable", "Text"])
def test_a_file_with_a_codec_has_blocks_of_compressed_columns(tmp_path: Path, write_format: str) -> None:
    records = write(tmp_path / "f", write_format, codec="gzip")
    data = (tmp_path / "f").read_bytes()
    name = b"org.apache.hadoop.io.compress.GzipCodec"
    at = data.index(name) - 3
    assert data[at : at + 3] == b"\x01\x01" + bytes([len(name)])
    at += 3 + len(name) + 4 + 16
    found = []
    while at < len(data):
        assert data[at : at + 20] == b"\xff" * 4 + b"m" * 16
        count, at = vint(data, at + 20)
        key_lengths, at = column(data, at)
        keys, at = column(data, at)
        lengths, at = column(data, at)
        values, at = column(data, at)
        assert key_lengths == b"\x08" * count
        place = in_values = 0
        for time in struct.unpack(f">{count}q", keys):
            size, place = vint(lengths, place)
            value = values[in_values : in_values + size]
            found.append((time, value[vint(value, 0)[1] if write_format == "Text" else 4 :]))
            in_values += size
    assert found == records


def test_a_codec_that_is_not_there_is_refused() -> None:
    with pytest.raises(OptionError, match="lzo"):
        SequenceFileEncoder("Text", "lzo")


@pytest.mark.spark
@pytest.mark.slow
def test_spark_reads_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql import SparkSession

    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)  # a JVM asks its first Python, once, which sources there are
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    session = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    try:
        for write_format, codec in [
            ("Writable", None),
            ("Text", None),
            *(("Text", codec) for codec in EXTENSIONS if codec != "zstd"),
        ]:  # zstd needs Hadoop's native library
            path = tmp_path / f"{write_format}-{codec}"
            records = write(path, write_format, codec=codec)
            found = session.sparkContext.sequenceFile(str(path)).collect()
            assert [
                (key, value.encode() if isinstance(value, str) else bytes(value)) for key, value in found
            ] == records
    finally:
        session.stop()
