"""Whether the events are where the state says, and which of them can be read."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spillable_stream import Channel, Event
from spillable_stream.format.frame import FrameType
from spillable_stream.integrity.event_check import EventCheck, FilesOfDisk
from spillable_stream.integrity.findings import Findings, Severity
from spillable_stream.integrity.inventory import take_inventory
from spillable_stream.integrity.verify import verify
from spillable_stream.log.identity_file import read_identity
from spillable_stream.log.staged_file import StagedFileWriter
from spillable_stream.state.blocks import Blocks
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.storage.filesystem import FileSystem
from tests.support.channels import damage_of, repaired, three_puts
from tests.support.damage import flip, frames, kill, log_file, offsets
from tests.support.events import ids, peek, put
from tests.support.fake_files import FaultyFileSystem

pytestmark = pytest.mark.usefixtures("one_block")


def test_segments_are_read_and_those_that_nobody_adopted_are_noted(path: Path) -> None:
    with Channel(path, minimum_required_space=0, max_inline_bytes=100, checkpoint_on_close=False) as channel:
        put(channel, *[b"x" * 50] * 10)
        writer = StagedFileWriter(FileSystem(), channel.engine().layout)
        writer.close()
    adopted = next(p for p in (path / "data").glob("segment.*") if p != writer.path)
    (note,) = verify(path).findings
    assert (note.severity, note.path) == (Severity.NOTE, writer.path)
    flip(adopted, 300)
    report = verify(path)
    assert (damage_of(report).path, damage_of(report).events) == (adopted, ((1, 10),))
    adopted.unlink()
    assert (damage_of(verify(path)).path, verify(path).loss.lost) == (adopted, ((1, 10),))


def test_events_behind_a_frame_that_is_missing_keep_their_ids(path: Path, open_channel: Callable[..., Channel]) -> None:
    """A repair said that they are where the missing ones were, so that the channel was damaged again."""
    channel = open_channel(memory_capacity=1, overflow_timeout=0)
    for body in (b"1", b"2", b"3"):
        put(channel, body, body)  # to disk
    put(channel, b"in memory")
    channel.checkpoint()  # the memory tier's new file says that all are in one block of the data file
    kill(channel)
    _, missing, _ = [f for f in frames(path) if f.header.type == FrameType.PUT]
    data = log_file(path).read_bytes()
    log_file(path).write_bytes(data[: missing.offset] + data[missing.end :])
    report = repaired(path)
    assert report.loss.lost == ((3, 4),)
    assert (log_file(path), ((3, 4),)) in [(found.path, found.events) for found in report.findings]
    with open_channel() as channel:
        assert ids(channel) == [1, 2, 5, 6, 7] and peek(channel) == [b"1", b"1", b"3", b"3", b"in memory"]


def test_a_segment_whose_commit_is_damaged_is_where_a_later_checkpoint_says(path: Path) -> None:
    """Its events were given up: the next data file says which events there are, and not where."""
    with Channel(path, minimum_required_space=0, max_inline_bytes=100, checkpoint_on_close=False) as channel:
        put(channel, b"1")
        put(channel, b"2" * 200)
        with channel.engine().committing():
            channel.engine().log.tiers.disk.roll(channel.engine().state.small)
        channel.checkpoint()
    flip(log_file(path), offsets(path, FrameType.COMMIT)[-1] + 25)
    report = repaired(path)
    assert report.damaged and report.loss.count == 0
    with Channel(path, create=False, minimum_required_space=0) as channel:
        assert peek(channel) == [b"1", b"2" * 200]


def test_a_cut_segment_is_named_with_the_events_behind_the_cut(path: Path) -> None:
    with Channel(path, minimum_required_space=0, max_inline_bytes=100) as channel, channel.put_transaction() as tx:
        for body in (b"a" * 200, b"b" * 200, b"c" * 200):
            tx.put_many([Event(body)] * 3)
    (segment,) = (path / "data").glob("segment.*")
    with segment.open("r+b") as file:
        file.truncate(segment.stat().st_size - 16)
    found = damage_of(verify(path))
    assert found.path == segment and found.events[0][1] == 9


def test_a_damaged_segment_keeps_what_is_around_the_damage(path: Path) -> None:
    with Channel(path, minimum_required_space=0, max_inline_bytes=100) as channel, channel.put_transaction() as tx:
        for i in range(4):
            tx.put_batch(pa.RecordBatch.from_pylist(_rows(i), schema=channel.schema))
    before = contents_of_copy_of_new_group(path)
    (segment,) = (path / "data").glob("segment.*")
    starts = [i for i in range(0, segment.stat().st_size, 8) if segment.read_bytes()[i : i + 4] == b"SPL1"]
    assert len(starts) == 5
    flip(segment, starts[2] + 80)
    flip(segment, 20)
    report = repaired(path)
    assert report.loss.lost == ((4, 6),)
    with Channel(path, create=False) as channel:
        assert peek(channel, group="g") == [b for i, b in enumerate(before, 1) if not 4 <= i <= 6]


def _rows(i: int) -> list[dict[str, Any]]:
    return [{"headers": [], "body": b"%d" % (3 * i + k) * 50} for k in range(3)]


def contents_of_copy_of_new_group(path: Path) -> list[bytes]:
    """Return all bodies of a channel, from a copy."""
    copy = path.with_name("for-a-new-group")
    shutil.copytree(path, copy)
    with Channel(copy, create=False) as channel:
        return peek(channel, group="g")


FS = FileSystem()


def state_of(path: Path) -> ChannelState:
    """Return the state of a channel before it is damaged."""
    with Channel(path, create=False, checkpoint_on_close=False) as channel:
        return channel.engine().state.copy()


def check(path: Path, findings: Findings, sound: set[int | str] = frozenset()) -> EventCheck:  # type: ignore[assignment]
    fs = FaultyFileSystem()
    return EventCheck(FilesOfDisk(fs, take_inventory(fs, read_identity(FS, path), Findings())), findings, sound)


def ranges(blocks: Blocks) -> list[tuple[int, int]]:
    return [(b.first_id, b.last_id) for b in blocks]


def test_events_that_can_be_read_are_where_they_were(path: Path) -> None:
    three_puts(path)
    state, findings = state_of(path), Findings()
    checked = check(path, findings)
    blocks = checked.readable(state)
    assert ranges(blocks) == ranges(state.blocks) == [(1, 6)]
    assert [(b.offset, b.payload_bytes) for b in blocks] == [(b.offset, b.payload_bytes) for b in state.blocks]
    assert (findings.all(), checked.files) == ((), 1)
    assert checked.frames >= 5 and checked.read_bytes > 0


def test_a_block_with_damage_in_the_middle_is_two(path: Path) -> None:
    at = three_puts(path)
    state, findings = state_of(path), Findings()
    flip(log_file(path), at[1] + 60)
    blocks = check(path, findings).readable(state)
    assert ranges(blocks) == [(1, 2), (5, 6)]
    assert [b.offset for b in blocks] == [at[0], at[2]]
    (found,) = findings.all()
    assert (found.offset, found.events) == (at[1], ((3, 4),))


def test_damage_without_a_header_is_of_the_events_up_to_the_next_frame(path: Path) -> None:
    at = three_puts(path)
    state, findings = state_of(path), Findings()
    flip(log_file(path), at[1] + 20)
    assert ranges(check(path, findings).readable(state)) == [(1, 2), (5, 6)]
    assert findings.all()[0].events == ((3, 4),)


def test_a_file_without_damage_is_not_read_again(path: Path) -> None:
    at = three_puts(path)
    state, findings = state_of(path), Findings()
    flip(log_file(path), at[1] + 60)
    checked = check(path, findings, {1})
    assert ranges(checked.readable(state)) == [(1, 6)]
    assert (findings.all(), checked.files, checked.frames) == ((), 0, 0)


def test_a_missing_file_is_named_once_with_all_its_events(path: Path) -> None:
    with Channel(path, minimum_required_space=0, max_inline_bytes=1000, checkpoint_on_close=False) as channel:
        put(channel, b"first")
        put(channel, b"x" * 2000)
        put(channel, b"last")
    state, findings = state_of(path), Findings()
    log_file(path).rename(path / "elsewhere")
    blocks = check(path, findings).readable(state)
    assert ranges(blocks) == [(2, 2)]
    (found,) = findings.all()
    assert (found.path, found.events) == (log_file(path), ((1, 1), (3, 3)))


def test_frames_of_another_schema_are_not_events(path: Path) -> None:
    three_puts(path)
    state, findings = state_of(path), Findings()
    with Channel(path.with_name("typed"), schema=pa.schema([("n", pa.int64())]), minimum_required_space=0) as typed:
        state.schemas = list(typed.engine().state.schemas)
    assert ranges(check(path, findings).readable(state)) == []
    assert [f.events for f in findings.all()] == [((1, 2),), ((3, 4),), ((5, 6),)]


def test_events_beyond_the_end_that_counts_are_not_there(path: Path) -> None:
    three_puts(path)
    state, findings = state_of(path), Findings()
    second = offsets(path, FrameType.PUT)[1]
    with log_file(path).open("r+b") as file:
        file.truncate(second)
    assert ranges(check(path, findings).readable(state)) == [(1, 2)]
    (found,) = findings.all()
    assert (found.text, found.events) == ("the file ends before its last event", ((3, 6),))
