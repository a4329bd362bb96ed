from __future__ import annotations

import posixpath
from pathlib import Path

import pytest

from spillable_stream import Channel
from spillable_stream.flow.configuration.channels import (
    ChannelArguments,
    channel_arguments,
    data_directory,
    given_directories,
    transaction_capacity,
    user_directories,
)
from spillable_stream.flow.configuration.model import ComponentConfig
from spillable_stream.option_names import name_as_in_files
from tests.support.flow_configurations import agent, read


def channel(*lines: str) -> ComponentConfig:
    text = """
        a1.channels = c1
        a1.sinks = k1
        a1.sinks.k1.type = logger
        a1.sinks.k1.channel = c1
    """
    return agent(text + "".join(f"        a1.channels.c1.{line}\n" for line in lines)).channels[0]


def arguments(*lines: str) -> ChannelArguments:
    return channel_arguments("a1", channel(*lines), "/data", "/home/me")


def test_a_memory_channel_has_no_disk_tier_and_flumes_hundred_events() -> None:
    path, options = arguments("type = memory")
    assert path == "/data/a1/c1"
    assert options == {
        "memory_capacity": 100,
        "overflow_capacity": 0,
        "transaction_capacity": 100,
        "keep_alive": 3,
        "byte_capacity_buffer_percentage": 20,
    }


def test_a_file_channel_has_no_memory_tier_and_its_own_directories() -> None:
    path, options = arguments(
        "type = file", "checkpointDir = ~/ck", "dataDirs = /d1/, ~/d2", "useDualCheckpoints = true",
        "backupCheckpointDir = /b", "capacity = 5000", "transactionCapacity = 500", "keep-alive = 0",
        "checkpointInterval = 1000", "maxFileSize = 1000000", "minimumRequiredSpace = 0", "checkpointOnClose = false",
    )  # fmt: skip
    assert path == "/home/me/ck"
    assert options == {
        "memory_capacity": 0,
        "overflow_capacity": 5000,
        "transaction_capacity": 500,
        "keep_alive": 0,
        "data_dirs": ["/d1/", "/home/me/d2"],
        "backup_checkpoint_dir": "/b",
        "checkpoint_interval": 1000,
        "max_file_size": 1_000_000,
        "minimum_required_space": 0,
        "checkpoint_on_close": False,
    }


def test_times_and_sizes_have_the_words_that_they_have_elsewhere_and_plain_numbers_flumes_units() -> None:
    _, options = arguments(
        "type = file", "maxFileSize = 16MiB", "minimumRequiredSpace = 1 GiB", "checkpointInterval = 1m",
        "keep-alive = 500ms",
    )  # fmt: skip
    assert (options["max_file_size"], options["minimum_required_space"]) == (16 << 20, 1 << 30)
    assert (options["checkpoint_interval"], options["keep_alive"]) == (60_000, 0.5)
    _, options = arguments(
        "type = SPILLABLEMEMORY",
        "byteCapacity = 64MiB",
        "avgEventSize = 1KiB",
        "overflowTimeout = 2m",
        "keepAlive = 1m",
    )
    assert (options["byte_capacity"], options["avg_event_size"]) == (64 << 20, 1024)
    assert (options["overflow_timeout"], options["keep_alive"]) == (120, 60)
    _, options = arguments("type = memory", "byteCapacity = 64MiB", "keep-alive = 2", "checkpointInterval = 5000")
    assert (options["byte_capacity"], options["keep_alive"], options["checkpoint_interval"]) == (64 << 20, 2, 5000)


def test_retention_is_said_in_an_agents_file() -> None:
    lines = "type = file", "retentionMs = 7d", "retentionBytes = 1GiB", "retentionUntaken = drop"
    options = arguments(*lines).options
    assert options["retention_ms"] == 7 * 86_400_000
    assert options["retention_bytes"] == 1 << 30
    assert options["retention_untaken"] == "drop"
    assert arguments("type = file", "retentionMs = 3600000").options["retention_ms"] == 3_600_000


def test_the_users_home_is_meant_in_every_directory() -> None:
    assert arguments("type = SPILLABLEMEMORY", "memoryDir = ~/m").options["memory_dir"] == "/home/me/m"
    in_front = "durability = local", "spool = ~/s", "cacheDir = ~"
    options = arguments("type = file", "path = s3://b/c", *in_front).options
    assert (options["spool"], options["cache_dir"]) == ("/home/me/s", "/home/me")


@pytest.mark.parametrize(
    ("lines", "part"),
    [
        (("type = file", "retentionMs = 500"), "retentionMs must be milliseconds, or a number with ms, s, m, h or d;"),
        (("type = file", "maxFileSize = 16MB"), "maxFileSize must be bytes, or a number with KiB, MiB, GiB or TiB;"),
        (("type = file", "spool = s3://bucket/x"), "spool must be a directory of this host"),
        (("type = file", "gcDelay = 5m"), "gcDelay is for channels in an object store"),
        (("type = file", "spool = /s"), "spool is for channels in an object store"),
        (("type = file", "cacheDir = /s"), "cacheDir is for channels in an object store"),
        (
            ("type = file", "path = s3://b/c", "durability = local"),
            "to a directory of this host first; give it as spool",
        ),
        (("type = file", "path = s3://b/c", "mode = 0770"), "mode is for channels on a disk"),
        (("type = file", "path = s3://b/c", "durability = object", "spool = /s"), "so a spool would be empty"),
        (("type = file", "maxFileSize = 1MiB", "compression = maxFileSize"), "compression must be none, lz4 or zstd"),
        (("type = memory", "path = /a\\u0000b"), r"path can't be '/a\x00b': no file can have this name"),
        (
            ("type = file", "checkpointDir = /a", "dataDirs = /b,/c\\uD800"),
            r"dataDirs can't be '/c\ud800': no file can",
        ),
    ],
)
def test_an_option_that_no_such_channel_can_have_is_found_in_its_line(lines: tuple[str, ...], part: str) -> None:
    text = "    a1.channels = c1\n" + "".join(f"    a1.channels.c1.{line}\n" for line in lines)
    name_as_in_files()
    found = next(f for f in read(text).findings if f.component == "a1.channels.c1" and f.code == "bad-value")
    assert part in found.text and "it does not run" in found.text and found.line == 1 + len(lines)


def test_a_backup_without_dual_checkpoints_is_not_used() -> None:
    assert "backup_checkpoint_dir" not in arguments("type = file", "backupCheckpointDir = /b").options


def test_a_spillable_channel_has_both_tiers() -> None:
    _, options = arguments("type = SPILLABLEMEMORY", "memoryCapacity = 50", "byteCapacity = 1000", "avgEventSize = 100")
    assert options == {
        "memory_capacity": 50,
        "overflow_capacity": 100_000_000,
        "transaction_capacity": 10_000,
        "overflow_timeout": 3,
        "overflow_deactivation_threshold": 5,
        "avg_event_size": 100,
        "byte_capacity": 1 << 20,
        "byte_capacity_buffer_percentage": 20,
    }
    neither = arguments("type = SPILLABLEMEMORY", "memoryCapacity = 0", "overflowCapacity = 0").options
    assert (neither["memory_capacity"], neither["overflow_capacity"]) == (0, 100_000_000)


def test_a_channel_may_be_in_an_object_store() -> None:
    path, options = arguments("type = file", "path = s3://bucket/orders", "capacity = 7000", "transactionCapacity = 70")
    assert path == "s3://bucket/orders"
    assert options == {"overflow_capacity": 7000, "transaction_capacity": 70, "keep_alive": 3}


@pytest.mark.parametrize("kind", ["memory", "file", "SPILLABLEMEMORY"])
def test_the_arguments_open_a_channel(kind: str, tmp_path: Path) -> None:
    path, options = channel_arguments("a1", channel(f"type = {kind}"), str(tmp_path))
    with Channel(path, **options) as opened:
        assert opened.stats().channel_capacity == {"memory": 100, "file": 10**6}.get(kind, 10**8 + 10_000)
    assert (tmp_path / "a1" / "c1").is_dir()


def test_channels_without_a_directory_are_in_the_users_data() -> None:
    assert data_directory({"spillable.data.dir": "/d"}, {"HOME": "/root"}) == "/d"
    assert data_directory({}, {"HOME": "/root"}) == "/root/.local/share/spillable-stream"
    assert data_directory({}, {"HOME": "/root", "XDG_DATA_HOME": "/xdg"}) == "/xdg/spillable-stream"


def test_the_most_events_of_a_transaction_are_known() -> None:
    assert transaction_capacity(channel("type = memory")) == 100
    assert transaction_capacity(channel("type = file", "transactionCapacity = 7")) == 7


def test_the_directories_that_a_file_gives_are_known_with_their_properties() -> None:
    given = ("type = file", "checkpointDir = /c/", "dataDirs = /d,/e", "backupCheckpointDir = /b")
    places = [("checkpointDir", "/c"), ("dataDirs", "/d"), ("dataDirs", "/e")]
    assert given_directories(channel(*given)) == places
    assert given_directories(channel(*given, "useDualCheckpoints = true")) == [*places, ("backupCheckpointDir", "/b")]
    assert given_directories(channel("type = memory")) == []


@pytest.mark.parametrize(
    ("lines", "part"),
    [
        (("type = memory", "capacity = 10"), "transactionCapacity, 100, must not exceed capacity, 10"),
        (("type = file", "capacity = 10"), "must not exceed capacity"),
        (("type = file", "useDualCheckpoints = true"), "needs backupCheckpointDir"),
        (("type = file", "useDualCheckpoints = true", "checkpointDir = /c", "backupCheckpointDir = /c"), "must not be"),
        (("type = memory", "path = s3://b/c"), "no memory in front"),
        (("type = file", "path = ftp://b/c"), "a channel can't be at an address with ftp://"),
    ],
)
def test_a_channel_that_contradicts_itself_does_not_run(lines: tuple[str, ...], part: str) -> None:
    text = "    a1.channels = c1\n" + "".join(f"    a1.channels.c1.{line}\n" for line in lines)
    assert part in next(f.text for f in read(text).findings if f.component == "a1.channels.c1")


def test_the_home_of_a_path_is_the_users_and_that_of_another_user_the_systems() -> None:
    assert arguments("type = file", "checkpointDir = ~").path == "/home/me"
    assert arguments("type = file", "checkpointDir = ~root/x").path == posixpath.expanduser("~root/x")
    assert user_directories({}, {"HOME": "/h"}) == ("/h/.local/share/spillable-stream", "/h")
    assert user_directories({"spillable.data.dir": "~/d"}, {}).place("~/d/") == posixpath.expanduser("~/d")
