"""A damaged log is replayed: nothing that it says is forgotten, and what it may hide is told."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream import Channel
from spillable_stream.format.batch import EVENT_SCHEMA, encode_batch
from spillable_stream.format.file_names import Tier
from spillable_stream.format.frame import FrameHeader, FrameType, file_seed
from spillable_stream.integrity.findings import Findings
from spillable_stream.integrity.inventory import take_inventory
from spillable_stream.integrity.log_steps import LogSteps
from spillable_stream.integrity.tolerant_replay import TolerantReplay, fits
from spillable_stream.integrity.verify import verify
from spillable_stream.log.frames import FrameScanner
from spillable_stream.log.identity_file import read_identity
from spillable_stream.log.wal import Position
from spillable_stream.option_types import ChannelOptions
from spillable_stream.state.channel_state import ChannelState, restored
from spillable_stream.state.ranges import Range, RangeSet
from spillable_stream.storage.filesystem import FileSystem
from tests.support.channels import check_outcome, contents, contents_of_copy, damage_of, fill, repaired, three_puts
from tests.support.damage import flip, frames, kill, log_file, offsets
from tests.support.events import numbered, put, take

Open = Callable[..., Channel]


MEMORY = {"memory_capacity": 20, "overflow_timeout": 0}


def ids_of(state: ChannelState) -> list[Range]:
    """Return the events of a state; their blocks depend on how much time was between the puts."""
    return list(RangeSet((b.first_id, b.last_id) for b in state.blocks))


def test_events_that_every_group_has_taken_are_damaged_and_not_lost(path: Path) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, b"first")
        put(channel, b"second")
        take(channel, 1)
    flip(log_file(path), offsets(path, FrameType.PUT)[0] + 60)
    report = verify(path)
    assert (damage_of(report).events, report.loss.lost) == (((1, 1),), ())


@pytest.mark.parametrize("part", [20, 50])
def test_a_damaged_commit_costs_no_event(path: Path, part: int) -> None:
    three_puts(path)
    flip(log_file(path), offsets(path, FrameType.COMMIT)[1] + part)
    report = verify(path)
    assert damage_of(report).transactions == (2,)
    assert report.loss.lost == ()


def test_a_damaged_take_is_forgotten_and_its_group_named(path: Path, open_channel: Open) -> None:
    with open_channel() as channel:
        put(channel, *numbered(0, 9))
        take(channel, 3, "a")
        take(channel, 9, "b")
        take(channel, 2, "a")
        put(channel, b"later")
    taken = offsets(path, FrameType.TAKE)
    flip(log_file(path), taken[2] + 50)
    report = verify(path)
    assert damage_of(report).text == "the payload of a TAKE frame is damaged"
    assert (report.loss.lost, report.loss.repeated) == ((), {"a": ((4, 9),)})


def test_what_a_later_file_says_of_takes_is_not_forgotten(path: Path) -> None:
    fill(path)
    files = read_identity(FileSystem(), path).log_files(FileSystem())
    file = next(i for i in files if offsets(path, FrameType.TAKE, i))
    flip(log_file(path, file), offsets(path, FrameType.TAKE, file)[0] + 50)
    report = verify(path)
    assert report.damaged and report.loss.repeated == {} and report.loss.lost == ()


def test_ids_are_not_used_again_when_the_last_events_are_lost(path: Path) -> None:
    at = three_puts(path)
    flip(log_file(path), at[2] + 20)
    report = repaired(path)
    assert report.loss.lost == ((5, 6),)
    with Channel(path, create=False) as channel:
        assert put(channel, b"next") == (7, 7)


def test_a_damaged_commit_costs_nothing(path: Path, tmp_path: Path) -> None:
    three_puts(path)
    before = contents_of_copy(path)
    for part in (20, 50):
        for number, at in enumerate(offsets(path, FrameType.COMMIT)[:2]):
            copy = tmp_path / f"copy-{part}-{number}"
            shutil.copytree(path, copy)
            flip(log_file(copy), at + part)
            report = repaired(copy)
            assert report.damaged and report.loss.lost == ()
            check_outcome(before, contents(copy), report)


def test_a_take_whose_commit_is_known_of_its_header_alone_does_not_come_again(path: Path) -> None:
    with Channel(path, minimum_required_space=0, checkpoint_on_close=False) as channel:
        put(channel, *numbered(0, 5))
        take(channel, 3)
    flip(log_file(path), offsets(path, FrameType.COMMIT)[-1] + 50)
    assert repaired(path).loss.repeated == {}
    assert list(contents(path).groups["default"]) == [4, 5]


def test_a_group_whose_creation_is_damaged_loses_nothing(path: Path) -> None:
    """Another group has taken everything since: nobody may take that for the end of the events."""
    with Channel(path, minimum_required_space=0, checkpoint_on_close=False) as channel:
        put(channel, *numbered(0, 5))
        take(channel, 1, "hidden")
        take(channel, 5, "other")
        put(channel, b"later")
    group = next(f for f in frames(path) if f.header.type == FrameType.GROUP)
    flip(log_file(path), group.offset + 20)
    flip(log_file(path), group.end + 20)
    report = repaired(path)
    assert (report.loss.lost, report.loss.repeated) == ((), {"hidden": ((2, 5),)})
    left = contents(path).groups
    assert (list(left["hidden"]), list(left["other"])) == ([2, 3, 4, 5, 6], [6])


FS = FileSystem()
BEGIN = Position(1, 0)


def replay_of(
    path: Path, state: ChannelState | None = None, *, exact: bool = True, begin: Position = BEGIN
) -> TolerantReplay:
    """Return a replay of a channel, by default from the image in its first file's header."""
    inventory = take_inventory(FS, read_identity(FS, path), Findings())
    if state is None:
        header = inventory.disk[0].header
        assert header is not None
        state = restored(header.state)
    replay = TolerantReplay(LogSteps(FS, inventory), state, Findings(), exact=exact)
    replay.run(begin)
    return replay


def test_a_log_without_damage_leads_to_the_state_that_an_open_loads(path: Path) -> None:
    fill(path, max_inline_bytes=300)
    replay = replay_of(path)
    with Channel(path, create=False, checkpoint_on_close=False) as channel:
        image = channel.engine().state.image()
    found = replay.state.image()
    assert {**found, "options": None, "time": None} == {**image, "options": None, "time": None}
    assert (replay.damaged, replay.uncertain, replay.misfits, replay.repeated()) == (set(), False, 0, {})


def test_what_begins_with_a_guess_is_uncertain_until_an_exact_image_comes(path: Path) -> None:
    fill(path)
    shutil.rmtree(path / "checkpoint")
    guess = ChannelState(ChannelOptions(), replay_of(path).state.schemas)
    assert not replay_of(path, guess, exact=False).uncertain, "every data file begins with one"
    three_puts(path.with_name("one"))
    flip(log_file(path.with_name("one")), 60)
    guess = ChannelState(ChannelOptions(), replay_of(path).state.schemas)
    found = replay_of(path.with_name("one"), guess, exact=False)
    assert found.uncertain
    assert ids_of(found.state) == [(1, 6)]


def test_a_guess_in_the_middle_of_a_log_is_uncertain_and_its_first_put_says_where_the_ids_are(path: Path) -> None:
    at = three_puts(path)
    guess = ChannelState(ChannelOptions(), replay_of(path).state.schemas)
    found = replay_of(path, guess, exact=False, begin=Position(1, at[1]))
    assert found.uncertain and found.damaged == set()
    assert ids_of(found.state) == [(3, 6)]


def test_damage_is_of_the_file_that_it_is_in(path: Path) -> None:
    fill(path)
    flip(log_file(path, 3), 60)
    assert replay_of(path).damaged == {3}


def test_a_put_without_a_commit_counts_if_something_was_appended_after_it(path: Path) -> None:
    """An append that failed is cut before anything is written behind it."""
    at = three_puts(path)
    flip(log_file(path), offsets(path, FrameType.COMMIT)[1] + 20)
    replay = replay_of(path)
    assert ids_of(replay.state) == [(1, 6)]
    assert replay.state.pending == {}
    assert at


def test_bytes_that_may_hide_takes_repeat_what_was_there_to_be_taken_before(path: Path) -> None:
    at = three_puts(path)
    flip(log_file(path), at[1] + 20)
    replay = replay_of(path)
    assert replay.uncertain
    assert replay.repeated() == {"default": ((2, 2),)}


def test_frames_of_another_schema_are_counted(path: Path) -> None:
    three_puts(path)
    with Channel(path.with_name("typed"), schema=pa.schema([("n", pa.int64())]), minimum_required_space=0) as typed:
        schemas = typed.engine().state.schemas
    flip(log_file(path), 60)
    assert replay_of(path, ChannelState(ChannelOptions(), schemas), exact=False).misfits == 3


def event_frame() -> tuple[FrameHeader, bytes]:
    headers = pa.array([{}, {}], EVENT_SCHEMA.field("headers").type)
    rows = pa.record_batch({"headers": headers, "body": [b"a", b"b"]}).cast(EVENT_SCHEMA)
    (frame,) = encode_batch(rows)
    return frame.header(), bytes(frame.payload)


def test_a_payload_fits_its_schema_and_its_count() -> None:
    header, payload = event_frame()
    assert fits(header, payload, [EVENT_SCHEMA])
    assert not fits(header._replace(count=3), payload, [EVENT_SCHEMA])
    assert not fits(header._replace(schema_id=1), payload, [EVENT_SCHEMA])
    assert not fits(header, payload, [pa.schema([("n", pa.int64())])])
    for nonsense in (b"", b"no batch", payload[: len(payload) // 2], bytes(64)):
        assert not fits(header, nonsense, [EVENT_SCHEMA])


# ── a seek that is destroyed ────────────────────────────────────────────────────────────────────


def fill_and_seek(open_channel: Open, *, after: bool = True) -> None:
    """Have two groups take events that are kept, and move one of them back."""
    with open_channel(retention_bytes=1 << 20) as channel:
        put(channel, *numbered(0, 9))
        take(channel, 6, "a")
        take(channel, 9, "b")
        channel.seek("a", 3)
        if after:
            put(channel, b"later")


def damage_seek(path: Path) -> None:
    """Damage the last GROUP record but those that say that the handle has left."""
    groups = [f for f in frames(path) if f.header.type == FrameType.GROUP]
    flip(log_file(path), groups[-1].offset + 50)


def test_a_damaged_seek_is_forgotten_and_what_its_group_would_miss_is_named(path: Path, open_channel: Open) -> None:
    fill_and_seek(open_channel)
    damage_seek(path)
    report = verify(path)
    assert damage_of(report).text == "the payload of a GROUP frame is damaged"
    assert report.loss.skipped == {"a": ((1, 6),), "b": ((1, 9),)}
    assert repaired(path).loss == report.loss
    assert list(contents(path).groups["a"]) == [7, 8, 9, 10]


def test_a_take_after_a_damaged_seek_says_where_the_group_was(path: Path, open_channel: Open) -> None:
    fill_and_seek(open_channel)
    with open_channel() as channel:
        take(channel, 2, "a")
    damage_seek(path)
    assert repaired(path).loss.skipped == {"a": ((1, 4),), "b": ((1, 9),)}
    assert list(contents(path).groups["a"]) == [5, 6, 7, 8, 9, 10]


def test_no_seek_is_missed_where_a_take_alone_is_damaged(path: Path, open_channel: Open) -> None:
    fill_and_seek(open_channel)
    with open_channel() as channel:
        take(channel, 2, "a")
    flip(log_file(path), offsets(path, FrameType.TAKE)[-1] + 50)
    assert repaired(path).loss.skipped == {}


def test_what_is_kept_for_a_group_that_a_damaged_seek_moved_back_is_not_lost(path: Path) -> None:
    """Nothing else needs it, and the file after the damage says where the group is, but not where the events are."""
    options = {"minimum_required_space": 0, "checkpoint_on_close": False, "max_file_size": 5000}
    with Channel(path, retention_bytes=1 << 20, **options) as channel:  # type: ignore[arg-type]
        put(channel, *numbered(0, 9))
        take(channel, 9, "a")
        take(channel, 9, "b")
        channel.seek("a", 3)
    with Channel(path, retention_bytes=0, **options) as channel:  # type: ignore[arg-type]
        channel.seek("b", 3)
        damaged = [f for f in frames(path) if f.header.type == FrameType.GROUP][-1]
        take(channel, 7, "a")
        put(channel, b"x" * 5000)
    assert len(read_identity(FS, path).log_files(FS)) > 1
    flip(log_file(path), damaged.offset + 50)
    report = repaired(path)
    assert (report.loss.lost, report.loss.kept, report.loss.skipped) == ((), (), {})
    assert list(contents(path).groups["b"]) == [3, 4, 5, 6, 7, 8, 9, 10]


def test_what_was_taken_from_memory_before_a_damaged_seek_is_not_taken_again_after_it(
    path: Path, open_channel: Open
) -> None:
    channel = open_channel(**MEMORY)
    put(channel, *numbered(0, 20))
    put(channel, b"on disk")
    take(channel, 1, "b")
    take(channel, 6, "a")
    channel.seek("a", "earliest")
    with channel.engine().committing():
        channel.engine().log.tiers.disk.roll(channel.engine().state.small)
    kill(channel)
    groups = [f for f in frames(path) if f.header.type == FrameType.GROUP]
    with log_file(path).open("r+b") as file:
        file.seek(groups[-1].offset)
        file.write(bytes(frames(path)[-1].end - groups[-1].offset))
    report = repaired(path)
    assert (report.loss.lost, report.loss.skipped) == ((), {})
    assert min(contents(path).groups["a"]) == 2


@pytest.mark.parametrize("goes_on", [False, True])
def test_damage_of_memory_hides_takes_behind_an_image_that_lies_within_it(
    path: Path, open_channel: Open, goes_on: bool
) -> None:
    channel = open_channel(**MEMORY)
    put(channel, *numbered(0, 20))
    put(channel, b"on disk")
    take(channel, 1, "b")
    take(channel, 6, "a")
    with channel.engine().committing():
        channel.engine().log.tiers.disk.roll(channel.engine().state.small)
    take(channel, 2, "a")
    if goes_on:
        take(channel, 1, "b")
    kill(channel)
    layout = read_identity(FS, path)
    memory = layout.log_file(layout.log_files(FS, Tier.MEMORY)[-1])
    with closing(FS.open(memory, readonly=True)) as file:
        found = list(FrameScanner(file, file_seed(layout.channel, memory.name), 0))
    takes = [f for f in found if f.header.type == FrameType.TAKE]
    with memory.open("r+b") as damaged:
        damaged.seek(takes[1].offset)
        damaged.write(bytes((takes[3].offset if goes_on else memory.stat().st_size) - takes[1].offset))
    report = repaired(path)
    assert report.loss.repeated["a"] == ((8, 21),)
    assert min(contents(path).groups["a"]) == 8
