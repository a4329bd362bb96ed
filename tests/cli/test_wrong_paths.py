"""Each verb at each kind of wrong path: nothing is created there, one line says what is there and what to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import spillable_stream as ss
from tests.cli.test_impossible_paths import CHANNEL_VERBS
from tests.support.channels import snapshot
from tests.support.command_line import run
from tests.support.events import put

WITHOUT_A_CHANNEL = ("create {}", "put {} input.txt", "describe {} --options")  # these need none at their path
VERBS = [verb for verb in CHANNEL_VERBS if verb not in WITHOUT_A_CHANNEL]


def missing(place: Path) -> Path:
    return place / "missing"


def empty(place: Path) -> Path:
    (place / "empty").mkdir()
    return place / "empty"


def of_others(place: Path) -> Path:
    (place / "others").mkdir()
    (place / "others" / "notes.txt").write_text("mine")
    return place / "others"


def a_backup(place: Path) -> Path:
    with ss.Channel(place / "original", minimum_required_space=0) as channel:
        put(channel, b"a")
        ss.backup(channel, place / "backup")
    return place / "backup"


def of_objects(place: Path) -> Path:
    ss.Channel(f"object+file://{place}/objects").close()
    return place / "objects"


def inside(place: Path) -> Path:
    ss.Channel(place / "channel", minimum_required_space=0).close()
    return place / "channel" / "groups"


def above(place: Path) -> Path:
    ss.Channel(place / "several" / "one", minimum_required_space=0).close()
    return place / "several"


def without_identity(place: Path) -> Path:
    with ss.Channel(place / "lost", minimum_required_space=0) as channel:
        put(channel, b"a")
    (place / "lost" / "channel.json").unlink()
    return place / "lost"


CHECK = "check the path, and that its disk is mounted; 'spillable create' creates a new one"


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "input.txt").write_bytes(b"a line\n")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (missing, f"it is missing; {CHECK}"),
        (empty, f"it has no channel.json; {CHECK}"),
        (of_others, f"it has no channel.json; {CHECK}"),
        (a_backup, "and is a backup: 'spillable restore {} PATH' creates a channel from it"),
        (of_objects, "holds a channel of objects, not of files: open it as object+file://{}"),
        (inside, "it has no channel.json, and is inside of a channel: give {.parent}"),
        (above, "it has no channel.json, but is above a channel: give {}/one, or another one there"),
        (without_identity, "if that was removed, 'spillable repair {}' rewrites it"),
    ],
)
def test_a_path_without_a_channel_is_status_2_and_one_line_that_says_what_to_do(
    make: Callable[[Path], Path], said: str, tmp_path: Path
) -> None:
    path = make(tmp_path)
    before = snapshot(path) if path.exists() else None
    for verb in VERBS:
        if make is without_identity and verb.startswith(("verify", "repair")):
            continue  # they know more
        done = run(*verb.format(path).split())
        assert (done.exit_code, done.stdout) == (2, ""), (verb, done.output)
        assert done.stderr.startswith(f"NotAChannelError: {path} "), (verb, done.stderr)
        assert done.stderr.endswith(said.format(path) + "\n") and done.stderr.count("\n") == 1, (verb, done.stderr)
    assert (snapshot(path) if path.exists() else None) == before
    assert not (tmp_path / "copy").exists() and not (tmp_path / "to").exists()


def in_a_channel(place: Path) -> Path:
    return of_objects(place) / "log"


def above_a_channel(place: Path) -> Path:
    of_objects(place)
    of_others(place)
    return place


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (missing, "it has no channel.json; check the address; 'spillable create' creates a new one"),
        (a_backup, "it has no channel.json, and is a backup: 'spillable restore {} PATH' creates a channel from it"),
        (in_a_channel, "it has no channel.json, and is inside of a channel: give object+file://{}/objects"),
        (
            above_a_channel,
            "it has no channel.json, but is above a channel: give object+file://{}/objects, or another one there",
        ),
    ],
)
def test_an_address_without_a_channel_is_status_2_and_one_line_that_says_what_to_do(
    make: Callable[[Path], Path], said: str, tmp_path: Path
) -> None:
    address = f"object+file://{make(tmp_path)}"
    before = snapshot(tmp_path)
    for verb in VERBS:
        done = run(*verb.format(address).split())
        assert (done.exit_code, done.stdout) == (2, ""), (verb, done.output)
        assert done.stderr.startswith(f"NotAChannelError: {address} is not a channel: "), (verb, done.stderr)
        expected = said.format(address if make is a_backup else tmp_path)
        assert done.stderr.endswith(expected + "\n") and done.stderr.count("\n") == 1, (verb, done.stderr)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("verb", ["create {}", "put {} input.txt"])
def test_no_channel_is_created_in_a_backup(verb: str, tmp_path: Path) -> None:
    """Its next backup would take the files for strangers', and the restore of it would refuse."""
    path = a_backup(tmp_path)
    before = snapshot(path)
    for place in (path, f"object+file://{path}"):
        done = run(*verb.format(place).split())
        assert done.exit_code == 2 and "is a backup: 'spillable restore " in done.stderr, done.output
    assert snapshot(path) == before


@pytest.mark.parametrize(
    ("verb", "wrong"),
    [
        ("validate -f {}", "none.conf"),
        ("graph -f {}", "none.conf"),
        ("test {}", "none.toml"),
        ("agent -n a1 -f {}", "none.conf"),
        ("send -f {} -n a1 --source r1", "none.conf"),
        ("put new {}", "none.txt"),
        ("create new --config {}", "none.ini"),
        ("create new --schema {}", "none.parquet"),
    ],
)
def test_a_missing_file_is_status_2_and_one_line_that_says_what_to_do(verb: str, wrong: str, tmp_path: Path) -> None:
    done = run(*verb.format(wrong).split())
    assert (done.exit_code, done.stdout) == (2, "") and done.stderr.count("\n") == 1, done.output
    assert wrong in done.stderr and ("check the path" in done.stderr or "; give " in done.stderr), done.stderr
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("verb", ["validate -f {}", "graph -f {}", "test {}", "agent -n a1 -f {}"])
def test_a_directory_in_place_of_a_file_is_status_2_and_says_to_give_a_file(verb: str, tmp_path: Path) -> None:
    done = run(*verb.format(tmp_path).split())
    assert done.exit_code == 2 and done.stderr.endswith("; give the path of a file\n"), done.output


@pytest.mark.parametrize(
    "verb",
    ["validate -f {}", "graph -f {}", "test {}", "agent -n a1 -f {}", "send new -F {}", "put new {} --format lines"],
)
def test_a_file_whose_disk_fails_is_named_with_what_to_do(verb: str, tmp_path: Path) -> None:
    ss.Channel(tmp_path / "new", minimum_required_space=0).close()
    unread = "/proc/self/mem"  # it can be opened, and no byte of it read
    done = run(*verb.format(unread).replace("new", str(tmp_path / "new")).split())
    assert done.exit_code in (1, 2) and f"{unread}: Input/output error (errno 5); check whether" in done.stderr


def test_what_to_do_is_in_the_json_object_too(tmp_path: Path) -> None:
    said = json.loads(run("stats", tmp_path / "missing", "--json").stdout)
    assert said["error"] == "NotAChannelError" and said["text"].endswith(f"it is missing; {CHECK}")
    said = json.loads(run("validate", "-f", tmp_path / "none.conf", "--json").stdout)
    assert said["error"] == "FileNotFoundError"
    assert said["text"].endswith("none.conf: No such file or directory (errno 2); check the path")
