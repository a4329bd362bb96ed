"""Channels to damage, and what is in them."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from spillable_stream import Channel
from spillable_stream.format.frame import FrameType
from spillable_stream.integrity.findings import Finding, Report
from spillable_stream.integrity.repair import repair
from spillable_stream.integrity.verify import verify
from tests.support.damage import kill, offsets
from tests.support.events import numbered, peek, put, take


class Contents(NamedTuple):
    """What a channel holds: for each group the IDs and bodies it has yet to take; and the last ID in use."""

    groups: dict[str, dict[int, bytes]]
    last_id: int


def fill(path: Path, **options: object) -> None:
    """Create a channel of several data files with 40 events, of which two groups have taken some."""
    with Channel(path, minimum_required_space=0, checkpoint_on_close=False, max_file_size=2500, **options) as channel:
        for i in range(8):
            put(channel, *[b"%d " % n * (1 + n % 40) for n in range(5 * i, 5 * i + 5)])
            if i == 2:
                take(channel, 4, "slow")
            if i % 3 == 0:
                take(channel, 3, "fast")
            if i == 4:
                channel.checkpoint()


def spread(tmp_path: Path, **options: object) -> Path:
    """Create a channel with one event in each of two data directories elsewhere, closed, and return its path."""
    path, data = tmp_path / "channel", [str(tmp_path / "d0"), str(tmp_path / "d1")]
    with Channel(path, data_dirs=data, minimum_required_space=0, max_file_size=1000, **options) as channel:
        for body in (b"a" * 600, b"b" * 600):
            put(channel, body)
    return path


def spilled(open_channel: Callable[..., Channel]) -> list[bytes]:
    """Create a channel with events in memory, on disk, and in memory again; it was killed."""
    channel = open_channel(memory_capacity=20, overflow_timeout=0)
    put(channel, *numbered(0, 20))
    put(channel, *numbered(20, 10))
    take(channel, 12)
    put(channel, *[b"in memory"] * 5)
    kill(channel)
    return numbered(12, 18) + [b"in memory"] * 5


def first_bytes(path: Path) -> list[bytes]:
    """Open a channel and return the first byte of every event."""
    with Channel(path, create=False, minimum_required_space=0) as channel:
        return [body[:1] for body in peek(channel)]


def three_puts(path: Path, checkpoint: bool = False, **options: object) -> list[int]:
    """Create a channel with three transactions of two events in one file, of which one event was taken.

    Returns:
        Where their PUT frames are.
    """
    with Channel(path, minimum_required_space=0, checkpoint_on_close=checkpoint, **options) as channel:
        for i in range(3):
            put(channel, *numbered(10 * i, 2))
        take(channel, 1)
    if not checkpoint:
        shutil.rmtree(path / "checkpoint")
    return offsets(path, FrameType.PUT)


def contents(path: Path) -> Contents:
    """Open a channel and return what it holds; IDs are in order."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        channel = Channel(path, create=False, checkpoint_on_close=False)
    groups = {}
    with channel:
        for group in channel.stats().groups:
            with channel.take_transaction(group) as tx:
                events = tx.take_many(10_000)
                tx.rollback()
            assert [e.write_order_id for e in events] == sorted({e.write_order_id for e in events})
            groups[group] = {e.write_order_id: e.body for e in events}
        return Contents(groups, channel.stats().last_id)


def contents_of_copy(path: Path) -> Contents:
    """Return what a channel of the disk tier holds, from a copy."""
    copy = path.with_name(f"{path.name}-copy")
    shutil.copytree(path, copy)
    try:
        return contents(copy)
    finally:
        shutil.rmtree(copy)


def check_outcome(before: Contents, after: Contents, report: Report) -> None:
    """Prove that what a report says is lost or repeated, and nothing else, is."""
    lost = {i for a, b in report.loss.lost for i in range(a, b + 1)}
    missing: set[int] = set()
    for group, events in before.groups.items():
        left = after.groups.get(group, {})
        missing |= events.keys() - left.keys()
        again = {i for a, b in report.loss.repeated.get(group, ()) for i in range(a, min(b, 10_000) + 1)}
        assert left.keys() - events.keys() <= again, f"{group} gets events again that are not reported"
        assert {i: left[i] for i in events.keys() & left.keys()} == {i: events[i] for i in events.keys() & left.keys()}
    assert missing == lost
    assert after.last_id >= before.last_id


def damage_of(report: Report) -> Finding:
    """Return the one finding of a report that is damage."""
    (found,) = [f for f in report.findings if f.severity == "damage"]
    return found


def snapshot(*directories: Path) -> dict[Path, tuple[int, bytes]]:
    """Return every file and directory, with its time and its bytes."""
    found = {}
    for directory in directories:
        for path in [directory, *sorted(directory.rglob("*"))]:
            data = (
                path.read_bytes() if path.is_file() else str(os.readlink(path)).encode() if path.is_symlink() else b""
            )
            found[path] = path.lstat().st_mtime_ns, data
    return found


def repaired(path: Path) -> Report:
    """Repair a channel and prove that it is healthy then."""
    report = repair(path)
    assert verify(path).healthy, verify(path).findings
    return report


def bodies_in(channel: Channel) -> list[bytes]:
    """Return the bodies of all events in the channel, which a handle may read that takes nothing."""
    engine = channel.engine()
    reader = engine.reader()
    try:
        with engine.snapshot() as state:
            extents = [
                e for a, b in state.gone().gaps(state.beginning(), state.last_id) for e in state.blocks.extents(a, b)
            ]
        found = [read.batch.column("body").to_pylist() for e in extents for read in reader.read(e)]
        return [body for batch in found for body in batch]
    finally:
        reader.close()
