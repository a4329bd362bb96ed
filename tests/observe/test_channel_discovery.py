"""Channels that are given by their paths, and by patterns of paths."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from spillable_stream import Channel, OptionError
from spillable_stream.call_threads import CallThreads
from spillable_stream.observe.channel_discovery import ChannelDiscovery


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def threads() -> Iterator[CallThreads]:
    with closing(CallThreads(1, "a search")) as pool:
        yield pool


def make(*paths: Path | str) -> None:
    for path in paths:
        Channel(path, **({} if "://" in str(path) else {"minimum_required_space": 0})).close()  # type: ignore[arg-type]


def paths(discovery: ChannelDiscovery) -> list[str]:
    return [channel.path for channel in discovery.channels()]


@pytest.mark.parametrize("scheme", ["", "object+file://"])
def test_channels_that_fit_a_pattern_join_as_they_appear_and_leave_when_they_are_gone(
    tmp_path: Path, threads: CallThreads, scheme: str
) -> None:
    clock, root = Clock(), f"{scheme}{tmp_path}"
    make(f"{root}/orders-2", f"{root}/other")
    (tmp_path / "orders-file").touch()
    (tmp_path / "orders-dir").mkdir()
    discovery = ChannelDiscovery([f"{root}/orders-*"], clock, threads, clock)
    assert discovery.search(60) == [] and paths(discovery) == [f"{root}/orders-2"] and not discovery.problems()
    (two,) = discovery.channels()
    make(f"{root}/orders-1")
    discovery.search(60)
    assert paths(discovery) == [f"{root}/orders-2"], "what was found a moment ago is used again"
    clock.now += 6
    discovery.search(60)
    assert paths(discovery) == [f"{root}/orders-1", f"{root}/orders-2"] and discovery.channels()[1] is two
    shutil.rmtree(tmp_path / "orders-2")
    clock.now += 6
    assert discovery.search(60) == [two] and paths(discovery) == [f"{root}/orders-1"]


def test_a_damaged_channel_fits_a_pattern_too(tmp_path: Path, threads: CallThreads) -> None:
    make(tmp_path / "a")
    (tmp_path / "a" / "channel.json").write_text("no")
    discovery = ChannelDiscovery([f"{tmp_path}/*"], Clock(), threads)
    discovery.search(60)
    assert paths(discovery) == [f"{tmp_path}/a"]


def test_a_pattern_that_nothing_fits_or_that_cannot_be_searched_is_a_problem(
    tmp_path: Path, threads: CallThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "obstore", None)
    discovery = ChannelDiscovery([f"{tmp_path}/none-*", "s3://bucket/orders-*"], Clock(), threads)
    discovery.search(60)
    none, store = discovery.problems()
    assert (none.path, none.problem, none.stats) == (f"{tmp_path}/none-*", "no channel fits it, so far", None)
    assert store.problem.startswith("ImportError: a channel in a cloud needs obstore")


def test_a_search_that_fails_later_leaves_what_was_found(
    tmp_path: Path, threads: CallThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "a")
    clock = Clock()
    discovery = ChannelDiscovery([f"{tmp_path}/*"], clock, threads, clock)
    discovery.search(60)

    def refused(pattern: str) -> list[str]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("spillable_stream.observe.channel_discovery.channels_matching", refused)
    clock.now += 6
    assert discovery.search(60) == [] and paths(discovery) == [f"{tmp_path}/a"]


def test_a_channel_whose_name_is_a_pattern_is_that_channel(tmp_path: Path, threads: CallThreads) -> None:
    make(tmp_path / "a[1]", tmp_path / "a1")
    discovery = ChannelDiscovery([f"{tmp_path}/a[1]"], Clock(), threads)
    discovery.search(60)
    assert paths(discovery) == [f"{tmp_path}/a[1]"]


def test_each_channel_is_there_once_however_it_is_written(
    path: Path, threads: CallThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(path)
    monkeypatch.chdir(path.parent)
    for twice in ([path, f"{path}/"], [str(path), path.name], ["s3://b/x", "s3://b//x/"], [f"{path}*", f"{path}*"]):
        with pytest.raises(OptionError, match="is given twice"):
            ChannelDiscovery(twice, Clock(), threads)
    discovery = ChannelDiscovery([f"{path.parent}/*", path.name], Clock(), threads)
    discovery.search(60)
    assert paths(discovery) == [path.name]


def test_a_wildcard_where_none_can_be_and_nothing_are_refused(threads: CallThreads) -> None:
    with pytest.raises(OptionError, match="has a wildcard before its last part"):
        ChannelDiscovery(["s3://bucket/*/orders"], Clock(), threads)
    with pytest.raises(OptionError, match="at least one channel"):
        ChannelDiscovery([], Clock(), threads)
