"""Checkpoints that can be read, and damaged ones."""

from __future__ import annotations

from pathlib import Path

from spillable_stream import Channel
from spillable_stream.integrity.findings import Findings, Severity
from spillable_stream.integrity.valid_checkpoints import ValidCheckpoint, read_checkpoints
from spillable_stream.integrity.verify import verify
from spillable_stream.log.identity_file import read_identity
from spillable_stream.storage.filesystem import FileSystem
from tests.support.channels import fill
from tests.support.damage import flip
from tests.support.events import numbered, put

FS = FileSystem()


def read(path: Path) -> tuple[list[ValidCheckpoint], list[Path]]:
    return read_checkpoints(FS, read_identity(FS, path), Findings())


def test_a_damaged_checkpoint_is_a_warning_and_costs_nothing(path: Path) -> None:
    fill(path)
    checkpoint = max((path / "checkpoint").glob("checkpoint-*"))
    flip(checkpoint, 90)
    report = verify(path)
    (found,) = report.findings
    assert (found.severity, found.path) == (Severity.WARNING, checkpoint)
    assert not report.healthy and not report.damaged and report.loss.lost == ()


def test_checkpoints_are_told_by_their_places_and_damaged_ones_apart(path: Path) -> None:
    with Channel(path, minimum_required_space=0, checkpoint_on_close=False) as channel:
        for body in numbered(0, 2):
            put(channel, body)
            channel.checkpoint()
        position = channel.engine().positions.disk
    valid, bad = read(path)
    assert bad == [] and valid[-1].position == position
    assert [c.position for c in valid] == sorted(c.position for c in valid)
    flip(valid[-1].path, 90)
    left, bad = read(path)
    assert bad == [valid[-1].path]
    assert [c.path for c in left] == [c.path for c in valid[:-1]]
