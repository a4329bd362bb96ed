"""The rules of the memory tier."""

from __future__ import annotations

import pytest

from spillable_stream.format.file_names import Tier
from spillable_stream.state.spill_rules import TierUsage, choose_tier, free_percent, overflow_lasts, payload_limit


def test_a_tier_is_within_its_limits_in_events_and_in_bytes() -> None:
    limits = TierUsage(10, 1000)
    assert TierUsage(10, 1000).is_within(limits)
    assert not TierUsage(11, 0).is_within(limits)
    assert not TierUsage(0, 1001).is_within(limits)
    assert TierUsage(4, 5).plus(TierUsage(1, 2)) == TierUsage(5, 7)


@pytest.mark.parametrize(("buffer_percentage", "expected"), [(0, 1000), (20, 800), (100, 0)])
def test_the_buffer_percentage_is_kept_for_all_but_payloads(buffer_percentage: int, expected: int) -> None:
    assert payload_limit(1000, buffer_percentage) == expected


def test_what_is_free_is_the_lesser_of_events_and_bytes() -> None:
    assert free_percent(TierUsage(5, 100), TierUsage(10, 1000)) == 50
    assert free_percent(TierUsage(1, 900), TierUsage(10, 1000)) == 10
    assert free_percent(TierUsage(0, 0), TierUsage(0, 1000)) == 0


def test_an_overflow_ends_when_enough_is_free() -> None:
    assert overflow_lasts(4.9, 5)
    assert not overflow_lasts(5.0, 5)


LIMITS = TierUsage(10, 1000)


def test_a_put_goes_to_memory_while_that_has_room() -> None:
    assert choose_tier(TierUsage(10, 1000), LIMITS, True, lambda: True) == (Tier.MEMORY, "")


def test_a_put_waits_for_memory_before_it_spills() -> None:
    assert choose_tier(TierUsage(1, 1), LIMITS, True, lambda: False) == (None, "")
    assert choose_tier(TierUsage(1, 1), LIMITS, False, lambda: False) == (Tier.DISK, "full")


def test_a_transaction_that_no_memory_tier_holds_goes_to_disk_at_once() -> None:
    def asked() -> bool:
        raise AssertionError("nothing can make room for it")

    assert choose_tier(TierUsage(11, 1), LIMITS, True, asked) == (Tier.DISK, "large")
    assert choose_tier(TierUsage(1, 1001), LIMITS, False, asked) == (Tier.DISK, "large")
