"""Paths that lead to another channel under an open handle."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import Channel, SpillableError
from spillable_stream.errors import ChannelClosedError, DataLossError
from tests.lab.contents import CONSUMERS, changes, files_that_count
from tests.lab.uses import TIERS, USES, options_of
from tests.support.damage import kill
from tests.support.events import numbered, peek, put, take


def _rename_away(path: Path, other: Path) -> Path:
    old = path.with_name("old")
    path.rename(old)
    other.rename(path)
    return old


def _remove(path: Path, other: Path) -> Path:
    shutil.rmtree(path)
    other.rename(path)
    return path.with_name("nowhere")


def _switch_a_link(path: Path, other: Path) -> Path:
    old = Path(os.readlink(path))
    path.unlink()
    path.symlink_to(other)
    return old


def _switch_a_link_above(path: Path, other: Path) -> Path:
    old = Path(os.readlink(path.parent)) / path.name
    path.parent.unlink()
    path.parent.symlink_to(other.parent)
    other.rename(other.with_name(path.name))
    return old


# How a path is switched, from where it led to another channel; each returns where the first channel is then.
SWITCHES: dict[str, Callable[[Path, Path], Path]] = {
    "renamed": _rename_away,
    "removed": _remove,
    "a link": _switch_a_link,
    "a link above": _switch_a_link_above,
}
_DOES_NOTHING = {"flush"}  # on a channel without a memory tier


def _first_path(directory: Path, switch: str) -> Path:
    """Return the path of a channel that can be switched in one way, its directories made."""
    if switch == "a link":
        (directory / "first").mkdir()
        (directory / "channel").symlink_to(directory / "first")
        return directory / "channel"
    if switch == "a link above":
        (directory / "first").mkdir()
        (directory / "above").symlink_to(directory / "first")
        return directory / "above" / "channel"
    return directory / "channel"


def switched(directory: Path, configuration: str, switch: str, use: str) -> list[str]:
    """Return what is wrong after a handle was used whose path leads to another channel.

    Args:
        directory: where everything goes, empty.
        configuration: one of the workload's.
        switch: one of `SWITCHES`.
        use: one of `USES`, or "close".
    """
    path, other, options = _first_path(directory, switch), directory / "second" / "other", options_of(configuration)
    other.parent.mkdir()
    (directory / "memory").mkdir()
    options["memory_dir"] = directory / "memory"
    wrong: list[str] = []
    first = Channel(path, **options)
    take(first, 1, CONSUMERS)
    put(first, *numbered(0, 10))
    second = Channel(other, **options)
    take(second, 1, CONSUMERS)
    put(second, *numbered(100, 10))
    kill(second)  # so that its memory tier stays
    old = SWITCHES[switch](path, other)
    before = _everything(path)
    for what, do in ((use, USES[use]), ("close", Channel.close)) if use in USES else (("close", Channel.close),):
        try:
            do(first)
            if what != "close" and not (what in _DOES_NOTHING and configuration == "disk"):
                wrong.append("it went through")
        except ChannelClosedError:
            pass
        except SpillableError as e:
            wrong.append(f"{what} raised {e!r}")
    wrong += [f"{name} of the other channel was changed" for name in changes(before, _everything(path))]
    wrong += _wrong_events(path, numbered(100, 10)) + (_wrong_events(old, numbered(0, 10)) if old.exists() else [])
    return [f"{switch}, {use}: {w}" for w in wrong]


def _wrong_events(path: Path, expected: list[bytes]) -> list[str]:
    try:
        with Channel(path, create=False) as channel:
            found = peek(channel, 100, "reader")
    except SpillableError as e:
        return [f"{path} can't be used: {e!r}"]
    return [] if found == expected else [f"the events of {path} are not what they were: {found}"]


def _everything(path: Path) -> dict[str, bytes]:
    """Return the files of a channel with its head and what is behind the link to its memory tier."""
    files = dict(files_that_count(path.resolve()))
    files["head"] = (path / "head").read_bytes()
    if (path / "memory").exists():
        files.update({f"memory/{f.name}": f.read_bytes() for f in (path / "memory").iterdir()})
    return files


@TIERS
@pytest.mark.parametrize("switch", SWITCHES)
def test_a_handle_whose_path_leads_to_another_channel_touches_nothing_of_it(
    tmp_path: Path, configuration: str, switch: str
) -> None:
    wrong: list[str] = []
    for use in (*USES, "close"):
        (tmp_path / use).mkdir()
        wrong += switched(tmp_path / use, configuration, switch, use)
    assert wrong == []


@pytest.mark.parametrize("option", ["data_dirs", "checkpoint_dir"])
@pytest.mark.parametrize("use", ["put", "checkpoint", "roll", "close"])
def test_a_handle_one_of_whose_directories_was_switched_touches_nothing_in_the_new_one(
    tmp_path: Path, option: str, use: str
) -> None:
    """Another disk was mounted there, say, with the directory of another channel."""
    elsewhere, other = tmp_path / "elsewhere", tmp_path / "other elsewhere"
    options = options_of("disk")
    first, second = (
        Channel(tmp_path / name, **options, **{option: [str(at)] if option == "data_dirs" else str(at)})
        for name, at in (("first", elsewhere), ("second", other))
    )
    for channel in (first, second):
        put(channel, *numbered(0, 10))
        channel.checkpoint()
        channel.checkpoint()
    second.close()
    elsewhere.rename(tmp_path / "old")
    other.rename(elsewhere)
    before = files_that_count(elsewhere)
    try:
        (Channel.close if use == "close" else USES[use])(first)
        went_through = use != "close"
    except (ChannelClosedError, DataLossError):  # which says that the newest data file was replaced
        went_through = False
    assert changes(before, files_that_count(elsewhere)) == []
    if use != "close":
        kill(first)
    elsewhere.rename(other)
    (tmp_path / "old").rename(elsewhere)
    with Channel(tmp_path / "second") as channel:
        assert peek(channel) == numbered(0, 10)
    with Channel(tmp_path / "first") as channel:
        expected = [*numbered(0, 10), *([b"too late"] if use == "put" and went_through else [])]
        assert peek(channel) == expected
    assert not went_through or (use == "checkpoint") != (option == "checkpoint_dir"), "it went on in an old directory"


def test_a_handle_whose_directory_was_renamed_and_renamed_back_continues(tmp_path: Path) -> None:
    path = tmp_path / "channel"
    with Channel(path, **options_of("disk")) as channel:
        put(channel, b"0")
        path.rename(tmp_path / "away")
        with pytest.raises(ChannelClosedError):
            put(channel, b"lost")
        (tmp_path / "away").rename(path)
    with Channel(path) as channel:
        put(channel, b"1")
        assert take(channel) == [b"0", b"1"]
