"""``groups``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spillable_stream import Channel
from spillable_stream.format.query_note import QueryNote
from tests.support import command_line
from tests.support.command_line import run
from tests.support.events import numbered, peek, put, take


@pytest.fixture
def ten(path: Path) -> Path:
    """A channel with ten events; the group "a" has taken four."""
    with Channel(path, minimum_required_space=0, retention_bytes=1 << 20) as channel:
        channel.consumer("b").position()
        put(channel, *numbered(1, 10))
        take(channel, 4, "a")
    return path


def position(path: Path, group: str) -> int:
    with Channel(path, create=False, readonly=True) as channel:
        return channel.stats().groups[group].position


def test_the_list_has_positions_lags_and_owners(ten: Path) -> None:
    done = run("groups", "list", ten)
    assert done.exit_code == 0
    assert [line.split()[:3] for line in done.stdout.splitlines()[1:3]] == [["b", "0", "10"], ["a", "4", "6"]]
    with Channel(ten, create=False) as channel:
        channel.consumer("a")
        said = json.loads(run("groups", "list", ten, "--json").stdout)["groups"]
    assert said["a"]["lag"] == 6 and said["a"]["owner"].startswith("pid ")


def in_ascii(*verb: object) -> tuple[int, bytes, bytes]:
    """Run a verb in a process that names files in ASCII, and return its status, output and errors."""
    environment = {**os.environ, "PYTHONPATH": str(command_line.ROOT), **command_line.ASCII_FILES}
    process = command_line.start(*verb, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def test_a_process_that_names_files_in_ascii_lists_every_group_and_changes_one_that_is_ascii(path: Path) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        channel.consumer("plain").close()
        channel.consumer("grüße")
        status, out, _ = in_ascii("groups", "list", path, "--json")
        assert status == 0 and json.loads(out)["groups"]["grüße"]["owner"].startswith("pid ")
    assert in_ascii("groups", "seek", path, "plain", "latest")[0] == 0


def test_a_process_that_names_files_in_ascii_knows_a_group_by_the_name_that_it_is_given(path: Path) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        channel.consumer("grüße").close()
    for verb in (("groups", "seek", path, "grüße", "latest"), ("take", path, "--group", "grüße")):
        status, _, err = in_ascii(*verb)
        assert status == 2 and b"OptionError: the files of " in err and b"set PYTHONUTF8=1" in err, err
    status, _, err = in_ascii("groups", "create", path, b"gr\xfc", "--from", "latest")
    assert status == 2 and b"is not text in UTF-8" in err.replace(b"\n", b" "), err


@pytest.mark.parametrize("note", ["[/bold] over", "[red]stop", "batch :boom:"])
def test_the_list_has_an_owners_note_as_it_is(ten: Path, note: str) -> None:
    with Channel(ten, create=False) as channel:
        channel.consumer("g", note=note).close()
    done = run("groups", "list", ten)
    assert done.exit_code == 0 and note in done.stdout


def test_a_group_is_created_where_it_should_begin(ten: Path) -> None:
    for name, start, begins in (("x", "earliest", 1), ("y", "latest", 11), ("z", "5", 5)):
        done = run("groups", "create", ten, name, "--from", start)
        assert done.stdout == f"{ten}: the group {name!r} takes the event {begins} next\n"
    assert run("groups", "create", ten, "x", "--from", "latest").stdout.endswith("takes the event 1 next\n")
    for name, start in (("a/b", "earliest"), ("w", "soon"), ("w", "99"), ("w", "²"), ("w", "9" * 5000)):
        assert run("groups", "create", ten, name, "--from", start).exit_code == 2


def test_a_seek_back_asks_nothing(ten: Path) -> None:
    done = run("groups", "seek", ten, "a", 2)
    assert (done.exit_code, done.stdout) == (0, f"{ten}: the group 'a' takes the event 2 next\n")
    assert position(ten, "a") == 1
    assert run("groups", "seek", ten, "a", "earliest").exit_code == 0
    assert run("groups", "seek", ten, "a", "1h ago").exit_code == 0


@pytest.mark.parametrize(("place", "passed"), [("latest", 6), ("8", 3)])
def test_a_seek_forward_passes_over_events_only_with_yes(ten: Path, place: str, passed: int) -> None:
    done = run("groups", "seek", ten, "a", place)
    assert done.exit_code == 2 and f"forward over {passed} events" in done.stderr and "give --yes" in done.stderr
    assert position(ten, "a") == 4
    assert run("groups", "seek", ten, "a", place, "--yes").exit_code == 0
    assert position(ten, "a") == 4 + passed


def test_a_drop_needs_yes_while_the_group_has_events_to_take(ten: Path) -> None:
    assert run("groups", "drop", ten, "a").exit_code == 2 and position(ten, "a") == 4
    assert run("groups", "drop", ten, "a", "--yes").exit_code == 0
    with Channel(ten, create=False, readonly=True) as channel:
        assert list(channel.stats().groups) == ["b"]
    run("groups", "create", ten, "done", "--from", "latest")
    assert run("groups", "drop", ten, "done").exit_code == 0, "it has nothing to lose"


def test_on_a_terminal_a_drop_asks(ten: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def answer(question: str, **_: object) -> bool:
        asked.append(question)
        return len(asked) > 1

    monkeypatch.setattr(sys.modules["spillable_stream.cli.app"], "is_terminal", lambda: True)
    monkeypatch.setattr("typer.confirm", answer)
    done = run("groups", "drop", ten, "a")
    assert done.exit_code == 1 and "nothing was changed" in done.stderr and position(ten, "a") == 4
    assert run("groups", "drop", ten, "a").exit_code == 0
    assert asked[0] == "Drop the group 'a' at 4, which has yet to take 6 events?"


def test_a_group_that_is_not_there_is_status_2_and_names_the_others(ten: Path) -> None:
    for verb in (("drop", ten, "c", "--yes"), ("seek", ten, "c", "latest", "--yes")):
        done = run("groups", *verb)
        assert done.exit_code == 2 and "its groups are: 'b', 'a'" in done.stderr


def test_a_group_that_somebody_owns_is_status_1(ten: Path) -> None:
    with Channel(ten, create=False) as channel:
        assert len(peek(channel, 1, "a")) == 1
        assert run("groups", "drop", ten, "a", "--yes").exit_code == 1


def test_a_seek_says_where_the_checkpoint_of_a_query_expects_the_group(path: Path) -> None:
    with Channel(path, minimum_required_space=0, retention_bytes=1 << 20) as channel:
        for group in ("p", "q"):
            channel.consumer(group).position()
        put(channel, *numbered(0, 10))
        take(channel, 4, "q")
        take(channel, 10, "p")
        [plan] = channel.port().plan_read([[(1, 1)]])
        events = plan.open()
        assert events.note_query("q", QueryNote("a query")) and events.note_query("p", QueryNote("a query"))
        events.close()
    for group, back in (("q", "5"), ("p", "latest")):
        moved = run("groups", "seek", path, group, "earliest")
        assert moved.exit_code == 0 and f"its checkpoint no longer fits: seek back to {back}, or give" in moved.stderr
        assert "checkpoint" not in run("groups", "seek", path, group, "earliest").stderr, "it did not move"
        assert run("groups", "seek", path, group, back, "--yes").exit_code == 0


@pytest.mark.parametrize(("start", "left"), [("latest", 3), ("3", 2)])
def test_a_first_group_that_begins_behind_events_is_created_only_with_yes(path: Path, start: str, left: int) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, *numbered(0, 3))
    refused = run("groups", "create", path, "g", "--from", start)
    assert refused.exit_code == 2 and f"let {left} events that nobody has taken leave" in refused.stderr
    with Channel(path, create=False) as channel:
        assert (channel.stats().channel_size, list(channel.stats().groups)) == (3, [])
    assert run("groups", "create", path, "g", "--from", start, "--yes").exit_code == 0
    assert run("groups", "create", path, "h", "--from", "latest").exit_code == 0, "g holds what it has yet to take"
    with Channel(path, create=False) as channel:
        assert channel.stats().channel_size == 3 - left


def test_a_first_group_gives_up_what_waits_before_it_and_not_what_is_only_kept(ten: Path) -> None:
    with Channel(ten, create=False) as channel:
        channel.drop_group("b")
        channel.drop_group("a")
    assert "let 2 events that nobody has taken leave" in run("groups", "create", ten, "g", "--from", "7").stderr
    assert run("groups", "create", ten, "g", "--from", "5").exit_code == 0


@pytest.mark.parametrize(("name", "start"), [("g", "99"), ("a/b", "latest"), ("g", "²")])
def test_nobody_is_asked_about_a_first_group_that_cannot_be(path: Path, name: str, start: str) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, *numbered(0, 3))
    refused = run("groups", "create", path, name, "--from", start)
    assert refused.exit_code == 2 and refused.stderr.startswith("OptionError: ")
