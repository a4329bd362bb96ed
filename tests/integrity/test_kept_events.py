"""Damage among events that are kept: no group needs them, until one goes back or comes."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from spillable_stream import Channel, DataLossError
from spillable_stream.format.frame import FrameType
from spillable_stream.integrity.findings import Severity
from spillable_stream.integrity.verify import verify
from spillable_stream.state.ranges import RangeSet
from tests.support.channels import damage_of, repaired
from tests.support.damage import flip, frames
from tests.support.events import numbered, put, take

COUNT, TAKEN = 40, 25
EVERY = dict(enumerate(numbered(0, COUNT), 1))


def keeping(path: Path) -> Path:
    """Create a channel of several data files, in which a group has taken the first events, which are kept."""
    with Channel(
        path, retention_ms=3_600_000, minimum_required_space=0, max_file_size=2500, checkpoint_on_close=False
    ) as channel:
        channel.consumer("default")
        for i in range(8):
            put(channel, *numbered(5 * i, 5))
            if i == 4:
                channel.checkpoint()
        for _ in range(TAKEN // 5):
            take(channel, 5)
    return path


def frame_with(path: Path, event_id: int) -> tuple[Path, int]:
    """Return where the PUT frame of an event is: the file, and the offset of its payload."""
    for file in sorted((path / "data").glob("log-*")):
        for found in frames(path, int(file.name[4:])):
            first, count = found.header.write_order_id, found.header.count
            if found.header.type == FrameType.PUT and first <= event_id < first + count:
                return file, found.offset + 48
    raise AssertionError(f"no file has the event {event_id}")


def replayed(path: Path) -> tuple[dict[int, bytes], list[tuple[int, int]]]:
    """Go back to the first event; return everything that is taken then, and what is told to be lost."""
    with Channel(path, create=False, minimum_required_space=0) as channel:
        channel.seek("default", "earliest")
        lost = channel.consumer("default").lost()
        with channel.take_transaction() as tx:
            return {e.write_order_id: e.body for e in tx.take_many(10_000)}, lost


def without(*ranges: tuple[int, int]) -> dict[int, bytes]:
    gone = RangeSet(ranges)
    return {i: body for i, body in EVERY.items() if i not in gone}


@pytest.mark.parametrize("checkpoint", [True, False])
def test_kept_events_are_checked_and_whole(path: Path, checkpoint: bool) -> None:
    keeping(path)
    if not checkpoint:
        shutil.rmtree(path / "checkpoint")
    report = verify(path)
    assert report.healthy and not report.loss.kept
    assert replayed(path) == (EVERY, [])


def test_damage_among_kept_events_is_damage_and_said_to_hurt_no_group(path: Path) -> None:
    keeping(path)
    flip(*frame_with(path, 7))
    report = verify(path)
    found = damage_of(report)
    assert (found.severity, found.events) == (Severity.DAMAGE, ((6, 10),))
    assert (report.loss.lost, report.loss.kept, report.loss.count) == ((), ((6, 10),), 0)


def test_a_repair_gives_up_no_other_event_and_tells_who_goes_back(path: Path) -> None:
    keeping(path)
    flip(*frame_with(path, 7))
    repaired(path)
    assert verify(path).healthy
    with Channel(path, create=False, minimum_required_space=0) as channel:
        assert channel.consumer("default").lost() == []
        assert take(channel, 5) == numbered(TAKEN, 5)
    assert replayed(path) == (without((6, 10)), [(6, 10)])
    assert verify(path).healthy


def test_a_missing_file_of_kept_events_keeps_the_channel_shut_until_it_is_repaired(path: Path) -> None:
    keeping(path)
    file, _ = frame_with(path, 1)
    file.unlink()
    with pytest.raises(DataLossError):
        Channel(path, create=False, minimum_required_space=0)
    report = repaired(path)
    assert not report.loss.lost
    ((first, last),) = report.loss.kept
    assert first == 1 and last < TAKEN
    assert damage_of(report).text.endswith("no group needs them")
    assert replayed(path) == (without((1, last)), [(1, last)])


def test_a_missing_file_between_kept_events_takes_no_other_with_it(path: Path) -> None:
    keeping(path)
    file, _ = frame_with(path, 12)
    file.unlink()
    report = repaired(path)
    assert not report.loss.lost
    ((first, last),) = report.loss.kept
    assert 1 < first <= 12 <= last < TAKEN
    assert replayed(path) == (without((first, last)), [(first, last)])


def test_a_new_group_is_told_about_kept_events_that_were_damaged(path: Path) -> None:
    keeping(path)
    flip(*frame_with(path, 12))
    repaired(path)
    with Channel(path, create=False, minimum_required_space=0) as channel:
        assert channel.consumer("new").lost() == [(11, 15)]
        assert take(channel, 1000, "new") == list(without((11, 15)).values())


def test_events_that_a_group_went_back_to_are_needed(path: Path) -> None:
    keeping(path)
    with Channel(path, create=False, checkpoint_on_close=False) as channel:
        channel.seek("default", 9)
    flip(*frame_with(path, 7))
    flip(*frame_with(path, 12))
    report = repaired(path)
    assert (report.loss.lost, report.loss.kept) == (((9, 15),), ((6, 8),))
    with Channel(path, create=False) as channel:
        assert channel.consumer("default").lost() == [(9, 15)]


@pytest.mark.parametrize("seed", range(2))
def test_wherever_bits_flip_what_is_not_reported_is_there(path: Path, tmp_path: Path, seed: int) -> None:
    keeping(path)
    chosen = random.Random(seed)
    files = sorted((path / "data").glob("log-*"))
    for number in range(12):
        copy = tmp_path / f"copy-{number}"
        shutil.copytree(path, copy)
        for file in chosen.sample(files, chosen.choice([1, 2])):
            found = frames(copy, int(file.name[4:]))
            if found:
                at = chosen.choice(found)
                flip(copy / "data" / file.name, at.offset + chosen.randrange(48 + at.header.length))
        report = repaired(copy)
        assert verify(copy).healthy
        there, told = replayed(copy)
        assert there == without(*report.loss.lost, *report.loss.kept)
        assert told == list(RangeSet([*report.loss.lost, *report.loss.kept]))
        shutil.rmtree(copy)
