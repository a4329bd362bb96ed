"""Values as msgpack, and what reading and using them may raise."""

from __future__ import annotations

from typing import Any

import msgpack

from spillable_stream.errors import CorruptionError

__all__ = ["MALFORMED", "NONSENSE", "nonsense", "pack", "unpack"]

NONSENSE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""Exceptions from using a record that has valid checksums, but that no version of this package wrote."""

MALFORMED = (CorruptionError, *NONSENSE)
"""Exceptions from reading and using a record that has valid checksums."""

_FIRST_BYTES = 512  # of a buffer that grows; by default it has 256 KiB, which allocators give back at once


def pack(value: object) -> bytes:
    """Return ``value`` as msgpack."""
    packed: bytes = msgpack.Packer(buf_size=_FIRST_BYTES).pack(value)
    return packed


def unpack(payload: bytes) -> Any:
    """Return the value of a msgpack payload with a valid checksum.

    Raises:
        CorruptionError: the payload is not msgpack.
    """
    try:
        return msgpack.unpackb(payload, raw=False, strict_map_key=False)
    except (*NONSENSE, msgpack.UnpackException) as e:
        raise CorruptionError(f"a record is not valid msgpack: {e}") from e


def nonsense(record: type, error: Exception) -> CorruptionError:
    """Return the error of a record that has valid checksums and is invalid.

    Args:
        record: what it should be.
        error: what its use raised, one of `NONSENSE`.
    """
    return CorruptionError(f"a {record.__name__} is invalid: {type(error).__name__}: {error}")
