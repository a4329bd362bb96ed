"""The replay of both tiers past damage: a memory tier that is gone, or knows more, and headers that are lost."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NoReturn

import pyarrow as pa
import pytest

from spillable_stream import Channel, CorruptionError, MemoryLossWarning
from spillable_stream.integrity.findings import Loss, Severity
from spillable_stream.integrity.inspection import inspect
from spillable_stream.integrity.repair import repair
from spillable_stream.integrity.verify import verify
from spillable_stream.log.rolling import Rolling
from spillable_stream.storage.filesystem import FileSystem
from tests.integrity.test_inspection import FS, MEMORY, damages
from tests.support.channels import (
    check_outcome,
    contents,
    contents_of_copy,
    damage_of,
    repaired,
    snapshot,
    three_puts,
)
from tests.support.damage import flip, kill, log_file, lose_memory, memory_of, reboot
from tests.support.events import numbered, peek, put, take

Open = Callable[..., Channel]


def test_a_memory_tier_that_is_gone_is_damage_with_the_events_that_went(path: Path, open_channel: Open) -> None:
    channel = open_channel(**MEMORY)
    put(channel, *numbered(0, 10))
    take(channel, 4)
    kill(channel)
    lose_memory(path)
    report = verify(path)
    assert (damage_of(report).path, report.loss.lost) == (path / "memory", ((5, 10),))


def test_what_a_checkpoint_knows_of_a_memory_tier_that_is_gone_is_told_as_the_next_open_tells_it(
    path: Path, open_channel: Open
) -> None:
    channel = open_channel(**MEMORY)
    put(channel, *numbered(0, 10))
    take(channel, 5)
    channel.checkpoint()
    kill(channel)
    lose_memory(path)
    (path / "groups" / "default.position").unlink()
    reboot(path)
    loss = verify(path).loss
    with pytest.warns(MemoryLossWarning), Channel(path) as channel:
        stats = channel.stats()
    assert (loss.lost, loss.doubtful) == (stats.lost, stats.doubtful)
    assert loss.lost == ((6, 10),)


@pytest.mark.parametrize("left", ["no file", "an empty file"])
def test_a_memory_tier_that_never_held_anything_is_not_a_loss(
    path: Path, open_channel: Open, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    channel = open_channel(**MEMORY)

    def killed(*_: object) -> NoReturn:
        raise SystemExit

    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(Rolling, "roll_from", killed)
        put(channel, b"never acknowledged")
    kill(channel)
    if left == "an empty file":
        (memory_of(path) / "memory-000001-000001").touch()
    report = verify(path)
    assert (report.healthy, report.loss) == (True, Loss())
    with Channel(path, create=False) as channel:
        assert (channel.stats().lost, channel.stats().doubtful) == ((), ())


def test_what_may_be_missing_of_memory_on_a_disk_is_told_as_the_next_open_tells_it(
    path: Path, open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FileSystem, "is_in_memory", lambda self, path: False)
    channel = open_channel(**MEMORY)
    put(channel, *numbered(0, 10))
    kill(channel)
    loss = verify(path).loss
    with pytest.warns(MemoryLossWarning), Channel(path) as channel:
        stats = channel.stats()
    assert (loss.lost, loss.doubtful) == (stats.lost, stats.doubtful)
    assert loss.doubtful


def test_an_event_channel_without_a_header_is_known_by_its_frames(path: Path) -> None:
    three_puts(path)
    before = contents_of_copy(path)
    flip(log_file(path), 100)
    report = repaired(path)
    assert any("nothing but the damaged header" in f.text for f in report.findings)
    check_outcome(before, contents(path), report)


def test_a_typed_channel_without_a_header_is_not_guessed_at(path: Path) -> None:
    schema = pa.schema([("n", pa.int64())])
    with Channel(path, schema=schema, minimum_required_space=0) as channel, channel.put_transaction() as tx:
        tx.put_batch(pa.table({"n": [1, 2]}, schema=schema))
    shutil.rmtree(path / "checkpoint")
    flip(log_file(path), 100)
    before = snapshot(path)
    with pytest.raises(CorruptionError, match="can't be repaired: the header of log-000001 is damaged"):
        repair(path)
    assert snapshot(path) == before and verify(path).unrepairable


def test_a_memory_tier_that_is_gone_with_nothing_in_it_is_a_note(path: Path, open_channel: Open) -> None:
    channel = open_channel(**MEMORY)
    put(channel, *numbered(0, 10))
    take(channel, 10)
    kill(channel)
    lose_memory(path)
    found = inspect(FS, path)
    assert [(f.severity, f.path) for f in found.findings.all()] == [(Severity.NOTE, path / "memory")]
    assert found.loss.lost == ()


def test_a_memory_tier_that_knows_of_more_than_the_disk_has_is_damage(path: Path, open_channel: Open) -> None:
    channel = open_channel(**MEMORY)
    put(channel, *numbered(0, 10))
    with channel.engine().committing():
        channel.engine().log.tiers.disk.roll(channel.engine().state.small)
    put(channel, *numbered(10, 2))
    with channel.engine().committing():
        channel.engine().log.tiers.memory.roll(partial(channel.engine().log.memory_image, channel.engine().follower))
    disk = tuple(channel.engine().positions.disk)
    kill(channel)
    reboot(path)
    for file in (log_file(path, 2), *(path / "checkpoint").glob("checkpoint-*")):
        file.unlink()
    found = inspect(FS, path)
    text = f"the memory tier knows of the disk tier's log up to {disk}, beyond its end"
    assert text in [text for _, text in damages(found)]


def test_a_missing_file_behind_the_place_that_the_memory_tier_names_is_damage_that_a_repair_mends(
    path: Path, open_channel: Open
) -> None:
    channel = open_channel(**MEMORY)
    put(channel, *numbered(0, 10))
    for _ in range(2):
        with channel.engine().committing():
            channel.engine().log.tiers.disk.roll(channel.engine().state.small)
    kill(channel)
    log_file(path, 2).unlink()
    report = verify(path)
    assert (damage_of(report).path, report.loss.lost) == (log_file(path, 2), ())
    repair(path)
    assert verify(path).healthy
    with open_channel() as channel:
        assert peek(channel) == numbered(0, 10)
