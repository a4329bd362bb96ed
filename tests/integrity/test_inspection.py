"""What is wrong with a channel as a whole, and the state that is left."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import Channel
from spillable_stream.format.frame import FrameType
from spillable_stream.integrity.findings import Severity
from spillable_stream.integrity.inspection import Inspection, inspect
from spillable_stream.integrity.repair import repair
from spillable_stream.integrity.verify import verify
from spillable_stream.log.owner_file import OWNER_FILE
from spillable_stream.storage.filesystem import FileSystem
from tests.support.channels import (
    Contents,
    check_outcome,
    contents,
    contents_of_copy,
    damage_of,
    fill,
    repaired,
    three_puts,
)
from tests.support.damage import age_head, flip, frames, kill, log_file, offsets, reboot
from tests.support.events import numbered, peek, put, take

Open = Callable[..., Channel]


MEMORY = {"memory_capacity": 20, "overflow_timeout": 0}


def test_a_missing_data_file_is_named_with_its_events(path: Path) -> None:
    fill(path)
    shutil.rmtree(path / "checkpoint")
    number = next(i for i in range(4, 9) if offsets(path, FrameType.PUT, i))
    held = frames(path, number)
    first = min(f.header.write_order_id for f in held if f.header.type == FrameType.PUT)
    last = max(f.header.write_order_id + f.header.count - 1 for f in held if f.header.type == FrameType.PUT)
    log_file(path, number).unlink()
    report = verify(path)
    assert (damage_of(report).path, damage_of(report).events) == (log_file(path, number), ((first, last),))
    assert report.loss.lost == ((first, last),)


@pytest.mark.parametrize("is_header_cut", [False, True])
def test_events_behind_the_cut_of_a_file_are_lost_though_the_next_header_is_damaged(
    path: Path, is_header_cut: bool
) -> None:
    fill(path)
    before = contents_of_copy(path)
    last = frames(path, 2)[-1]
    end = 8 if is_header_cut else min(f.offset for f in frames(path, 2)[1:] if f.header.type == FrameType.PUT)
    assert end < last.offset
    with log_file(path, 2).open("r+b") as file:
        file.truncate(end)
    flip(log_file(path, 3), 100)
    report = verify(path)
    repair(path)
    assert verify(path).healthy
    check_outcome(before, contents(path), report)


def test_a_missing_newest_file_that_only_a_checkpoint_names_leaves_its_ids_unused(path: Path) -> None:
    fill(path)
    with Channel(path, create=False, checkpoint_on_close=True):
        pass
    reboot(path)
    max((path / "data").glob("log-*")).unlink()
    report = repaired(path)
    ((first, last),) = report.loss.doubtful
    assert first == 41 and last > 1 << 32
    with Channel(path, create=False) as channel:
        assert put(channel, b"next") == (last + 1, last + 1)


FS = FileSystem()


def damages(inspection: Inspection) -> list[tuple[Path, str]]:
    return [(f.path, f.text) for f in inspection.findings.all() if f.severity is Severity.DAMAGE]


@pytest.mark.parametrize("options", [{}, MEMORY, {"max_inline_bytes": 300}], ids=["disk", "memory", "segments"])
def test_the_state_of_a_healthy_channel_is_what_an_open_loads(
    path: Path, open_channel: Open, options: dict[str, Any]
) -> None:
    channel = open_channel(max_file_size=3000, **options)
    for i in range(8):
        put(channel, *numbered(10 * i, 10))
        take(channel, 3, "a" if i % 2 else "b")
    kill(channel)
    found = inspect(FS, path)
    state = open_channel().engine().follow()
    assert damages(found) == [] and not found.log_damaged
    assert found.last_id == state.last_id == 80
    assert {n: g.position for n, g in found.state.groups.items()} == {n: g.position for n, g in state.groups.items()}
    assert (found.loss.lost, found.loss.doubtful, found.loss.repeated, found.unrepairable) == ((), (), {}, "")
    assert found.files > 0 and found.frames > 16 and found.read_bytes > 0


@pytest.mark.parametrize("name", ["channel.json", OWNER_FILE])
def test_a_damaged_identity_needs_no_new_log(path: Path, name: str) -> None:
    three_puts(path)
    (path / name).write_text("{")
    found = inspect(FS, path)
    assert damages(found) != [] and not found.log_damaged
    assert found.identity_damaged is (name == "channel.json")


def test_a_missing_file_that_only_a_checkpoint_names_is_named(path: Path) -> None:
    three_puts(path, checkpoint=True)
    reboot(path)
    log_file(path).rename(log_file(path, 7))
    found = inspect(FS, path)
    assert (log_file(path), "log-000001 is missing, and a checkpoint needs it") in damages(found)


def test_a_channel_without_data_files_and_checkpoints_cannot_be_repaired(path: Path) -> None:
    three_puts(path)
    log_file(path).unlink()
    assert inspect(FS, path).unrepairable == "the channel has no data files, and no checkpoint that can be read"


def test_no_id_is_used_again_that_the_head_says_was_used(path: Path) -> None:
    with Channel(path, minimum_required_space=0, checkpoint_on_close=False) as channel:
        put(channel, b"a")
        put(channel, b"b", b"c")
    age_head(path)
    for offset in (offsets(path, FrameType.COMMIT)[-1], offsets(path, FrameType.PUT)[-1]):
        flip(log_file(path), offset + 20)
    found = inspect(FS, path)
    assert (found.last_id, found.state.next_id, found.loss.lost) == (3, 4, ((2, 3),))


@pytest.mark.parametrize("has_head", [True, False])
def test_the_end_of_a_file_whose_successor_is_missing_is_damage_and_no_torn_tail(
    path: Path, open_channel: Open, has_head: bool
) -> None:
    channel = open_channel(memory_capacity=5, overflow_timeout=0)
    log = channel.engine().log
    take(channel, 1)
    put(channel, *numbered(0, 5))
    put(channel, b"on disk")
    with channel.engine().committing():
        log.tiers.disk.roll(channel.engine().state.small)
    put(channel, b"on disk, too")
    with channel.engine().committing():
        log.tiers.memory.roll(partial(log.memory_image, channel.engine().follower))
    before = Contents({"default": dict(enumerate(peek(channel), 1))}, 7)
    kill(channel)
    if not has_head:
        reboot(path)
    log_file(path, 2).unlink()
    flip(log_file(path), offsets(path, FrameType.PUT)[-1] + 60)
    report = verify(path)
    assert report.loss.lost == ((6, 7),)
    assert not has_head or not any("never acknowledged" in finding.text for finding in report.findings)
    repair(path)
    assert verify(path).healthy
    check_outcome(before, contents(path), report)
