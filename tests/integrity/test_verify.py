"""`verify` says what is wrong where, and changes nothing."""

from __future__ import annotations

import random
import re
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import google_crc32c
import pytest

import spillable_stream as ss
from spillable_stream import (
    Channel,
    ChannelBusyError,
    CorruptionError,
    ForeignDirectoryError,
    NotAChannelError,
    OptionError,
    StorageError,
    UnsupportedFormatError,
)
from spillable_stream.format.frame import MAX_PAYLOAD_BYTES, FrameType, file_seed
from spillable_stream.integrity.findings import Report
from spillable_stream.integrity.repair import repair
from spillable_stream.integrity.verify import verify
from spillable_stream.log.identity_file import read_identity
from spillable_stream.progress import Progress
from spillable_stream.storage.filesystem import FileSystem
from tests.golden.test_golden import CHANNELS, HERE
from tests.support.channels import contents_of_copy, damage_of, fill, snapshot, three_puts
from tests.support.damage import age_head, flip, kill, log_file, memory_of, offsets, reboot
from tests.support.delays import clock_of, deliveries_of, put_late
from tests.support.events import numbered, put, take
from tests.support.fake_files import FaultyFileSystem, FileSystemOfReaders
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
    done, pause_seconds = threading.Event(), 0.002

    def use() -> None:
        for i in range(10_000):
            put(channel, *numbered(i, 7))
            take(channel, 6 if i % 9 else 15)
            if i % 20 == 0:
                channel.checkpoint()
            if done.wait(pause_seconds):
                return

    user = threading.Thread(target=use)
    user.start()
    reports: list[Report] = []
    try:
        while len(reports) < 15:
            try:
                reports.append(verify(path))
            except ChannelBusyError:  # which says: try again when less is put and taken
                pause_seconds *= 2
    finally:
        done.set()
        user.join()
    assert all(r.healthy for r in reports), [r.findings for r in reports]
    assert reports[-1].frames > 0


@pytest.mark.parametrize("is_one_missing", [False, True])
def test_side_files_that_are_delivered_while_it_reads_are_not_missing_and_others_are(
    path: Path, open_channel: Open, is_one_missing: bool
) -> None:
    """However often: one is delivered at every look."""
    other = open_channel()
    clock = clock_of(other)
    dues = [100 * 4**i for i in range(8)]
    for seconds in dues:
        put_late(other, seconds, b"x")
    files = sorted((path / "data").glob("delayed-*"))
    began_ms, left = clock.now_ms, list(dues)
    if is_one_missing:
        files[-1].unlink()

    def deliver_the_next() -> None:
        clock.now_ms = began_ms + 1000 * left.pop(0) + 100
        assert deliveries_of(other).deliver()

    report = verify(path, fs=FileSystemOfReaders(deliver_the_next))
    assert [found.path for found in report.findings] == files[-1:] * is_one_missing
    assert 0 < len(left) < len(dues)


def test_damage_in_a_live_channel_is_found(path: Path, open_channel: Open) -> None:
    channel = open_channel()
    put(channel, b"first", b"second")
    put(channel, b"third")
    flip(log_file(path), offsets(path, FrameType.PUT)[0] + 60)
    assert damage_of(verify(path)).events == ((1, 2),)


# ── damage ──────────────────────────────────────────────────────────────────────────────────────


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


def test_a_damaged_file_header_costs_no_event(path: Path) -> None:
    fill(path)
    flip(log_file(path, 3), 100)
    report = verify(path)
    assert (damage_of(report).path, damage_of(report).offset) == (log_file(path, 3), 0)
    assert (damage_of(report).text, report.loss.lost) == ("the file's header is damaged", ())


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


# ── what a channel is ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("scheme", ["", "object+file://"])
@pytest.mark.parametrize("verb", [verify, repair])
def test_a_backup_is_said_to_be_one(path: Path, tmp_path: Path, scheme: str, verb: Callable[[str], object]) -> None:
    fill(path)
    ss.backup(path, tmp_path / "copy")
    where = f"{scheme}{tmp_path / 'copy'}"
    with pytest.raises(NotAChannelError, match=f"and is a backup: 'spillable restore {re.escape(where)} PATH' creates"):
        verb(where)


@pytest.mark.parametrize("scheme", ["", "object+file://"])
@pytest.mark.parametrize("name", ["backups/dpkg.status.0", "backups/orders.json", "backups"])
def test_a_directory_with_a_folder_of_that_name_is_not_called_a_backup(tmp_path: Path, scheme: str, name: str) -> None:
    """Debian has /var/backups."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    with pytest.raises(NotAChannelError, match="it has no") as refusal:
        verify(f"{scheme}{tmp_path}")
    assert "backup" not in str(refusal.value).replace(str(tmp_path), "")


def test_what_is_not_a_channel_is_refused(path: Path, tmp_path: Path) -> None:
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
@pytest.mark.parametrize("seed", [7, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (8, 9))])
def test_what_open_refuses_is_damaged_and_what_is_not_damaged_opens(
    path: Path, tmp_path: Path, head: str, seed: int
) -> None:
    fill(path, max_inline_bytes=400)
    if head == "none":
        reboot(path)
    elif head == "earlier boot":
        age_head(path)
    files = [p for p in (path / "data").iterdir()] + [p for p in (path / "checkpoint").iterdir()]
    chosen = random.Random(seed)
    refused = 0
    for number in range(20):
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
    assert 3 < refused < 20


def test_it_tells_how_far_it_is_and_can_be_ended(path: Path) -> None:
    fill(path)
    told: list[Progress] = []
    report = verify(path, progress=told.append)
    assert {(p.what, p.unit) for p in told} == {("verify", "bytes")}
    assert (told[0].done, told[-1].done, told[-1].total) == (0, report.read_bytes, report.read_bytes)
    assert told[0].total is not None and report.read_bytes <= told[0].total

    def stop(_: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        verify(path, progress=stop)


@pytest.mark.parametrize("value", [None, b"orders", 3, "a\0b"])
def test_what_is_not_a_path_is_refused_as_such(value: object) -> None:
    with pytest.raises(OptionError, match=r"path (must be a path|can't be)"):
        verify(value)  # type: ignore[arg-type]
