"""Which of several channels a key belongs to."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillable_stream.options import BUCKETS, MOST_BUCKETS
from spillable_stream.sharding import shard_hash, shard_of_hash, shard_of_key


@pytest.mark.parametrize(
    ("key", "buckets", "expected"),
    [
        ("127.0.0.1", 64, "f4000000000000000000000000000000"),
        ("", 64, "d4000000000000000000000000000000"),
        ("127.0.0.1", 1, "00000000000000000000000000000000"),
        ("", 512, "d4000000000000000000000000000000"),
    ],
)
def test_hashes_are_those_of_the_aliyun_log_producer(key: str, buckets: int, expected: str) -> None:
    assert shard_hash(key, buckets) == expected
    assert shard_hash(key.encode(), buckets) == expected


@pytest.mark.parametrize(
    ("key", "shards", "expected"), [("127.0.0.1", 4, 3), ("", 4, 3), ("a", 4, 0), ("b", 4, 2), ("c", 4, 1), ("c", 1, 0)]
)
def test_a_key_has_the_same_shard_forever(key: str, shards: int, expected: int) -> None:
    """Stored events are where this says: no version may say otherwise."""
    assert shard_of_key(key, BUCKETS, shards) == expected


@given(st.text(), st.sampled_from([1, 2, 64, 512]), st.data())
def test_a_key_and_the_hash_of_its_bucket_belong_to_one_shard(key: str, buckets: int, data: st.DataObject) -> None:
    shards = data.draw(st.integers(1, buckets))
    found = shard_of_key(key, buckets, shards)
    assert found == shard_of_key(key.encode(), buckets, shards)
    assert found == shard_of_hash(int(shard_hash(key, buckets), 16), buckets, shards)
    assert 0 <= found < shards


@pytest.mark.parametrize(("buckets", "shards"), [(BUCKETS, 3), (BUCKETS, 64), (MOST_BUCKETS, 65), (MOST_BUCKETS, 256)])
def test_every_shard_has_about_as_many_buckets(buckets: int, shards: int) -> None:
    counts = Counter(
        shard_of_hash(bucket << 128 - buckets.bit_length() + 1, buckets, shards) for bucket in range(buckets)
    )
    assert sorted(counts) == list(range(shards))
    assert max(counts.values()) - min(counts.values()) <= 1
