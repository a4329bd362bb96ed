"""What a handle knows of the channel that it holds: the recovery under whose token it appends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from spillable_stream import Channel
from tests.support.events import put
from tests.support.fake_files import FaultyFileSystem

Open = Callable[..., Channel]


def test_handles_of_a_recovery_that_came_while_one_was_parked_append_under_its_token(
    path: Path, open_channel: Open
) -> None:
    """Each append would say its own token, and 32 of them would be all that the channel knows."""
    parked = open_channel()
    put(parked, b"a")
    parked.park()
    with (path / "head").open("r+b") as head:  # one slot of two: what is left is older than the log
        head.write(b"\xff" * 40)
    other = open_channel()
    put(other, b"b")
    resumed = parked if parked.resume() else open_channel()
    for _ in range(3):
        put(resumed, b"c")
        put(other, b"d")
    recoveries = other.engine().state.recoveries
    assert [recovery.last_id for recovery in recoveries] == [0, 1]


def test_a_handle_that_recovers_without_room_for_its_note_has_a_token_and_whoever_joins_says_none(
    path: Path, open_channel: Open
) -> None:
    before = open_channel()
    put(before, b"a")
    before.close()
    fs = FaultyFileSystem()
    with fs.failing(lambda call: call == ("store", "open.lock")):
        first = open_channel(fs=fs)
    other = open_channel()
    for channel in (first, other, first, other):
        put(channel, b"a")
    assert [recovery.last_id for recovery in other.engine().state.recoveries] == [0, 1]
    first.park()
    assert not first.resume(), "others may have recovered it meanwhile and have no token either"


def test_a_note_that_cannot_be_read_after_a_recovery_keeps_no_channel_from_being_opened(
    open_channel: Open,
) -> None:
    open_channel().close()
    fs = FaultyFileSystem()
    with fs.failing(lambda call: call == ("load", "open.lock")):
        put(open_channel(fs=fs), b"a")
