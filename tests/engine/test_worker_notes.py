"""What workers say of themselves, on a disk and in a store."""

from __future__ import annotations

from pathlib import Path

import pytest

from spillable_stream import Channel
from spillable_stream.engine.worker_notes import WORKER_MARK
from tests.support.events import put, take


@pytest.mark.parametrize("place", ["{}/orders", "object+file://{}/orders"])
def test_what_was_said_last_is_read_by_whoever_looks(place: str, tmp_path: Path) -> None:
    path = place.format(tmp_path)
    with Channel(path) as channel:
        put(channel, b"a")
        take(channel, 1, "g")
        note = channel.engine().worker_notes.open("g")
        assert note is not None
        note.write(b"a longer value")
        note.close(b"short")
        with Channel(path, create=False, readonly=True) as looking:
            assert looking.engine().worker_notes.read() == {"g": b"short"}


@pytest.mark.parametrize("place", ["{}/orders", "object+file://{}/orders"])
def test_the_note_about_an_owner_says_that_it_is_a_worker(place: str, tmp_path: Path) -> None:
    notes: list[str] = []
    with Channel(place.format(tmp_path)) as channel:
        put(channel, b"a")

        def look(event: object) -> None:
            notes.append(channel.engine().owners.look("g").note)

        with channel.worker("g", look) as worker:
            worker.run(until_empty=True)
        take(channel, 1, "h")
        notes.append(channel.engine().owners.look("h").note)
    assert [WORKER_MARK in note for note in notes] == [True, False]
