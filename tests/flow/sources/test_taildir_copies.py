"""Files that are renamed, copied and truncated while they are read: each line is an event once."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from spillable_stream.flow.sources.base import Status
from tests.support.flow_processors import KeptBatches
from tests.support.taildir import Clock, append, opened, read_all, source


@pytest.mark.parametrize("stays_in_pattern", [True, False])
def test_a_file_renamed_by_a_rotation_is_read_to_its_end_and_the_new_one_from_its_beginning(
    logs: Path, stays_in_pattern: bool
) -> None:
    log, kept = logs / "app.log", KeptBatches()
    append(log, "1\n")
    tail = opened(source(logs), kept)
    read_all(tail, kept)
    append(log, "2\n")
    log.rename(logs / ("app.log.1" if stays_in_pattern else "old.log"))
    append(log, "3\n")
    read_all(tail, kept)
    assert sorted(kept.bodies()) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("restarts", [True, False])
@pytest.mark.parametrize("copy", ["app.log.1", "elsewhere.log"])
def test_a_file_that_was_copied_and_truncated_is_read_once(logs: Path, copy: str, restarts: bool) -> None:
    log, kept = logs / "app.log", KeptBatches()
    append(log, "1\n2\n")
    tail = opened(source(logs), kept)
    read_all(tail, kept)
    if copy == "app.log.1":
        append(log, "3\n")
    if restarts:
        tail.close()
    shutil.copy(log, logs / copy)
    if not restarts:
        read_all(tail, kept)  # the copy is seen before the file is truncated
    os.truncate(log, 0)
    append(log, "4\n5\n6\n7\n")
    if restarts:
        tail = opened(source(logs), kept)
    read_all(tail, kept)
    expected = [b"1", b"2", b"4", b"5", b"6", b"7"]
    assert sorted(kept.bodies()) == (sorted([*expected, b"3"]) if copy == "app.log.1" else expected)


@pytest.mark.parametrize("end", ["truncate", "remove"])
def test_a_crash_right_after_a_copy_was_released_does_not_read_it_from_its_beginning(logs: Path, end: str) -> None:
    """The position file is old: only what goes with the batches after it can say where the copy is."""
    path, kept, clock = logs / "app.log", KeptBatches(), Clock()
    path.write_text("one\ntwo\n")
    options: dict[str, Any] = {"write_pos_interval": 2**40, "now": clock}
    tail = opened(source(logs, **options), kept)
    read_all(tail, kept)
    shutil.copy(path, logs / "app.log.1")
    read_all(tail, kept)
    if end == "truncate":
        os.truncate(path, 0)
    else:
        path.unlink()
    read_all(tail, kept)
    (logs / "app.new").write_text("x\n")
    append(path, "three\n")
    read_all(tail, kept)
    append(path, "four\n")
    read_all(tail, kept)
    read_all(opened(source(logs, **options), kept), kept)  # without a close of the first
    assert sorted(kept.bodies()) == [b"four", b"one", b"three", b"two", b"x"]


def test_a_file_that_waits_since_it_looks_like_a_copy_is_named_once_with_the_other(
    logs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="spillable_stream.flow")
    append(logs / "app.log", "1\n")
    kept = KeptBatches()
    tail = opened(source(logs), kept)
    read_all(tail, kept)
    append(logs / "app.other", "1\n2\n")
    for _ in range(3):
        read_all(tail, kept)
    (line,) = [r.getMessage() for r in caplog.records if "taken for a copy" in r.getMessage()]
    assert f"{logs}/app.other begins with all that was read of {logs}/app.log" in line
    assert kept.bodies() == [b"1"]
    (logs / "app.log").unlink()
    read_all(tail, kept)
    assert kept.bodies() == [b"1", b"2"]


def test_a_file_that_is_truncated_right_before_its_turn_is_read_from_its_copy(logs: Path) -> None:
    log, kept = logs / "app.log", KeptBatches()
    append(log, "1\n")
    tail = opened(source(logs), kept)
    read_all(tail, kept)
    append(logs / "app.a", "older\n")
    os.utime(logs / "app.a", (1e9, 1e9))
    append(log, "2\n")
    assert tail.poll(kept) is Status.READY
    assert kept.bodies() == [b"1", b"older"]
    shutil.copy(log, logs / "app.log.1")
    os.truncate(log, 0)
    append(log, "3\n4\n5\n")
    read_all(tail, kept)
    assert sorted(kept.bodies()) == [b"1", b"2", b"3", b"4", b"5", b"older"]


@pytest.mark.parametrize("restart", ["none", "before it is seen", "after it is seen"])
@pytest.mark.parametrize("copied_bytes", [0, 2, 6, 8])
def test_a_copy_that_is_seen_while_it_is_created_is_read_once(logs: Path, copied_bytes: int, restart: str) -> None:
    log, kept = logs / "app.log", KeptBatches()
    append(log, "1\n2\n3\n")
    tail = opened(source(logs), kept)
    read_all(tail, kept)
    append(log, "4\n")
    (logs / "app.log.1").write_bytes(log.read_bytes()[:copied_bytes])
    if restart == "after it is seen":
        read_all(tail, kept)
    if restart != "none":
        tail.close()
        tail = opened(source(logs), kept)
    read_all(tail, kept)
    shutil.copyfile(log, logs / "app.log.1")
    read_all(tail, kept)
    os.truncate(log, 0)
    append(log, "5\n")
    read_all(tail, kept)
    assert sorted(kept.bodies()) == [b"1", b"2", b"3", b"4", b"5"]


def test_a_copy_of_a_file_that_was_not_read_yet_is_read_once(logs: Path) -> None:
    log, kept = logs / "app.log", KeptBatches()
    tail = opened(source(logs), kept)
    append(log, "1\n2\n")
    shutil.copyfile(log, logs / "app.log.1")
    read_all(tail, kept)
    os.truncate(log, 0)
    append(log, "3\n")
    read_all(tail, kept)
    assert sorted(kept.bodies()) == [b"1", b"2", b"3"]


def test_a_file_that_is_copied_and_truncated_while_its_lines_wait_for_a_channel_is_read_once(logs: Path) -> None:
    log, kept = logs / "app.log", KeptBatches()
    append(log, "0\n")
    tail = opened(source(logs, batch_size=1), kept)
    read_all(tail, kept)
    append(log, "1\n2\n3\n")
    assert tail.poll(kept) is Status.READY
    shutil.copyfile(log, logs / "app.log.1")
    os.truncate(log, 0)
    append(log, "other\n")
    read_all(tail, kept)
    assert sorted(kept.bodies()) == [b"0", b"1", b"2", b"3", b"other"]


def test_what_a_file_got_after_it_was_copied_is_not_missed_in_the_copy(logs: Path) -> None:
    log, kept = logs / "app.log", KeptBatches()
    lines = [f"{i:99}\n" for i in range(30)]
    append(log, "".join(lines[:20]))
    tail = opened(source(logs), kept)
    read_all(tail, kept)
    shutil.copyfile(log, logs / "app.log.1")
    read_all(tail, kept)
    append(log, "".join(lines[20:]))
    read_all(tail, kept)
    os.truncate(log, 0)
    append(log, "new\n")
    read_all(tail, kept)
    assert sorted(kept.bodies()) == [line.rstrip("\n").encode() for line in lines] + [b"new"]


def test_a_new_file_that_begins_as_another_one_waits_until_it_rests_or_differs(logs: Path) -> None:
    kept, clock = KeptBatches(), Clock()
    append(logs / "app.1", "header\n1\n")
    os.utime(logs / "app.1", (1e9, 1e9))
    tail = opened(source(logs, now=clock), kept)
    read_all(tail, kept)
    append(logs / "app.2", "header\n")
    clock.seconds = (logs / "app.2").stat().st_mtime + 4
    read_all(tail, kept)
    assert len(kept.bodies()) == 2 and not tail.finished
    clock.seconds += 1
    read_all(tail, kept)
    assert kept.bodies()[2:] == [b"header"] and tail.finished
    append(logs / "app.2", "2\n")
    read_all(tail, kept)
    append(logs / "app.3", "header\n")
    clock.seconds = (logs / "app.3").stat().st_mtime
    read_all(tail, kept)
    assert kept.bodies()[3:] == [b"2"] and not tail.finished
    append(logs / "app.3", "3\n")
    read_all(tail, kept)
    assert kept.bodies()[4:] == [b"header", b"3"] and tail.finished


def test_a_new_file_that_gets_the_name_of_a_renamed_one_is_read_at_once_whatever_is_in_it(logs: Path) -> None:
    log, kept = logs / "app.log", KeptBatches()
    append(log, "x\nx\n")
    tail = opened(source(logs), kept)
    read_all(tail, kept)
    log.rename(logs / "app.log.1")
    append(log, "x\n")
    read_all(tail, kept)
    assert kept.bodies() == [b"x"] * 3 and tail.finished


def test_a_new_file_with_the_inode_of_a_removed_one_is_read_from_its_beginning(logs: Path) -> None:
    log, kept = logs / "app.log", KeptBatches()
    append(log, "first\n")
    tail = opened(source(logs), kept)
    read_all(tail, kept)
    tail.close()
    log.write_text("other\nand more\n")  # the same inode
    read_all(opened(source(logs), kept), kept)
    assert kept.bodies() == [b"first", b"other", b"and more"]


def test_a_copy_is_not_skipped_to_its_end_by_a_restart(logs: Path) -> None:
    log, kept = logs / "app.log", KeptBatches()
    tail = opened(source(logs, skip_to_end=True), kept)
    append(log, "1\n")
    read_all(tail, kept)
    tail.close()
    append(log, "2\n")
    shutil.copy(log, logs / "app.log.1")
    os.truncate(log, 0)
    append(log, "3\n4\n")
    read_all(opened(source(logs, skip_to_end=True), kept), kept)
    assert sorted(kept.bodies()) == [b"1", b"2", b"3", b"4"]
