"""``describe`` and ``stats``."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream import Channel
from spillable_stream.storage.filesystem import FileSystem
from tests.support.command_line import run
from tests.support.events import numbered, put, take


@pytest.fixture
def full(path: Path) -> Path:
    """A channel with events in both tiers."""
    with Channel(path, minimum_required_space=0, memory_capacity=5, overflow_timeout=0) as channel:
        put(channel, *numbered(1, 4))
        put(channel, *numbered(5, 4))
        take(channel, 1, "audit")
        channel.close(flush=False)
    return path


def test_stats_say_what_is_where(full: Path) -> None:
    lines = run("stats", full).stdout.splitlines()
    said = {word: text.strip() for word, _, text in (line.partition(":") for line in lines)}
    assert said["events"].startswith("7 of 100,000,005 (") and said["IDs"] == "2 to 8"
    assert said["memory"].startswith("3 of 5 events, ") and said["disk"].startswith("4 of 100,000,000 events, ")
    assert said["drain order"] == "3 in memory, 4 on disk" and said["group"] == "audit at 1, 7 behind"
    assert said["spilled"].startswith("1 transaction")


def test_stats_as_json_are_all_of_them(full: Path) -> None:
    said = json.loads(run("stats", full, "--json").stdout)
    assert said["channel_size"] == 7 and said["groups"]["audit"]["lag"] == 7
    assert said["flume"]["ChannelSize"] == 7 and said["path"] == str(full)


def test_a_description_has_everything(tmp_path: Path) -> None:
    path = tmp_path / "typed"
    with Channel(path, schema=pa.schema([("n", pa.int64())]), minimum_required_space=0, retention_ms=5000) as channel:
        uuid = channel.uuid
    text = run("describe", path).stdout
    for part in (uuid, "typed", "n: int64", "retentionMs = 5000", "1 data, 0 memory, 0 segments"):
        assert part in text
    said = json.loads(run("describe", path, "--json").stdout)
    assert said["schema"] == [{"name": "n", "type": "int64", "nullable": True}]
    assert said["options"]["retention_ms"] == 5000 and said["channel"] == uuid and said["files"]["data"] == 1


def test_a_channel_that_ends_with_the_host_says_so(full: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An open does so only once."""
    said = f"{full} is on a file system in memory: the events end with the host"
    monkeypatch.setattr(FileSystem, "is_in_memory", lambda _, path: path.is_relative_to(full))
    for is_meant, temporary in ((False, "/nowhere"), (True, str(full.parent))):
        monkeypatch.setenv("TMPDIR", temporary)
        for verb, key in (("stats", "directory_in_memory"), ("describe", "directoryInMemory")):
            assert (f"warning:       {said}\n" in run(verb, full).stdout) is not is_meant
            assert json.loads(run(verb, full, "--json").stdout)[key] == (None if is_meant else str(full))


def test_a_channel_is_named_as_it_was_given(full: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(full.parent)
    assert run("describe", full.name).stdout.splitlines()[0].split() == ["channel:", full.name]
    for verb in ("describe", "stats"):
        assert json.loads(run(verb, full.name, "--json").stdout)["path"] == full.name


def test_ids_are_plain_digits_to_copy_and_counts_are_not(path: Path) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, *numbered(1, 3000))
        take(channel, 1500, "audit")
    for verb in ("describe", "stats"):
        said = run(verb, path).stdout
        assert "IDs:           1501 to 3000\n" in said
        assert "group:         audit at 1500, 1,500 behind\n" in said
    assert run("groups", "list", path).stdout.splitlines()[1].split()[:3] == ["audit", "1500", "1,500"]
    assert "takes the event 1501 next" in run("groups", "seek", path, "audit", "1501").stdout


def sources(path: Path, *more: object) -> dict[str, tuple[object, str, str]]:
    said = json.loads(run("describe", path, "--options", "--json", *more).stdout)["options"]
    return {name: (o["value"], o["source"], o["note"]) for name, o in said.items()}


def test_options_have_their_sources(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "channel.ini"
    config.write_text("[channel]\npath = x\nkeepAlive = 7\n")
    monkeypatch.setenv("SPILLABLE_MEMORY_CAPACITY", "50")
    new = sources(path, "--config", config)
    assert new["memoryCapacity"][:2] == (50, "environment") and new["keepAlive"][:2] == (7.0, "file")
    assert new["lockTimeout"][:2] == (30.0, "default") and not path.exists()
    with Channel(path, memory_capacity=9, minimum_required_space=0):
        pass
    old = sources(path, "--config", config)
    assert old["memoryCapacity"] == (
        9,
        "stored",
        "SPILLABLE_MEMORY_CAPACITY says 50, which counts for new channels only",
    )
    assert old["keepAlive"] == (3.0, "default", "the file says 7.0, which an open with it stores")
    assert old["mode"][:2] == ("0700", "default") and old["checkpointDir"][0].endswith("checkpoint")
    assert "memoryCapacity" in run("describe", path, "--options").stdout


def test_what_is_not_a_channel_is_status_2(path: Path) -> None:
    for verb in ("stats", "describe"):
        done = run(verb, path, "--json")
        assert done.exit_code == 2 and json.loads(done.stdout)["error"] == "NotAChannelError"
