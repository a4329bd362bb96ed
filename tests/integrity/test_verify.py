"""`verify` says what is wrong where, and changes nothing."""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NoReturn

import google_crc32c
import pytest

from spillable_stream import (
    Channel,
    CorruptionError,
    Event,
    ForeignDirectoryError,
    MemoryLossWarning,
    NotAChannelError,
    StorageError,
    UnsupportedFormatError,
)
from spillable_stream.format.frame import MAX_PAYLOAD_BYTES, FrameType, file_seed
from spillable_stream.integrity.findings import Loss, Severity
from spillable_stream.integrity.verify import verify
from spillable_stream.log.identity import read_identity
from spillable_stream.log.rolling import Rolling
from spillable_stream.log.staged_file import StagedFileWriter
from spillable_stream.storage.filesystem import FileSystem
from tests.golden.test_golden import CHANNELS, HERE
from tests.support.channels import contents_of_copy, damage_of, fill, snapshot, three_puts
from tests.support.damage import age_head, flip, frames, kill, log_file, lose_memory, memory_of, offsets, reboot, trim
from tests.support.events import numbered, put, take
from tests.support.fake_files import FaultyFileSystem
from tests.support.mounts import NEEDS_MOUNTS, mounted_readonly

Open = Callable[..., Channel]
MEMORY = {"memory_capacity": 20, "overflow_timeout": 0}


# ── healthy channels, and that nothing is changed ───────────────────────────────────────────────


@pytest.mark.parametrize("rebooted", [False, True])
def test_a_healthy_channel_has_no_findings(path: Path, rebooted: bool) -> None:
    fill(path, max_inline_bytes=300)
    if rebooted:
        reboot(path)
    report = verify(path)
    assert (report.findings, report.healthy, report.loss.lost) == ((), True, ())
    assert report.files >= 8 and report.frames > 20


@pytest.mark.parametrize("name", CHANNELS)
def test_the_golden_channels_are_healthy(name: str, tmp_path: Path) -> None:
    shutil.copytree(HERE / name, tmp_path / "channel")
    assert verify(tmp_path / "channel").healthy


@pytest.mark.parametrize("damaged", [False, True])
def test_not_a_byte_name_or_time_is_changed(path: Path, open_channel: Open, damaged: bool) -> None:
    channel = open_channel(**MEMORY, max_file_size=2000)
    for i in range(6):
        put(channel, *numbered(10 * i, 10))
    take(channel, 3)
    kill(channel)
    if damaged:
        flip(max((path / "data").glob("log-*")), 70)
        flip(next(memory_of(path).glob("memory-*")), 70)
    before = snapshot(path, memory_of(path))
    assert verify(path).healthy is not damaged
    assert snapshot(path, memory_of(path)) == before


@NEEDS_MOUNTS
@pytest.mark.parametrize("held", [False, True], ids=["killed", "held"])
def test_a_channel_on_a_readonly_mount_is_examined(path: Path, open_channel: Open, tmp_path: Path, held: bool) -> None:
    channel = open_channel(**MEMORY)
    put(channel, *numbered(0, 10))
    if not held:
        kill(channel)
    with mounted_readonly(path, tmp_path / "mounted") as mounted:
        report = verify(mounted)
    assert (report.healthy, report.loss.lost) == (True, ())


def test_files_are_opened_for_reading_only(path: Path) -> None:
    fill(path)
    flip(log_file(path, 5), 400)
    fs = FaultyFileSystem()
    verify(path, fs=fs)
    assert {call.name for call in fs.calls} <= {"open", "read"}


def test_a_live_channel_is_healthy_while_it_is_used(path: Path, open_channel: Open) -> None:
    channel = open_channel(**MEMORY, max_file_size=4000, checkpoint_interval=1)
    done = threading.Event()

    def use() -> None:
        for i in range(10_000):
            put(channel, *numbered(i, 7))
            take(channel, 6 if i % 9 else 15)
            if i % 20 == 0:
                channel.checkpoint()
            if done.wait(0.002):
                return

    user = threading.Thread(target=use)
    user.start()
    try:
        reports = [verify(path) for _ in range(15)]
    finally:
        done.set()
        user.join()
    assert all(r.healthy for r in reports), [r.findings for r in reports]
    assert reports[-1].frames > 0


def test_damage_in_a_live_channel_is_found(path: Path, open_channel: Open) -> None:
    channel = open_channel()
    put(channel, b"first", b"second")
    put(channel, b"third")
    flip(log_file(path), offsets(path, FrameType.PUT)[0] + 60)
    assert damage_of(verify(path)).events == ((1, 2),)


# ── damaged frames ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("part, text", [(60, "the payload of a PUT frame is damaged"), (20, "no frame is whole here")])
def test_a_damaged_frame_in_the_middle_is_named_with_its_events(path: Path, part: int, text: str) -> None:
    at = three_puts(path)
    flip(log_file(path), at[1] + part)
    report = verify(path)
    found = damage_of(report)
    assert (found.path, found.offset, found.text) == (log_file(path), at[1], text)
    assert found.size == offsets(path, FrameType.COMMIT)[1] - at[1] if part == 60 else found.size
    assert (found.events, found.transactions) == (((3, 4),), (2,))
    assert (report.loss.lost, report.loss.repeated) == (((3, 4),), {} if part == 60 else {"default": ((2, 2),)})


def test_every_damaged_frame_is_named(path: Path) -> None:
    at = three_puts(path)
    for offset in at:
        flip(log_file(path), offset + 60)
    found = [f for f in verify(path).findings if f.severity is Severity.DAMAGE]
    assert [(f.offset, f.events) for f in found] == [(at[0], ((1, 2),)), (at[1], ((3, 4),)), (at[2], ((5, 6),))]
    assert verify(path).loss.lost == ((2, 6),)


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


def test_a_length_that_lies_makes_nobody_read_beyond_the_file(path: Path) -> None:
    at = three_puts(path)
    seed = file_seed(read_identity(FileSystem(), path).channel, "log-000001")
    with log_file(path).open("r+b") as file:
        file.seek(at[1])
        head = bytearray(file.read(48))
        head[4:8] = MAX_PAYLOAD_BYTES.to_bytes(4, "little")
        head[44:48] = google_crc32c.extend(seed, bytes(head[:44])).to_bytes(4, "little")
        file.seek(at[1])
        file.write(head)
    fs = FaultyFileSystem()
    assert verify(path, fs=fs).loss.lost == ((3, 4),)
    assert fs.read_bytes < 40 * log_file(path).stat().st_size


# ── tails ───────────────────────────────────────────────────────────────────────────────────────


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


def test_a_file_that_was_being_made_is_a_note(path: Path) -> None:
    fill(path)
    reboot(path)
    newest = max(int(p.name[4:]) for p in (path / "data").glob("log-*"))
    log_file(path, newest + 1).write_bytes(b"SPL1")
    (note,) = verify(path).findings
    assert (note.severity, note.path) == (Severity.NOTE, log_file(path, newest + 1))


# ── files ───────────────────────────────────────────────────────────────────────────────────────


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


def test_the_missing_newest_data_file_is_named(path: Path) -> None:
    fill(path)
    newest = max((path / "data").glob("log-*"))
    newest.unlink()
    report = verify(path)
    assert damage_of(report).path == newest
    assert report.loss.lost[-1][1] == 40


def test_a_damaged_file_header_costs_no_event(path: Path) -> None:
    fill(path)
    flip(log_file(path, 3), 100)
    report = verify(path)
    assert (damage_of(report).path, damage_of(report).offset) == (log_file(path, 3), 0)
    assert (damage_of(report).text, report.loss.lost) == ("the file's header is damaged", ())


def test_a_damaged_checkpoint_is_a_warning_and_costs_nothing(path: Path) -> None:
    fill(path)
    checkpoint = max((path / "checkpoint").glob("checkpoint-*"))
    flip(checkpoint, 90)
    report = verify(path)
    (found,) = report.findings
    assert (found.severity, found.path) == (Severity.WARNING, checkpoint)
    assert not report.healthy and not report.damaged and report.loss.lost == ()


def test_a_damaged_head_is_a_note(path: Path) -> None:
    fill(path)
    (path / "head").write_bytes(b"\x07" * 512)
    (note,) = verify(path).findings
    assert (note.severity, note.path) == (Severity.NOTE, path / "head")


def test_a_head_of_which_half_is_damaged_is_a_warning_while_it_counts(path: Path) -> None:
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


def test_a_cut_segment_is_named_with_the_events_behind_the_cut(path: Path) -> None:
    with Channel(path, minimum_required_space=0, max_inline_bytes=100) as channel, channel.put_transaction() as tx:
        for body in (b"a" * 200, b"b" * 200, b"c" * 200):
            tx.put_many([Event(body)] * 3)
    (segment,) = (path / "data").glob("segment.*")
    with segment.open("r+b") as file:
        file.truncate(segment.stat().st_size - 16)
    found = damage_of(verify(path))
    assert found.path == segment and found.events[0][1] == 9


def test_damage_in_memory_is_named_with_its_events(path: Path, open_channel: Open) -> None:
    channel = open_channel(**MEMORY)
    put(channel, *numbered(0, 5))
    put(channel, b"an event of memory")
    put(channel, *numbered(5, 5))
    kill(channel)
    file = next(f for f in memory_of(path).glob("memory-*") if b"event of memory" in f.read_bytes())
    flip(file, file.read_bytes().index(b"event of memory"))
    report = verify(path)
    found = damage_of(report)
    assert (found.path, found.events, report.loss.lost) == (path / "memory" / file.name, ((6, 6),), ((6, 6),))


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
def test_a_memory_tier_that_never_held_anything_is_no_loss(
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


def test_a_file_of_memory_that_holds_commits_is_not_taken_for_one_that_was_being_made(
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


def test_a_damaged_position_is_a_warning_while_there_is_memory(path: Path, open_channel: Open) -> None:
    channel = open_channel(**MEMORY)
    put(channel, *numbered(0, 10))
    take(channel, 4)
    kill(channel)
    flip(path / "groups" / "default.position", 9)
    (found,) = verify(path).findings
    assert (found.severity, found.path) == (Severity.WARNING, path / "groups" / "default.position")


# ── what a channel is ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("damage", ["not JSON", "another channel", "another directory"])
def test_a_damaged_identity_is_found_out_from_the_data_files(path: Path, damage: str) -> None:
    fill(path)
    uuid = read_identity(FileSystem(), path).channel
    text = (path / "channel.json").read_text()
    changed = {
        "not JSON": text.replace('"data"', 'data"'),
        "another channel": text.replace(uuid, "0" + uuid[1:] if uuid[0] != "0" else "1" + uuid[1:]),
        "another directory": text.replace('"data"', '"dbta"'),
    }
    (path / "channel.json").write_text(changed[damage])
    report = verify(path)
    assert (damage_of(report).path, report.channel) == (path / "channel.json", uuid)
    assert report.loss.lost == ()


def test_what_is_no_channel_is_refused(path: Path, tmp_path: Path) -> None:
    with pytest.raises(NotAChannelError):
        verify(path)
    fill(path)
    identity = path / "channel.json"
    identity.write_text('{"format": 9}')
    with pytest.raises(UnsupportedFormatError):
        verify(path)
    identity.write_text("{")
    (path / "owner.json").unlink()
    shutil.rmtree(path / "data")
    with pytest.raises(CorruptionError, match="identity"):
        verify(path)


def test_a_file_that_cannot_be_read_is_a_storage_error(path: Path) -> None:
    fill(path)
    fs = FaultyFileSystem()
    with fs.failing(lambda call: call == ("read", "log-000005")), pytest.raises(StorageError, match="log-000005"):
        verify(path, fs=fs)


# ── agreement with open ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("head", ["same boot", "earlier boot", "none"])
def test_what_open_refuses_is_damaged_and_what_is_not_damaged_opens(path: Path, tmp_path: Path, head: str) -> None:
    fill(path, max_inline_bytes=400)
    if head == "none":
        reboot(path)
    elif head == "earlier boot":
        age_head(path)
    files = [p for p in (path / "data").iterdir()] + [p for p in (path / "checkpoint").iterdir()]
    chosen = random.Random(7)
    refused = 0
    for number in range(60):
        copy = tmp_path / f"copy-{number}"
        shutil.copytree(path, copy)
        file = copy / chosen.choice(files).relative_to(path)
        if number % 5 == 4:
            with file.open("r+b") as f:
                f.truncate(chosen.randrange(file.stat().st_size))
        else:
            flip(file, chosen.randrange(len(file.read_bytes().rstrip(b"\0"))), chosen.randrange(8))
        damaged = verify(copy).damaged
        try:
            contents_of_copy(copy)
        except (CorruptionError, ForeignDirectoryError):
            refused += 1
            assert damaged, f"open refuses {file}"
        shutil.rmtree(copy)
    assert 10 < refused < 60
