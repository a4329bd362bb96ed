from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from spillable_stream.engine.owner_note import new_note, note_with, owner_since, ownership_in, said_owner
from spillable_stream.engine.worker_statuses import WORKER_MARK
from spillable_stream.storage.lock import process_note


def test_a_note_says_the_process_and_since_when_it_owns_the_group() -> None:
    note = new_note("for a test")
    assert note.startswith(f"{process_note()} since ") and note.endswith(", for a test")
    since = owner_since(note)
    assert since is not None and since.utcoffset() == timedelta(0)


def test_what_an_owner_adds_replaces_what_it_added_before() -> None:
    first = new_note("for a test, of a kind")
    assert note_with(first, "done") == f"{ownership_in(first)}, done"
    assert note_with(first, "") == ownership_in(first) == ownership_in(ownership_in(first))


@pytest.mark.parametrize("note", ["", "me", "pid 7 on host since then", "pid 7 on host since , for a test"])
def test_a_note_of_another_kind_does_not_say_since_when(note: str) -> None:
    assert owner_since(note) is None


def test_since_when_a_group_is_owned_does_not_depend_on_what_its_owner_adds() -> None:
    note = note_with("pid 7 on host since 2026-01-31T09:30:00+00:00", "slow since yesterday")
    assert owner_since(note) == datetime(2026, 1, 31, 9, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("note", "said"),
    [
        ("", ""),
        ("pid 7 on host since then", "pid 7 on host since then"),
        ("pid 7 on host since then, for a test", "pid 7 on host since then, for a test"),
        (
            "pid 7 on host since then, a worker that stopped; failed 1x1",
            "pid 7 on host since then, a worker that stopped",
        ),
        (f"pid 7 on host since then, {WORKER_MARK}5 events", "pid 7 on host since then, a worker"),
    ],
)
def test_an_owner_is_said_in_words(note: str, said: str) -> None:
    assert said_owner(note) == said
