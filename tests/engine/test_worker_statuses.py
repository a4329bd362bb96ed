"""What workers say of themselves, on a disk and in a store."""

from __future__ import annotations

from pathlib import Path

import pytest

from spillable_stream import Channel, GroupOwnedError
from spillable_stream.engine.worker_statuses import WORKER_MARK
from tests.support.events import put, take
from tests.support.forks import in_child


@pytest.mark.parametrize("place", ["{}/orders", "object+file://{}/orders"])
def test_what_was_said_last_is_read_by_whoever_looks(place: str, tmp_path: Path) -> None:
    path = place.format(tmp_path)
    with Channel(path) as channel:
        put(channel, b"a")
        take(channel, 1, "g")
        writer = channel.engine().worker_statuses.open("g")
        assert writer is not None
        writer.write(b"a longer value")
        writer.close(b"short")
        with Channel(path, create=False, readonly=True) as looking:
            assert looking.engine().worker_statuses.read() == {"g": b"short"}


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


@pytest.mark.parametrize("place", ["{}/orders", "object+file://{}/orders"])
def test_a_group_that_was_dropped_leaves_no_status_to_one_that_is_created_anew(place: str, tmp_path: Path) -> None:
    """Whoever drops it, and whoever looks: also a handle that has read the status before."""
    path = place.format(tmp_path)
    with Channel(path) as channel:
        put(channel, b"a")
        with channel.worker("g", lambda event: None) as worker:
            worker.run(until_empty=True)
    with Channel(path, create=False, readonly=True) as looking:
        assert [w.group for w in looking.stats().workers] == ["g"]
        with Channel(path) as other:
            other.drop_group("g")
            assert not list(tmp_path.rglob("*g.worker")) + list(tmp_path.rglob("workers/*g"))
            other.consumer("g")
        assert looking.stats().workers == ()
    with Channel(path, create=False, readonly=True) as looking:
        assert looking.stats().workers == ()


@pytest.mark.parametrize("place", ["{}/orders", "object+file://{}/orders"])
def test_a_group_without_a_worker_is_dropped_as_before(place: str, tmp_path: Path) -> None:
    with Channel(place.format(tmp_path)) as channel:
        put(channel, b"a")
        take(channel, 1, "g")
        channel.drop_group("g")
        assert "g" not in channel.stats().groups


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_refusal_says_of_a_worker_that_it_is_one_and_not_what_it_notes_for_the_next_one(
    tmp_path: Path, elsewhere: bool
) -> None:
    with Channel(tmp_path / "orders") as channel, Channel(tmp_path / "orders") as other:
        owner = channel.consumer("g", note=f"{WORKER_MARK}1002 events; calls 5-9,12; failed 1-2x1").owner

        def refused() -> None:
            for call in (lambda: other.consumer("g", owner_timeout_seconds=0), lambda: other.seek("g", "latest")):
                with pytest.raises(GroupOwnedError, match=r" since \S+, a worker[,;] ") as caught:
                    call()
                assert caught.value.owner == owner
                assert "1-2x1" not in str(caught.value)

        if elsewhere:
            in_child(refused)
        else:
            refused()
