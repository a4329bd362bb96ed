from __future__ import annotations

from spillable_stream.flow.counters import SourceCounters
from spillable_stream.flow.sources.event_columns import events_of
from spillable_stream.flow.sources.unstored import HeldPiece, Unstored


def piece(body: bytes) -> HeldPiece:
    return HeldPiece(events_of([body], [{}]), SourceCounters())


def test_pieces_keep_their_order_and_why_they_are_there() -> None:
    unstored, pieces = Unstored(), [piece(b"%d" % i) for i in range(4)]
    assert unstored.add(pieces[:2], "full") and unstored.add(pieces[2:3], "")
    assert (unstored.events, unstored.why) == (3, "full")
    assert [*unstored.take()] == pieces[:3] and unstored.events == 0
    unstored.add(pieces[3:], "")
    assert unstored.put_back(pieces[1:3], "closed")
    assert [*unstored.take()] == [*pieces[1:3], pieces[3]] and unstored.why == "closed"


def test_one_that_is_closed_gives_what_it_has_and_keeps_no_more() -> None:
    unstored, first = Unstored(), piece(b"1")
    unstored.add([first], "full")
    assert [*unstored.close()] == [first]
    assert not unstored.add([piece(b"2")], "full") and unstored.events == 0
    assert not unstored.close()
