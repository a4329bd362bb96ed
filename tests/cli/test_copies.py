"""``backup`` and ``restore``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spillable_stream import Channel
from tests.support.command_line import run
from tests.support.delays import put_late
from tests.support.events import numbered, peek, put


def test_a_backup_says_what_it_has_and_is_restored(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, *numbered(1, 3))
        done = run("backup", path, copy)
        assert done.exit_code == 0
        lines = done.stdout.splitlines()
        assert lines[0] == f"{copy}: backup 1 has {path} up to the event 3"
        assert lines[1].startswith("copied 3 events, ")
        put(channel, b"4")
    assert run("backup", path, copy).stdout.splitlines()[1].endswith(", 1 file already there")
    said = json.loads(run("backup", path, copy, "--json").stdout)
    assert (said["number"], said["copied_events"], said["last_id"]) == (3, 0, 4)
    refused = run("restore", copy, tmp_path / "r")
    assert refused.exit_code == 1
    assert refused.stderr.endswith(f"create another channel by 'spillable restore {copy} PATH --new-identity'\n")
    done = run("restore", copy, tmp_path / "r", "--new-identity")
    assert done.exit_code == 0 and "restored as a second channel, " in done.stdout
    assert "4 events, up to the event 4" in done.stdout
    with Channel(tmp_path / "r", create=False) as restored:
        assert peek(restored) == numbered(1, 4)
    path.rename(tmp_path / "old")
    said = json.loads(run("restore", copy, path, "--json").stdout)
    assert said["events"] == 4 and not said["is_new"]


def test_how_many_events_wait_in_a_copy_is_said(path: Path, tmp_path: Path) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        put_late(channel, 1000, b"a", b"b")
    assert run("backup", path, tmp_path / "copy").stdout.splitlines()[2] == "delayed until they are due: 2 events"
    done = run("restore", tmp_path / "copy", tmp_path / "r", "--new-identity")
    assert done.stdout.splitlines()[1] == "delayed until they are due: 2 events"
    done = run("restore", tmp_path / "copy", f"object+file://{tmp_path}/store", "--new-identity")
    assert done.stdout.splitlines()[1] == "delayed until they are due: 2 events"


def test_what_is_not_there_is_status_2(path: Path, tmp_path: Path) -> None:
    assert run("backup", path, tmp_path / "copy").exit_code == 2
    done = run("restore", tmp_path / "copy", path, "--json")
    assert done.exit_code == 2 and json.loads(done.stdout)["error"] == "NotAChannelError"


def test_what_another_restore_began_at_an_address_is_replaced_with_yes_only(path: Path, tmp_path: Path) -> None:
    copy, to = tmp_path / "copy", f"object+file://{tmp_path}/restored"
    with Channel(path) as channel:
        put(channel, *numbered(0, 3))
        assert run("backup", path, copy).exit_code == 0
        assert run("restore", copy, to, "--new-identity").exit_code == 0
        (tmp_path / "restored" / "channel.json").unlink()
        put(channel, b"later")
        assert run("backup", path, copy).exit_code == 0
    refused = run("restore", copy, to, "--new-identity")
    assert refused.exit_code == 2 and "has not finished it. Remove it, and restore there?" in refused.stderr
    assert not (tmp_path / "restored" / "channel.json").exists()
    assert run("restore", copy, to, "--new-identity", "--yes").exit_code == 0
    with Channel(to, create=False) as channel:
        assert peek(channel) == [*numbered(0, 3), b"later"]


def test_a_backup_and_a_restore_name_their_places_as_they_were_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Channel("c", minimum_required_space=0).close()
    assert run("backup", "c", "./copy").stdout.startswith("./copy: backup 1 has c up to")
    said = json.loads(run("backup", "c", "./copy", "--json").stdout)
    assert (said["copy"], said["source"]) == ("./copy", "c")
    assert run("restore", "copy", "d", "--new-identity").stdout.startswith("d: restored as a second channel")
