from __future__ import annotations

import posixpath
from pathlib import Path

import pytest

from spillable_stream import Channel, Event
from spillable_stream.errors import NotAChannelError
from spillable_stream.flow.configuration.channels import ChannelArguments
from spillable_stream.flow.open_channel import (
    arguments_on_host,
    configured_channels,
    directories_of,
    flume_file,
    wanted_channels,
)
from tests.support.flow_configurations import SMALL, agent


@pytest.mark.parametrize(
    "name",
    [
        "log-1",
        "log-12",
        "log-12.meta",
        "log-100000.meta",
        "log-1.meta.tmp",
        "in_use.lock",
        "checkpoint.meta",
        "inflightputs",
    ],
)
def test_a_file_of_flumes_is_known_by_its_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    assert flume_file(str(tmp_path)) == name


def test_a_channel_of_ours_is_none_of_flumes(tmp_path: Path) -> None:
    with Channel(tmp_path / "c", data_dirs=[tmp_path / "d"]) as channel:
        with channel.put_transaction() as tx:
            tx.put(Event(b"x"))
        channel.checkpoint()
    places = [tmp_path, *(p for p in tmp_path.rglob("*") if p.is_dir())]
    assert len(places) > 3 and not any(flume_file(str(p)) for p in places)
    assert flume_file(str(tmp_path / "none")) == ""


@pytest.mark.parametrize("where", ["c", "d", "b"])
def test_a_channel_in_a_directory_of_flumes_is_refused_and_nothing_is_touched(tmp_path: Path, where: str) -> None:
    arguments = ChannelArguments(
        str(tmp_path / "c"), {"data_dirs": [str(tmp_path / "d")], "backup_checkpoint_dir": str(tmp_path / "b")}
    )
    (tmp_path / where).mkdir()
    (tmp_path / where / "log-3.meta").write_bytes(b"flume")
    with pytest.raises(NotAChannelError, match=r"log-3\.meta"):
        wanted_channels([ChannelArguments(str(tmp_path / "first"), {}), arguments])
    assert [p.name for p in tmp_path.rglob("*")] == [where, "log-3.meta"]


def test_a_channel_has_the_options_of_its_configuration(tmp_path: Path) -> None:
    [wanted] = wanted_channels([ChannelArguments(str(tmp_path / "new"), {"overflow_capacity": 5})])
    with wanted.open(True) as channel:
        assert channel.stats().channel_capacity == 5


def test_a_channel_in_a_store_has_no_directories() -> None:
    assert directories_of(ChannelArguments("s3://bucket/c", {})) == []


def test_a_channel_has_one_place_on_a_host_for_the_agent_and_for_a_look_at_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = agent(SMALL.replace("memory", "file\n    a1.channels.c1.checkpointDir = ~/c1")).channels[0]
    monkeypatch.setenv("HOME", "/home/me")
    (wanted,) = configured_channels("a1", [config], {})
    assert wanted.path == arguments_on_host("a1", config, {}).path == "/home/me/c1"
    assert arguments_on_host("a1", config, {}, {"HOME": "/home/you"}).path == "/home/you/c1"
    assert arguments_on_host("a1", config, {}, {}).path == posixpath.expanduser("~/c1")
