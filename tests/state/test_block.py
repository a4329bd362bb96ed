from __future__ import annotations

from spillable_stream.format.expiry import Expiry
from spillable_stream.state.block import NO_END, Block


def test_an_extent_is_of_the_events_that_are_in_the_block() -> None:
    block = Block(11, 10, 1, 64, 500, 7)
    found = [block.extent(*r) for r in ((1, NO_END), (13, 15), (15, 40))]
    assert [(e.first_id, e.last_id) for e in found] == [(11, 20), (13, 15), (15, 20)]
    assert {(e.file, e.offset) for e in found} == {(1, 64)}


def test_only_a_segments_extent_says_its_transaction_and_time() -> None:
    log, segment = Block(1, 1, 1, 0, 1, 7), Block(1, 1, "segment.a", 0, 1, 7, 3, 9, 2)
    assert (log.extent().transaction_id, log.extent().time_us) == (0, 0)
    assert (segment.extent().transaction_id, segment.extent().time_us) == (9, 7)


def test_an_image_says_no_more_than_it_must_and_reads_back() -> None:
    block = Block(1, 2, 3, 4, 5, 6)
    sizes = []
    for until_us, expiry in ((0, Expiry(0, 0)), (7, Expiry(0, 0)), (7, Expiry(8, 9))):
        block.until_us = until_us
        block.expire(expiry)
        sizes.append(len(block.image()))
        assert Block(*block.image()) == block  # type: ignore[arg-type]
    assert sizes == [9, 10, 12]
