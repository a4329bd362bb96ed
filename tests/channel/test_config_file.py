"""Configuration files, with the names of Flume."""

from __future__ import annotations

from pathlib import Path

import pytest

from spillable_stream import (
    Channel,
    OptionError,
)
from spillable_stream.channel.config_file import read_config


def test_a_configuration_file_says_where_and_how(tmp_path: Path) -> None:
    config = tmp_path / "channel.ini"
    config.write_text(f"[channel]\npath = {tmp_path}/c\noverflowCapacity = 9\ncheckpointOnClose = false\n")
    with Channel.from_config(config) as channel:
        assert (channel.path, channel.options["overflow_capacity"]) == (tmp_path / "c", 9)
        assert channel.options["checkpoint_on_close"] is False


@pytest.mark.parametrize("text", ["", "[channel]\nkeepAlive = 1\n", "[other]\npath = /x\n"])
def test_a_configuration_file_without_a_path_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "channel.ini").write_text(text)
    for name in ("channel.ini", "missing.ini"):
        with pytest.raises(OptionError, match=r"a section|gives no path for the channel|can't be read"):
            Channel.from_config(tmp_path / name)


@pytest.mark.parametrize(
    ("lines", "capacity"),
    [
        ("", 0),
        ("type = SPILLABLEMEMORY", 10_000),
        ("type = spillablememory\nmemoryCapacity = 7", 7),
        ("type = FILE", 0),
    ],
)
def test_a_configuration_of_flumes_types(path: Path, tmp_path: Path, lines: str, capacity: int) -> None:
    file = tmp_path / "channel.ini"
    if "FILE" in lines:
        Channel(path, memory_capacity=5).close()
    file.write_text(f"[channel]\npath = {path}\nminimumRequiredSpace = 0\n{lines}\n")
    with Channel.from_config(file) as channel:
        assert channel.options["memory_capacity"] == capacity


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[channel]\npath = x\ntype = MEMORY\n",
            "must be FILE or SPILLABLEMEMORY.*not 'MEMORY'",
        ),
        ("path = x\n", r"can't be read: line 1 is before any \[channel\]$"),
        ("[channel]\npath = x\npath = y\n", "can't be read: .*already exists$"),
        ("[channel]\npath = x ; mine\n", "path is 'x ; mine'; write a comment on a line of its own"),
        ("[channel]\npath = x\nkeepAlive = 5 # seconds\n", "write a comment on a line of its own"),
        ("[other]\npath = x\n", r"a section \[channel\]"),
        ("[channel]\npath = x\nretention = 7d\n", "'retention' is not an option of a channel; the nearest are"),
        ("[channel]\npath = x\nretentionMs = a week\n", "retentionMs must be milliseconds.* not 'a week'"),
    ],
)
def test_a_configuration_that_is_wrong_names_its_file(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "bad.ini").write_text(text)
    with pytest.raises(OptionError, match=f"bad.ini.*{message}"):
        Channel.from_config(tmp_path / "bad.ini")


AGENT = """
a1.sources = r
a1.channels = c d
a1.channels.c.type = SPILLABLEMEMORY
a1.channels.c.keep-alive = 5
a1.channels.c.overflowCapacity = 7000
a1.channels.d.type = file
a1.channels.d.capacity = 300
a1.channels.d.path = {path}
"""


def test_the_properties_of_an_agent_have_its_channels(tmp_path: Path) -> None:
    file = tmp_path / "agent.properties"
    file.write_text(AGENT.format(path=tmp_path / "d"))
    assert read_config(file, "c") == {"memoryCapacity": 10_000, "keepAlive": "5", "overflowCapacity": "7000"}
    with Channel.from_config(file, "d") as channel:
        assert channel.path == tmp_path / "d" and channel.options["overflow_capacity"] == 300


@pytest.mark.parametrize("ending", ["conf", "properties", "cfg"])
def test_an_agents_file_is_known_whatever_its_name_ends_with(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"flume.{ending}"
    file.write_text(AGENT.format(path=tmp_path / "d"))
    assert read_config(file, "d")["path"] == f"{tmp_path}/d"


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "channel.ini").write_text("[channel]\npath = x\n", "utf-8-sig")
    assert read_config(tmp_path / "channel.ini") == {"path": "x"}


@pytest.mark.parametrize(("name", "said"), [(None, "more than one channel"), ("e", "has no channel 'e'; it has c, d")])
def test_a_channel_that_an_agent_does_not_have_is_refused(tmp_path: Path, name: str | None, said: str) -> None:
    (tmp_path / "agent.properties").write_text(AGENT)
    with pytest.raises(OptionError, match=said):
        read_config(tmp_path / "agent.properties", name)
    with pytest.raises(OptionError, match="gives no path"):
        Channel.from_config(tmp_path / "agent.properties", "c")
    with pytest.raises(OptionError, match="can't be read"):
        read_config(tmp_path / "missing.properties")
