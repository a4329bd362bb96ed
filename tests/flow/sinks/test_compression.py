from __future__ import annotations

import bz2
import gzip
import struct
import zlib

import pyarrow as pa
import pytest

from spillable_stream.errors import OptionError
from spillable_stream.flow.sinks.compression import EXTENSIONS, compressor


def blocks(data: bytes, codec: str) -> bytes:
    found, at = b"", 0
    while at < len(data):
        whole, packed = struct.unpack_from(">ii", data, at)
        found += pa.decompress(data[at + 8 : at + 8 + packed], whole, codec, asbytes=True)
        at += 8 + packed
    return found


READERS = {
    "gzip": gzip.decompress,
    "bzip2": bz2.decompress,
    "deflate": zlib.decompress,
    "zstd": lambda data: pa.input_stream(pa.py_buffer(data), compression="zstd").read(),
    "snappy": lambda data: blocks(data, "snappy"),
    "lz4": lambda data: blocks(data, "lz4_raw"),
}


@pytest.mark.parametrize("codec", EXTENSIONS)
def test_what_was_compressed_can_be_read(codec: str) -> None:
    pieces = [b"a" * 10, bytes(range(256)) * 3000, b"end"]
    stream = compressor(codec)
    data = b"".join(stream.compress(p) for p in pieces) + stream.flush()
    assert READERS[codec](data) == b"".join(pieces)


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(OptionError, match="lzo"):
        compressor("lzo")
