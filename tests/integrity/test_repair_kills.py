"""Repairs that are killed, or interrupted, at any place."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import Channel, CorruptionError, DataLossError, ForeignDirectoryError, Progress, StorageError
from spillable_stream.format.frame import FrameType
from spillable_stream.integrity.repair import repair
from spillable_stream.integrity.verify import verify
from spillable_stream.log.identity_file import read_identity
from spillable_stream.log.owner_file import OWNER_FILE, read_owner
from spillable_stream.storage.filesystem import FileSystem
from tests.support.channels import check_outcome, contents, contents_of_copy, fill, snapshot, spilled, three_puts
from tests.support.damage import flip, log_file, offsets
from tests.support.events import numbered, peek
from tests.support.fake_files import DyingFileSystem

Open = Callable[..., Channel]


@pytest.mark.parametrize(
    ("damage", "step"),
    [
        *((damage, 7) for damage in ("file", "identity", "segment")),
        *(pytest.param(damage, 3, marks=pytest.mark.slow) for damage in ("file", "identity", "segment")),
        pytest.param("header", 1, marks=pytest.mark.slow),
    ],
)
def test_a_repair_that_is_killed_anywhere_is_done_by_the_next(
    path: Path, tmp_path: Path, damage: str, step: int
) -> None:
    fill(path, max_inline_bytes=300)
    before = contents_of_copy(path)
    files = sorted((path / "data").glob("log-*"))
    if damage == "segment":
        flip(max((path / "data").glob("segment.*")), 80)
    elif damage == "file":
        files[-1].unlink()
    else:
        flip(files[len(files) // 2], 100)
    if damage == "identity":
        (path / "channel.json").write_text("{")
    damaged = verify(path)
    number, finished = 0, False
    while not finished:
        number += step
        copy = tmp_path / f"copy-{number}"
        shutil.copytree(path, copy)
        try:
            repair(copy, fs=DyingFileSystem(number))
            finished = True
        except StorageError:
            _opens_unchanged_or_refuses(copy, before.last_id)
        report = repair(copy)
        assert verify(copy).healthy, f"killed at call {number}"
        kept = [json.loads(p.read_text()) for p in (copy / "quarantine").glob("*/report.json")]
        assert kept and (report.loss == damaged.loss or report.healthy or not report.loss.lost)
        check_outcome(before, contents(copy), damaged)
        shutil.rmtree(copy)
    assert number > 45


def test_a_repair_that_is_killed_again_and_again_keeps_what_is_in_memory(path: Path, open_channel: Open) -> None:
    bodies = spilled(open_channel)
    flip(log_file(path), offsets(path, FrameType.PUT)[0] + 60)
    for number in range(1, 200, 2):
        try:
            repair(path, fs=DyingFileSystem(number))
            break
        except StorageError:
            report = verify(path)
            assert report.damaged and report.loss.lost in {((21, 30),), ()}, f"killed at call {number}"
    assert verify(path).healthy and number > 15
    reports = [json.loads(p.read_text()) for p in (path / "quarantine").glob("*/report.json")]
    assert [[21, 30]] in [r["loss"]["lost"] for r in reports]
    with Channel(path, create=False) as channel:
        assert peek(channel) == [b for b in bodies if b not in numbered(20, 10)]


def _opens_unchanged_or_refuses(path: Path, last_id: int) -> None:
    """Prove that an open after a repair that was cut short gives nothing wrong to anybody."""
    copy = path.with_name(f"{path.name}-opened")
    shutil.copytree(path, copy)
    try:
        assert contents(copy).last_id >= last_id
    except (CorruptionError, DataLossError):
        pass
    finally:
        shutil.rmtree(copy)


def test_a_repair_that_is_interrupted_while_it_reads_changes_nothing(path: Path) -> None:
    def interrupt(now: Progress) -> None:
        if now.what == "repair":
            raise KeyboardInterrupt

    flip(log_file(path), three_puts(path)[1] + 4)
    before = snapshot(path)
    with pytest.raises(KeyboardInterrupt):
        repair(path, progress=interrupt)
    assert snapshot(path) == before


@pytest.mark.parametrize(
    ("whose", "inside"),
    [
        ("checkpoint", True),
        *(pytest.param(role, True, marks=pytest.mark.slow) for role in ("home", "data-0")),
        *(pytest.param(role, False, marks=pytest.mark.slow) for role in ("home", "data-0", "checkpoint")),
    ],
)
def test_the_open_after_a_killed_repair_of_an_owner_file_leaves_one_token_in_all_directories(
    tmp_path: Path, whose: str, inside: bool
) -> None:
    """An open that created the checkpoint directory's anew wrote to it that a move was under way, for good."""
    fs, number, finished = FileSystem(), -1, False
    while not finished:
        number += 1
        path = tmp_path / str(number)
        data = [path / "data" if inside else tmp_path / f"d{number}", path / "more"]
        Channel(path, data_dirs=data, minimum_required_space=0).close()
        directories = {"home": path, **read_identity(fs, path).directories()}
        (directories[whose] / OWNER_FILE).write_text("{")
        claims = () if whose == "home" and inside else data
        try:
            repair(path, claim=claims, fs=DyingFileSystem(number, only="rename"))
            finished = True
        except StorageError:
            try:
                Channel(path, create=False).close()
            except ForeignDirectoryError:
                repair(path, claim=claims)
        Channel(path, create=False).close()
        owners = [read_owner(fs, directory) for directory in directories.values()]
        assert len({owner.token for owner in owners if owner is not None}) == 1, f"killed at rename {number}"
        assert all(owner is not None and owner.next == "" for owner in owners), f"killed at rename {number}"
    assert number > 4
