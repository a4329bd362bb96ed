"""A note in a small file that is written over in place, without a sync: whoever reads it knows whether it is whole.

::

     0        4        8
    ┌────────┬────────┬───────┐
    │ length │ CRC32C │ value │   CRC32C seeded by what the file is
    └────────┴────────┴───────┘
"""

from __future__ import annotations

import struct

import google_crc32c

__all__ = ["seal", "unseal"]

_HEADER = struct.Struct("<II")


def seal(value: bytes, seed: int) -> bytes:
    """Return the bytes of a file that says a value.

    Args:
        value: the value.
        seed: the checksum's seed, which says what the file is.
    """
    return _HEADER.pack(len(value), google_crc32c.extend(seed, value)) + value


def unseal(data: bytes, seed: int) -> bytes | None:
    """Return the value that the bytes of a file say, or None if they are not whole.

    Args:
        data: the bytes; what follows the value is of an earlier, longer one.
        seed: the checksum's seed.
    """
    if len(data) < _HEADER.size:
        return None
    length, crc = _HEADER.unpack_from(data)
    value = data[_HEADER.size : _HEADER.size + length]
    return value if len(value) == length and crc == google_crc32c.extend(seed, value) else None
