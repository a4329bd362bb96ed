"""The head's bytes: what is packed is parsed, whatever half of it is damaged."""

from __future__ import annotations

import pytest

from spillable_stream.format.head_page import (
    DISOWNED,
    HEAD_SIZE_BYTES,
    HOST_OFFSET,
    MARK_OFFSET,
    CommitPoint,
    HeadSlot,
    HeadState,
    TierEnd,
    disowned,
    is_half_damaged,
    pack_host,
    pack_mark,
    pack_slot,
    parse_head,
    parse_host,
    parse_mark,
    slot_offset,
)

BOOT = bytes(range(16))


def slot(sequence: int, checkpoint_ms: int = 1_700_000_000_123) -> HeadSlot:
    point = CommitPoint(TierEnd(1, 100 * sequence), TierEnd(2, 5), sequence, checkpoint_ms, 7)
    return HeadSlot(sequence, BOOT, point)


def page(*slots: HeadSlot, mark: int = 0, host: str = "") -> bytes:
    data = bytearray(HEAD_SIZE_BYTES)
    for one in slots:
        packed = pack_slot(one)
        data[slot_offset(one.sequence) : slot_offset(one.sequence) + len(packed)] = packed
    data[MARK_OFFSET : MARK_OFFSET + len(pack_mark(mark, 7))] = pack_mark(mark, 7)
    data[HOST_OFFSET : HOST_OFFSET + len(pack_host(host))] = pack_host(host)
    return bytes(data)


def test_the_newer_of_two_slots_counts_wherever_it_is() -> None:
    for newer in (3, 4):
        assert parse_head(page(slot(newer - 1), slot(newer))) == slot(newer)
    assert parse_head(bytes(HEAD_SIZE_BYTES)) is None and parse_head(b"") is None


def test_the_time_of_a_checkpoint_that_an_earlier_release_wrote_is_in_seconds() -> None:
    assert parse_head(page(slot(3, 1_700_000_000))) == slot(3, 1_700_000_000_000)


@pytest.mark.parametrize("bit", range(0, 8 * len(pack_slot(slot(4))), 7))
def test_a_flipped_bit_in_the_newer_slot_leaves_the_older_one(bit: int) -> None:
    data = bytearray(page(slot(3), slot(4)))
    data[slot_offset(4) + bit // 8] ^= 1 << bit % 8
    assert parse_head(bytes(data)) == slot(3)
    assert is_half_damaged(bytes(data))


def test_slots_that_were_written_in_turn_are_not_half_damaged() -> None:
    assert not is_half_damaged(page(slot(3), slot(4)))
    assert not is_half_damaged(page(slot(1)))  # the second is yet to be written
    assert is_half_damaged(page(slot(2), slot(5)))


def test_mark_and_host_are_told_also_of_a_head_that_was_cut_short() -> None:
    data = page(slot(3), mark=4, host="höst")
    assert (parse_mark(data), parse_host(data)) == ((4, 7), "höst")
    assert (parse_mark(data[:100]), parse_host(data[:100])) == ((0, 0), "")
    assert len(pack_host("x" * 1000)) == HEAD_SIZE_BYTES - HOST_OFFSET


def test_a_disowned_head_keeps_what_it_says_and_is_of_no_boot() -> None:
    found = parse_head(disowned(page(slot(3), slot(4)), BOOT))
    assert found == slot(4)._replace(boot=DISOWNED)
    assert parse_head(disowned(page(slot(3), slot(4)), b"\1" * 16)) == slot(4)


def test_an_append_under_way_shows_in_the_state_of_each_tier_that_there_is() -> None:
    point = CommitPoint(TierEnd(1, 100), TierEnd(0, 0))
    assert point.is_clean() and not point.appending().is_clean()
    assert point.appending().memory == TierEnd(0, 0)
    failed = TierEnd(1, 100, HeadState.SYNC_FAILED)
    assert failed.appending() == failed
