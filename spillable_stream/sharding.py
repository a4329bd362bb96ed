"""Which of several channels a key belongs to: one rule for a producer and for Spark's sink.

A key's hash lies in one of a number of equal ranges, its *bucket*, and the channels share the buckets in order (the
Aliyun LOG Java Producer's rule). So whichever writes a key, it is in the same channel.
"""

from __future__ import annotations

import hashlib

__all__ = ["HASH_BITS", "shard_hash", "shard_of_hash", "shard_of_key"]

HASH_BITS = 128


def shard_hash(key: str | bytes, buckets: int) -> str:
    """Return the lowest hash of a key's bucket, as 32 hexadecimal digits.

    Args:
        key: any text, or its UTF-8; or other bytes.
        buckets: the number of buckets; a power of two.
    """
    kept_bits = buckets.bit_length() - 1
    return f"{_digest(key) >> HASH_BITS - kept_bits << HASH_BITS - kept_bits:032x}"


def shard_of_hash(hash_value: int, buckets: int, shards: int) -> int:
    """Return the number of the channel, from 0, whose buckets include a hash.

    Args:
        hash_value: a hash of 128 bits.
        buckets: the number of buckets; a power of two.
        shards: how many channels share them; no more than the buckets.
    """
    return (hash_value * buckets >> HASH_BITS) * shards // buckets


def shard_of_key(key: str | bytes, buckets: int, shards: int) -> int:
    """Return the number of the channel, from 0, to which a key belongs; the arguments are as above."""
    return shard_of_hash(_digest(key), buckets, shards)


def _digest(key: str | bytes) -> int:
    text = key.encode() if isinstance(key, str) else key
    return int.from_bytes(hashlib.md5(text, usedforsecurity=False).digest())
