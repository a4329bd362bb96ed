"""What proves up to where the files of a channel count."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from spillable_stream import Channel
from spillable_stream.format.frame import FrameType
from spillable_stream.integrity.findings import Findings, Severity
from spillable_stream.integrity.inventory import Inventory, take_inventory
from spillable_stream.integrity.repair import repair
from spillable_stream.integrity.verify import verify
from spillable_stream.log.identity_file import read_identity
from spillable_stream.log.wal import Position
from spillable_stream.storage.filesystem import FileSystem
from tests.support.channels import damage_of, fill, repaired, three_puts
from tests.support.damage import age_head, flip, frames, kill, log_file, memory_of, offsets, reboot, trim
from tests.support.events import numbered, put, take

Open = Callable[..., Channel]


MEMORY = {"memory_capacity": 20, "overflow_timeout": 0}


def test_a_torn_tail_is_a_note_that_says_what_the_next_open_cuts(path: Path) -> None:
    three_puts(path)
    end = trim(path)
    reboot(path)
    begin = offsets(path, FrameType.TAKE)[-1]
    with log_file(path).open("r+b") as file:
        file.truncate(end - 8)
    report = verify(path)
    (note,) = report.findings
    assert report.healthy and (note.severity, note.path) == (Severity.NOTE, log_file(path))
    assert note.offset is not None and note.offset >= begin and note.size == end - 8 - note.offset
    assert f"the next open cuts {note.size} bytes" in note.text


@pytest.mark.parametrize("proof", ["head", "checkpoint"])
def test_a_tail_that_had_been_synced_is_damage(path: Path, proof: str) -> None:
    three_puts(path, checkpoint=proof == "checkpoint")
    age_head(path) if proof == "head" else reboot(path)
    last = frames(path)[-1]
    flip(log_file(path), last.offset + 20)
    assert (damage_of(verify(path)).offset, verify(path).loss.lost) == (last.offset, ())


def test_a_file_that_was_being_created_is_a_note(path: Path) -> None:
    fill(path)
    reboot(path)
    newest = max(int(p.name[4:]) for p in (path / "data").glob("log-*"))
    log_file(path, newest + 1).write_bytes(b"SPL1")
    (note,) = verify(path).findings
    assert (note.severity, note.path) == (Severity.NOTE, log_file(path, newest + 1))


def test_the_missing_newest_data_file_is_named(path: Path) -> None:
    fill(path)
    newest = max((path / "data").glob("log-*"))
    newest.unlink()
    report = verify(path)
    assert damage_of(report).path == newest
    assert report.loss.lost[-1][1] == 40


def test_a_damaged_head_is_a_note(path: Path) -> None:
    fill(path)
    (path / "head").write_bytes(b"\x07" * 512)
    (note,) = verify(path).findings
    assert (note.severity, note.path) == (Severity.NOTE, path / "head")


def test_a_head_with_one_damaged_half_is_a_warning_while_it_counts(path: Path) -> None:
    """What the other half says is older: the last transaction would be cut, though it was acknowledged."""
    three_puts(path)
    with Channel(path, create=False):
        head = (path / "head").read_bytes()
        newer = max((0, 128), key=lambda slot: int.from_bytes(head[slot : slot + 8], "little"))
        flip(path / "head", newer + 33)
        report = verify(path)
        (path / "head").write_bytes(head)
    (found,) = report.findings
    assert (found.severity, found.path, report.loss.lost) == (Severity.WARNING, path / "head", ())


def test_a_file_of_memory_that_holds_commits_is_not_taken_for_one_that_was_being_created(
    path: Path, open_channel: Open
) -> None:
    channel = open_channel(**MEMORY)
    put(channel, *numbered(0, 3))
    engine = channel.engine()
    with engine.committing():
        engine.log.tiers.memory.roll(partial(engine.log.memory_image, engine.follower))
        engine.follower.catch_up()
    put(channel, *numbered(3, 1))
    kill(channel)
    newest = sorted(memory_of(path).glob("memory-*"))[-1]
    flip(newest, 60)
    (path / "head").unlink()
    assert damage_of(verify(path)).path == path / "memory" / newest.name


def test_a_file_that_was_cut_below_what_a_checkpoint_proves_may_have_been_longer(path: Path) -> None:
    three_puts(path, checkpoint=True)
    reboot(path)
    with log_file(path).open("r+b") as file:
        file.truncate(1000)
    report = repaired(path)
    assert report.loss.lost == ((2, 6),)
    assert [first for first, _ in report.loss.doubtful] == [7]
    with Channel(path, create=False) as channel:
        assert put(channel, b"next")[0] == report.loss.doubtful[0][1] + 1


FS = FileSystem()


def inventory_of(path: Path, findings: Findings | None = None) -> Inventory:
    return take_inventory(FS, read_identity(FS, path), findings or Findings())


def test_the_head_counts_while_somebody_holds_the_channel_and_else_is_a_lower_bound(
    path: Path, open_channel: Open
) -> None:
    channel = open_channel()
    put(channel, b"a")
    published = channel.engine().log.position()
    held = inventory_of(path)
    assert held.head is not None and held.exact
    assert (held.head.disk, held.disk[-1].end) == (published.disk, published.disk.end)
    channel.close()
    free = inventory_of(path)
    assert (free.head, free.exact) == (None, False)
    assert free.known is not None and free.known.disk == published.disk
    reboot(path)
    assert inventory_of(path).known is None


def test_files_end_where_the_next_ones_header_says_damaged_or_not(path: Path) -> None:
    fill(path)
    files = inventory_of(path).disk
    assert [f.file_id for f in files] == read_identity(FS, path).log_files(FS)
    assert [frames(path, f.file_id)[-1].end for f in files] == [f.end for f in files]
    flip(log_file(path, files[3].file_id), 60)
    again = inventory_of(path).disk
    assert again[3].header is None and again[3].begin == 0
    assert [f.end for f in again] == [f.end for f in files]


def test_the_root_is_the_first_file_of_the_chain_that_leads_to_the_last(path: Path) -> None:
    fill(path)
    files = inventory_of(path).disk
    assert inventory_of(path).root() == 0
    files[2].path.unlink()
    found = inventory_of(path)
    assert found.disk[found.root()].file_id == files[3].file_id


def test_a_checkpoint_of_another_history_is_damage_and_does_not_count(path: Path) -> None:
    """The log was restored from a copy, and went on in another way."""
    with Channel(path, minimum_required_space=0, checkpoint_on_close=False) as channel:
        put(channel, b"a")
        old = log_file(path).read_bytes()
        put(channel, b"b")
        channel.checkpoint()
    checkpoints = {p: p.read_bytes() for p in (path / "checkpoint").glob("checkpoint-*")}
    for file in checkpoints:
        file.unlink()
    log_file(path).write_bytes(old)
    reboot(path)
    with Channel(path, create=False, checkpoint_on_close=False) as channel:
        put(channel, b"another")
        put(channel, b"and more")
    newest = max(checkpoints)
    newest.write_bytes(checkpoints[newest])
    findings = Findings()
    assert newest not in [c.path for c in inventory_of(path, findings).checkpoints]
    assert [(f.path, f.severity) for f in findings.all()] == [(newest, Severity.DAMAGE)]


def test_a_stale_file_and_all_after_it_do_not_count(path: Path) -> None:
    with Channel(path, minimum_required_space=0, checkpoint_on_close=False, max_file_size=1000) as channel:
        for body in (b"a", b"b", b"c"):
            put(channel, body * 800)
    for file in (path / "checkpoint").glob("checkpoint-*"):
        file.unlink()
    age_head(path, published=(1, 10**6))
    findings = Findings()
    assert [f.file_id for f in inventory_of(path, findings).disk] == [1]
    assert {f.path for f in findings.all() if "is stale" in f.text} == {log_file(path, 2), log_file(path, 3)}


def test_a_repair_that_was_cut_short_is_not_contradicted_by_what_it_had_yet_to_remove(path: Path) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, b"a")
        put(channel, b"b")
    left = {p: p.read_bytes() for p in [path / "head", *(path / "checkpoint").glob("checkpoint-*")]}
    flip(log_file(path), offsets(path, FrameType.PUT)[0] + 60)
    repair(path)
    for file, data in left.items():
        file.write_bytes(data)
    findings = Findings()
    found = inventory_of(path, findings)
    assert (found.checkpoints, found.missing_end) == ([], False)
    text = "a repair was cut short and left what contradicts its outcome: run it again"
    assert {f.path for f in findings.all() if f.text == text} == set(left)


def test_the_groups_that_were_ever_owned_are_known(path: Path) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, *numbered(0, 3))
        take(channel, 1, "a")
        take(channel, 1, "b")
        channel.drop_group("b")
    assert {"a", "b"} <= set(inventory_of(path).owned_groups)


def test_the_memory_files_of_a_copied_channel_are_not_its_own(path: Path, open_channel: Open) -> None:
    channel = open_channel(**MEMORY)
    put(channel, *numbered(0, 3))
    memory = channel.engine().log.position().memory
    kill(channel)
    own = inventory_of(path).memory
    assert [(f.file_id, f.end) for f in own] == [(memory.file_id, memory.end)]
    copy = path.with_name("copy")
    shutil.copytree(path, copy, symlinks=True)
    assert inventory_of(copy).memory == []
    assert Position(1, 0) < Position(own[0].file_id, 0)
