"""What a producer is told is checked, one by one and against each other."""

from __future__ import annotations

import os
from typing import Any

import pytest

from spillable_stream import Producer
from spillable_stream.errors import OptionError
from spillable_stream.producer.config import ProducerConfig
from tests.support.fake_targets import FakeTarget


def config(local: bool = True, max_events: int = 10_000, **given: Any) -> ProducerConfig:
    return ProducerConfig.of(given, local=local, max_events=max_events)


def test_defaults_are_the_models_but_for_a_shorter_linger_to_channels_of_this_host() -> None:
    assert config() == ProducerConfig(
        total_size_in_bytes=104_857_600,
        max_block_ms=60_000,
        io_thread_count=os.cpu_count() or 1,
        batch_size_threshold_in_bytes=524_288,
        batch_count_threshold=4096,
        linger_ms=20,
        retries=10,
        max_reserved_attempts=11,
        base_retry_backoff_ms=100,
        max_retry_backoff_ms=50_000,
        adjust_shard_hash=True,
        buckets=64,
        context_headers=True,
        ttl=None,
    )
    assert config(local=False).linger_ms == 2_000


def test_what_was_not_given_fits_what_was() -> None:
    assert config(retries=3).max_reserved_attempts == 4
    assert config(total_size_in_bytes=1000).batch_size_threshold_in_bytes == 1000
    assert config(max_events=100).batch_count_threshold == 100
    assert config(max_retry_backoff_ms=10).base_retry_backoff_ms == 10


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"total_size_in_bytes": 1000, "batch_size_threshold_in_bytes": 1001},
            "batch_size_threshold_in_bytes is 1,001, which is more than total_size_in_bytes, 1,000",
        ),
        (
            {"base_retry_backoff_ms": 200, "max_retry_backoff_ms": 100},
            "base_retry_backoff_ms is 200, which is more than max_retry_backoff_ms, 100",
        ),
        ({"batch_count_threshold": 10_001}, r"is 10,001, which is more than .*\(transaction_capacity\), 10,000"),
        ({"lingerms": 5, "linger_ms": 5}, "linger_ms is given twice"),
        ({"linger": 5}, "'linger' is not an option of a producer; the nearest is 'linger_ms'"),
        ({"keep_alive": 5}, "keep_alive is not an option of a producer but of a channel"),
        (
            {"total_size_in_bytes": 0},
            "total_size_in_bytes must be bytes, or a number with KiB, MiB, GiB or TiB; 1 or more, not 0",
        ),
        ({"buckets": 3}, "buckets must be a power of two, 1 to 512, not 3"),
    ],
)
def test_values_that_cannot_be_meant_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        config(**given)


@pytest.mark.parametrize("producer_id", ["", "a/b", ".hidden", "~passing", "x" * 129])
def test_a_producers_name_is_one_that_a_file_can_have(producer_id: str) -> None:
    with pytest.raises(OptionError, match="producer_id must be letters"):
        Producer(FakeTarget(), producer_id=producer_id)


def test_what_was_opened_is_closed_when_a_producer_is_refused() -> None:
    target = FakeTarget()
    with pytest.raises(OptionError):
        Producer(target, buckets=3)
    assert target.closed == 1
