"""Compressed streams that Hadoop and Spark read, by Flume's names of codecs."""

from __future__ import annotations

import bz2
import struct
import zlib
from typing import Protocol

import pyarrow as pa

from spillable_stream.errors import OptionError

__all__ = ["EXTENSIONS", "JAVA_CLASSES", "Compressor", "compressed", "compressor"]

EXTENSIONS = {"gzip": ".gz", "bzip2": ".bz2", "zstd": ".zst", "deflate": ".deflate", "snappy": ".snappy", "lz4": ".lz4"}
"""The codecs that are there, each with the extension of its files."""

_PACKAGE = "org.apache.hadoop.io.compress"
JAVA_CLASSES = {
    "gzip": f"{_PACKAGE}.GzipCodec",
    "bzip2": f"{_PACKAGE}.BZip2Codec",
    "zstd": f"{_PACKAGE}.ZStandardCodec",
    "deflate": f"{_PACKAGE}.DefaultCodec",
    "snappy": f"{_PACKAGE}.SnappyCodec",
    "lz4": f"{_PACKAGE}.Lz4Codec",
}
"""The class of Hadoop's that reads what each codec writes."""

_BLOCK_BYTES = 256 << 10


class Compressor(Protocol):
    """Compresses a stream."""

    def compress(self, data: bytes, /) -> bytes:
        """Return the next compressed bytes, as far as they are there."""

    def flush(self) -> bytes:
        """Return the last compressed bytes."""


class _Blocks:
    """Hadoop's framing for codecs of blocks: the length of a block, and that of its compressed form, before each."""

    def __init__(self, codec: str) -> None:
        self._codec = codec

    def compress(self, data: bytes, /) -> bytes:
        return b"".join(self._block(data[i : i + _BLOCK_BYTES]) for i in range(0, len(data), _BLOCK_BYTES))

    def _block(self, data: bytes) -> bytes:
        packed = bytes(pa.compress(data, codec=self._codec, asbytes=True))
        return struct.pack(">ii", len(data), len(packed)) + packed

    def flush(self) -> bytes:
        return b""


class _Frames:
    """A frame for each piece of the stream."""

    def compress(self, data: bytes, /) -> bytes:
        return bytes(pa.compress(data, codec="zstd", asbytes=True))

    def flush(self) -> bytes:
        return b""


def compressor(codec: str) -> Compressor:
    """Return a new compressor.

    Raises:
        OptionError: there is none for the codec.
    """
    name = codec.lower()
    if name == "gzip":
        return zlib.compressobj(wbits=31)
    if name == "deflate":
        return zlib.compressobj()
    if name == "bzip2":
        return bz2.BZ2Compressor()
    if name == "zstd":
        return _Frames()
    if name in ("snappy", "lz4"):
        return _Blocks("snappy" if name == "snappy" else "lz4_raw")
    raise OptionError(f"files can't be compressed with {codec}; give one of {', '.join(EXTENSIONS)}")


def compressed(data: bytes, codec: str) -> bytes:
    """Return bytes compressed as one stream.

    Raises:
        OptionError: there is no such codec.
    """
    stream = compressor(codec)
    return stream.compress(data) + stream.flush()
