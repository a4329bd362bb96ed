"""What a producer is told: the options of `spillable_stream.options`, checked one by one and against each other."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from dataclasses import dataclass

from spillable_stream.channel.ttl import ttl_us
from spillable_stream.errors import OptionError
from spillable_stream.option_names import named
from spillable_stream.options import PRODUCER, defaults, parse_options

__all__ = ["LINGER_MS", "LOCAL_LINGER_MS", "ProducerConfig"]

LINGER_MS = 2_000
LOCAL_LINGER_MS = 20


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """The options of one producer; `spillable_stream.options` says what each is."""

    total_size_in_bytes: int
    max_block_ms: int
    io_thread_count: int
    batch_size_threshold_in_bytes: int
    batch_count_threshold: int
    linger_ms: int
    retries: int
    max_reserved_attempts: int
    base_retry_backoff_ms: int
    max_retry_backoff_ms: int
    adjust_shard_hash: bool
    buckets: int
    context_headers: bool
    ttl: float | None

    @property
    def ttl_us(self) -> int:
        """The ttl of events whose send says nothing else, in microseconds; 0 for none."""
        return ttl_us(self.ttl)

    @classmethod
    def of(cls, given: Mapping[str, object], *, local: bool, max_events: int, channels: int = 1) -> ProducerConfig:
        """Return the configuration that was given, filled with defaults that fit it.

        Args:
            given: options by name.
            local: whether all targets are channels of this host.
            max_events: the most events that a target takes at once.
            channels: how many channels share the keys.

        Raises:
            OptionError: an unknown name, a value out of range, or two that contradict each other.
        """
        parsed = parse_options(given, {PRODUCER}, where="a producer", beside=("producer_id", "dead_letter"))
        values = {**defaults(PRODUCER), **parsed}
        total, most_backoff_ms = values["total_size_in_bytes"], values["max_retry_backoff_ms"]
        fitting = {
            "io_thread_count": os.cpu_count() or 1,
            "linger_ms": LOCAL_LINGER_MS if local else LINGER_MS,
            "max_reserved_attempts": values["retries"] + 1,
            "batch_size_threshold_in_bytes": min(values["batch_size_threshold_in_bytes"], total),
            "batch_count_threshold": min(values["batch_count_threshold"], max_events),
            "base_retry_backoff_ms": min(values["base_retry_backoff_ms"], most_backoff_ms),
        }
        config = cls(**{**values, **fitting, **parsed})
        config._check("batch_size_threshold_in_bytes", total, "total_size_in_bytes")
        of_channel = f"the most events of one transaction ({named('transactionCapacity')})"
        config._check("batch_count_threshold", max_events, of_channel)
        config._check("base_retry_backoff_ms", most_backoff_ms, "max_retry_backoff_ms")
        if config.buckets < channels:
            raise OptionError(
                f"buckets is {config.buckets}, but there are {channels} channels: some would get no event"
            )
        return config

    def _check(self, name: str, most: int, whose: str) -> None:
        if getattr(self, name) > most:
            raise OptionError(f"{name} is {getattr(self, name):,}, which is more than {whose}, {most:,}")

    def backoff_seconds(self, retry: int, rng: random.Random) -> float:
        """Return how long the ``retry``-th retry waits, counted from 1: doubled each time, half of it by chance.

        Raises:
            ValueError: ``rng`` is none: its number is not from 0 to 1.
        """
        longest_ms = min(self.base_retry_backoff_ms << min(retry - 1, 64), self.max_retry_backoff_ms)
        chance = rng.random()
        if not 0 <= chance <= 1:
            raise ValueError(f"the rng of a producer must return numbers from 0 to 1, not {chance!r}")
        return longest_ms * (1 + chance) / 2000
