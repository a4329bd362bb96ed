"""What the state knows of events that wait."""

from __future__ import annotations

from spillable_stream.format.commit_record import DelayedRun, DeliveredRun
from spillable_stream.format.packing import pack, unpack
from spillable_stream.state.delays import Delays


def run(file: int, start: int, end: int, count: int, first_ms: int) -> DelayedRun:
    return DelayedRun(file, 0, 1 << 16, start, end, count, 100 * count, first_ms)


def test_what_waits_is_counted_until_it_is_delivered() -> None:
    delays = Delays()
    assert (delays.next_ms, delays.image()) == (None, {})
    delays.apply([run(1, 0, 500, 3, 40), run(2, 0, 300, 1, 20)], [])
    assert (delays.events, delays.payload_bytes, delays.next_ms, delays.next_number) == (4, 400, 20, 3)
    assert [delays.are_due(ms) for ms in (19, 20)] == [False, True]
    delays.apply([], [DeliveredRun(2, 20, 100, 0, 1, 0), DeliveredRun(1, 40, 100, 0, 1, 45)])
    assert (list(delays.files), delays.events, delays.payload_bytes, delays.next_ms) == ([1], 2, 200, 45)
    delays.apply([], [DeliveredRun(1, 50, 300, 0, 2, 0)])
    assert (delays.files, delays.events, delays.next_ms, delays.next_number) == ({}, 0, None, 3)


def test_an_image_is_read_as_it_was_written() -> None:
    delays = Delays()
    delays.apply([run(1, 0, 500, 3, 40), run(3, 100, 300, 1, 20)], [DeliveredRun(1, 40, 100, 0, 1, 45)])
    image = unpack(pack(delays.image()))
    again = Delays(*image["delays"])
    assert (again.files, again.events, again.next_number) == (delays.files, delays.events, 4)


def test_what_is_known_already_changes_nothing() -> None:
    """A repair replays a damaged log on a state that may be later."""
    delays = Delays()
    delays.apply([run(1, 0, 500, 3, 40), run(2, 0, 300, 1, 20)], [DeliveredRun(2, 20, 100, 0, 1, 0)])
    before = dict(delays.files)
    delays.apply([run(1, 0, 500, 3, 40), run(2, 0, 300, 1, 20)], [DeliveredRun(2, 20, 100, 0, 1, 0)])
    assert delays.files == before


def test_what_is_missing_before_events_is_a_hole() -> None:
    delays = Delays()
    delays.apply([run(1, 0, 500, 3, 40), run(1, 700, 900, 1, 50)], [])
    assert delays.files[1].holes == ((500, 700),)
    assert delays.events == 4


def test_a_file_stays_until_a_delivery_says_that_nothing_waits_in_it() -> None:
    """A repair may not know of all events: the COMMIT of some of them was damaged."""
    delays = Delays()
    delays.apply([run(1, 0, 500, 3, 40)], [DeliveredRun(1, 30, 700, 0, 4, 40)])
    assert (delays.events, delays.next_ms) == (1, 40)
    delays.apply([], [DeliveredRun(1, 40, 100, 0, 3, 0)])
    assert delays.files == {}


def test_an_object_has_its_key_in_the_image_and_a_file_has_none() -> None:
    delays = Delays()
    delays.apply([run(1, 0, 500, 3, 40), run(2, 0, 300, 1, 20)._replace(name="segments/x")], [])
    assert delays.names() == {"segments/x"}
    assert [len(row) for row in unpack(pack(delays.image()))["delays"][1]] == [9, 10]
    again = Delays(*unpack(pack(delays.image()))["delays"])
    assert again.files == delays.files
    again.apply([], [DeliveredRun(2, 20, 100, 0, 1, 0)])
    assert again.names() == set()
