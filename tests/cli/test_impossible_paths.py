"""Paths at which nothing can be, such as a circle of links: every verb says so in one sentence, with its status."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import Channel
from tests.support.command_line import run
from tests.support.events import put

UNREADABLE = ("too long", "circle", "not a directory", "is a file")


def circle(tmp_path: Path) -> Path:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    return tmp_path / "a"


def long_name(tmp_path: Path) -> Path:
    return tmp_path / ("n" * 300)


def long_path(tmp_path: Path) -> Path:
    return tmp_path / "/".join(["n" * 100] * 50)


def below_a_file(tmp_path: Path) -> Path:
    (tmp_path / "file").write_bytes(b"x")
    return tmp_path / "file" / "orders"


def below_a_circle(tmp_path: Path) -> Path:
    return circle(tmp_path) / "orders"


def a_pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


PATHS = [circle, long_name, long_path, below_a_file, below_a_circle, a_pipe]
CHANNEL_VERBS = [
    "stats {}",
    "describe {}",
    "describe {} --options",
    "tail {}",
    "take {}",
    "put {} input.txt",
    "export {} out.jsonl",
    "groups list {}",
    "groups create {} g",
    "groups drop {} g --yes",
    "groups seek {} g earliest",
    "create {}",
    "alter {} -o keepAlive=1",
    "backup {} copy",
    "dead-letters list {}",
    "dead-letters show {} 1",
    "dead-letters replay {} to",
    "verify {}",
    "repair {} --yes",
    "tap {} --no-follow",
    "send {} --filename input.txt",
]


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "input.txt").write_bytes(b"a line\n")


@pytest.mark.parametrize("make", PATHS)
@pytest.mark.parametrize("verb", CHANNEL_VERBS)
def test_no_channel_can_be_there(verb: str, make: Callable[[Path], Path], tmp_path: Path) -> None:
    done = run(*verb.format(make(tmp_path)).split())
    assert (done.exit_code, done.stdout) == (2, ""), done.output
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("NotAChannelError: "), done.stderr
    assert any(why in done.stderr for why in UNREADABLE), done.stderr


OTHER_VERBS = [
    "put {channel} {}",
    "put {channel} {} --format jsonl",
    "put {channel} {}.parquet",
    "export {channel} {}/out.jsonl",
    "export {channel} {} --format jsonl",
    "create new --config {}",
    "create new --schema {}.parquet",
    "alter {channel} --config {}",
    "describe {channel} --options --config {}",
    "tail {channel} --delayed {}",
    "restore {} new",
    "backup {channel} {}",
    "validate -f {}",
    "graph -f {}",
    "test {}",
    "agent -n a1 -f {}",
    "send {channel} --filename {}",
    "send -f {} -n a1 --source r1",
    "stats object+file://{}",
    "verify object+file://{}",
]


@pytest.mark.parametrize("make", [make for make in PATHS if make is not a_pipe])
@pytest.mark.parametrize("verb", OTHER_VERBS)
def test_no_file_can_be_there(verb: str, make: Callable[[Path], Path], tmp_path: Path) -> None:
    with Channel(tmp_path / "channel", minimum_required_space=0) as channel:
        put(channel, b"a")
    done = run(*verb.format(make(tmp_path), channel=tmp_path / "channel").split())
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert (done.exit_code, done.stdout) == (2, ""), done.output
    assert 1 <= done.stderr.count("\n") <= 2, done.stderr
    assert not (tmp_path / "new").exists()


CREATING_VERBS = ["export {channel} {}.jsonl", "backup {channel} {}", "restore {} new"]


@pytest.mark.parametrize(
    "verb",
    [*(verb for verb in CHANNEL_VERBS if "input.txt" not in verb), *CREATING_VERBS, "put {} -", "stats {} --json"],
)
def test_a_relative_path_leads_nowhere_once_the_working_directory_was_removed(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Channel(tmp_path / "channel", minimum_required_space=0).close()
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    done = run(*verb.format("orders", channel=tmp_path / "channel").split(), input="")
    assert done.exit_code == 2 and "is relative, and the working directory was removed" in done.output, done.output
    assert done.output.count("\n") == 1 and "OptionError" in done.output, done.output


@pytest.mark.parametrize("path", ["~/orders", "$HOME/orders"])
@pytest.mark.parametrize("verb", [*CHANNEL_VERBS, *CREATING_VERBS])
def test_a_path_that_only_a_shell_understands_creates_nothing(verb: str, path: str, tmp_path: Path) -> None:
    Channel(tmp_path / "channel", minimum_required_space=0).close()
    done = run(*verb.format(path, channel=tmp_path / "channel").split(), input="")
    assert done.exit_code == 2 and "only a shell replaces" in done.stderr, done.output
    assert not (tmp_path / path.split("/")[0]).exists()
