"""Copies of a channel's directory: of one that is closed, of one in use, and of one whose data lies elsewhere."""

from __future__ import annotations

import shutil
import subprocess
import warnings
from collections import Counter
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

from spillable_stream import Channel
from spillable_stream.errors import ChannelBusyError, CorruptionError, ForeignDirectoryError, MemoryLossWarning
from tests.lab.contents import changes, files_that_count
from tests.lab.copies import Writers, wrong_copy
from tests.lab.size import sized
from tests.support.damage import kill
from tests.support.events import numbered, peek, put, take

TIERS = pytest.mark.parametrize("configuration", ["disk", "tiny memory"])
_OPTIONS = {"minimum_required_space": 0, "max_file_size": 60_000}
_MEMORY = {**_OPTIONS, "memory_capacity": 1000, "byte_capacity": 1 << 20}


def copy(path: Path, target: Path) -> None:
    """Copy a directory as ``cp -a`` does; that a file is gone meanwhile is not its fault."""
    subprocess.run(["cp", "-a", path, target], capture_output=True, timeout=60)


def all_files(*directories: Path) -> dict[str, bytes]:
    """Return the files that count of some directories."""
    return {f"{d}/{name}": data for d in directories for name, data in files_that_count(d).items()}


def copy_in_order(path: Path, target: Path) -> None:
    """Copy a directory in use, what refers to other files before those: no copy lacks what it refers to."""
    for pattern in ("head", "checkpoint/*", "data/log-*", "data/[!l]*", "*", "groups/*"):
        for file in sorted(path.glob(pattern), reverse=True):  # the newest log first
            copied = target / file.relative_to(path)
            if file.is_file() and not copied.exists():
                copied.parent.mkdir(parents=True, exist_ok=True)
                with suppress(FileNotFoundError):  # it is gone meanwhile
                    shutil.copy2(file, copied)


def copies_of_a_live_channel(directory: Path, configuration: str, count: int, mutant: str = "") -> list[str]:
    """Return what is wrong with copies of a channel in use that are neither whole nor refused.

    A third each is created while its writers are stopped, in whatever they do: it is what a kill leaves, and must open;
    in an order in which a copy opens, however long it takes; and as ``cp`` does.

    Args:
        directory: where everything goes, empty.
        configuration: one of the workload's.
        count: how many copies.
        mutant: how the package is broken in the programs.
    """
    ordered: Counter[str] = Counter()
    with Writers(directory / "channel", directory, configuration, mutant) as writers:
        for i in range(count):
            writers.get_on(20)
            target, turn = directory / "copy", ("stopped", "in order", "as cp does")[i % 3]
            before = writers.lines()
            with writers.stopped() if turn == "stopped" else nullcontext():
                (copy_in_order if turn == "in order" else copy)(writers.path, target)
            with writers.stopped():  # a channel that grows while its copy is looked at makes the next copies slower
                try:
                    wrong, said = wrong_copy(target, before, writers.lines()), "whole"
                except CorruptionError as e:
                    wrong, said = [f"it is refused: {e!r}"] if turn == "stopped" else [], repr(e)
            if wrong:
                return [f"copy {i}, {turn}: {w}" for w in wrong]
            ordered[said] += turn == "in order"
            shutil.rmtree(target)
        assert writers.alive(), (directory / "stderr").read_text()
        writers.kill()
        assert ordered["whole"], f"no copy in order opened: {ordered}"
        return writers.wrong()


@TIERS
@pytest.mark.crash
@pytest.mark.timeout(1800)
def test_a_copy_of_a_channel_in_use_has_what_was_acknowledged_before_or_is_refused(
    tmp_path: Path, configuration: str
) -> None:
    assert copies_of_a_live_channel(tmp_path, configuration, sized(8, 400)) == []


@TIERS
def test_a_few_copies_of_a_channel_in_use_have_what_was_acknowledged_before(tmp_path: Path, configuration: str) -> None:
    assert copies_of_a_live_channel(tmp_path, configuration, 5) == []


@pytest.mark.parametrize("head_first", [False, True])
def test_the_head_of_a_copy_proves_nothing(tmp_path: Path, head_first: bool) -> None:
    """A copy's files are of different moments: the head is copied long before the log, or long after it."""
    path, target = tmp_path / "channel", tmp_path / "copy"
    with Channel(path, **_OPTIONS) as channel:
        put(channel, *numbered(0, 10))
        early = (path / "head").read_bytes()
        if not head_first:
            copy(path, target)
        put(channel, *numbered(10, 10))
        if head_first:
            copy(path, target)
            (target / "head").write_bytes(early)
        else:
            (target / "head").write_bytes((path / "head").read_bytes())
    try:
        with Channel(target, create=False) as channel:
            held = peek(channel)
    except CorruptionError:
        held = []
        assert not head_first, "the log was whole"
    assert held in ([], numbered(0, 20)) or (held == numbered(0, 10) and not head_first)


def test_a_copy_of_a_closed_channel_opens_by_itself_and_its_original_too(tmp_path: Path) -> None:
    path, target = tmp_path / "channel", tmp_path / "copy"
    with Channel(path, **_MEMORY) as channel:
        put(channel, *numbered(0, 10))
    copy(path, target)
    with Channel(path) as original, Channel(target, create=False) as other:
        put(original, b"original")
        put(other, b"copy")
        original.checkpoint()
        other.checkpoint()
        assert take(other, 5) == numbered(0, 5)
    for at, last, first in (path, b"original", 0), (target, b"copy", 5):
        with Channel(at, create=False) as channel:
            assert peek(channel) == [*numbered(first, 10 - first), last]


@pytest.mark.parametrize("killed", [False, True])
def test_a_copy_leaves_the_memory_tier_of_its_original_alone(tmp_path: Path, killed: bool) -> None:
    path, target = tmp_path / "channel", tmp_path / "copy"
    channel = Channel(path, **_MEMORY)
    put(channel, *numbered(0, 10))
    if killed:
        kill(channel)
    copy(path, target)
    with pytest.warns(MemoryLossWarning), Channel(target, create=False) as other:
        assert (peek(other), other.stats().lost) == ([], ((1, 10),))
        put(other, b"copy")
    if killed:
        channel = Channel(path)
    with channel, warnings.catch_warnings():
        warnings.simplefilter("error")
        put(channel, b"more")
        assert take(channel) == [*numbered(0, 10), b"more"]
    with Channel(target) as other:
        assert take(other) == [b"copy"]


@pytest.mark.parametrize("option", ["data_dirs", "checkpoint_dir"])
@pytest.mark.parametrize("in_use", [False, True])
@pytest.mark.usefixtures("settles_soon")
def test_a_copy_whose_directories_are_the_originals_is_refused_and_harms_nothing(
    tmp_path: Path, option: str, in_use: bool
) -> None:
    path, target, elsewhere = tmp_path / "channel", tmp_path / "copy", tmp_path / "elsewhere"
    channel = Channel(path, **_OPTIONS, **{option: [str(elsewhere)] if option == "data_dirs" else str(elsewhere)})
    put(channel, *numbered(0, 10))
    channel.checkpoint()
    if not in_use:
        channel.close()
    copy(path, target)
    before = all_files(path, target, elsewhere)
    for create in (True, False):
        with pytest.raises(ChannelBusyError if in_use else ForeignDirectoryError, match=str(elsewhere)):
            Channel(target, create=create)
    assert changes(before, all_files(path, target, elsewhere)) == []
    channel = channel if in_use else Channel(path)
    with channel:
        put(channel, *numbered(10, 5))
        channel.checkpoint()
        assert take(channel) == numbered(0, 15)


@pytest.mark.parametrize("damaged", [False, True], ids=["", "checkpoints lost"])
@pytest.mark.parametrize("in_use", [False, True])
def test_a_copy_and_its_original_never_read_a_checkpoint_of_each_other(
    tmp_path: Path, in_use: bool, damaged: bool
) -> None:
    path, target, backup = tmp_path / "channel", tmp_path / "copy", tmp_path / "backup"
    channel = Channel(path, **_OPTIONS, backup_checkpoint_dir=str(backup), checkpoint_on_close=False)
    put(channel, *numbered(0, 10))
    channel.checkpoint()
    if not in_use:
        channel.close()
    copy(path, target)
    with Channel(target, create=False) as other:
        assert take(other) == numbered(0, 10)
        for body in numbered(100, 5):
            put(other, body)
            other.checkpoint()
    if in_use:
        channel.close()
    if damaged:
        for file in (path / "checkpoint").glob("checkpoint-*"):
            file.write_bytes(b"")
    with Channel(path) as channel:
        for body in numbered(10, 5):
            put(channel, body)
            channel.checkpoint()
        assert peek(channel, 100) == numbered(0, 15)
    if damaged:
        for file in (target / "checkpoint").glob("checkpoint-*"):
            file.write_bytes(b"")
    with Channel(target) as other:
        assert take(other, 100) == numbered(100, 5)
    with Channel(path) as channel:
        assert take(channel, 100) == numbered(0, 15)


@pytest.mark.parametrize("moved", [False, True])
def test_a_channel_with_data_elsewhere_opens_where_it_was_moved_to(tmp_path: Path, moved: bool) -> None:
    """By a rename; or by a copy whose original is gone."""
    path, target, elsewhere = tmp_path / "channel", tmp_path / "copy", tmp_path / "elsewhere"
    with Channel(path, **_OPTIONS, data_dirs=[str(elsewhere)]) as channel:
        put(channel, *numbered(0, 10))
    if moved:
        path.rename(target)
    else:
        copy(path, target)
        shutil.rmtree(path)
    with Channel(target, create=False) as channel:
        put(channel, *numbered(10, 5))
        assert take(channel) == numbered(0, 15)
