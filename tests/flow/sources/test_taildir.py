from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spillable_stream import Channel
from spillable_stream.channel.put_transaction import PutTransaction
from spillable_stream.errors import CorruptionError, DeliveryError, EventTooLargeError, PutTooLargeError, StorageError
from spillable_stream.flow.noted import Noted
from spillable_stream.flow.processor import ChannelProcessor
from spillable_stream.flow.sources import position_file
from spillable_stream.flow.sources.base import BatchProcessor, Status
from spillable_stream.flow.sources.position_file import PositionFile
from spillable_stream.flow.sources.taildir import TailDir
from tests.support.events import peek, take
from tests.support.flow_processors import KeptBatches


class Clock:
    def __init__(self) -> None:
        self.seconds = 2e9  # later than any file of a test: what is not touched is idle

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs"


def source(logs: Path, pattern: str = "app.*", **options: Any) -> TailDir:
    options = {"idle_timeout": 2**40, **options}
    return TailDir({"g": f"{logs}/{pattern}"}, position_file=logs.parent / "positions.json", **options)


def read_all(tail: TailDir, into: BatchProcessor) -> None:
    while tail.poll(into) is Status.READY:
        pass


def append(path: Path, text: str) -> None:
    with path.open("a") as f:
        f.write(text)


def opened(tail: TailDir, into: BatchProcessor) -> TailDir:
    tail.open(into)
    return tail


def test_each_line_is_an_event_without_its_line_end(logs: Path) -> None:
    (logs / "app.log").write_bytes(b"one\ntwo\r\n\nfour\nnot whole")
    kept = KeptBatches()
    read_all(opened(source(logs, batch_size=3), kept), kept)
    assert kept.bodies() == [b"one", b"two", b"", b"four"]
    assert [b.num_rows for b in kept.batches[0]] == [3, 1]


def test_a_last_line_without_line_feed_waits_until_the_file_was_idle(logs: Path) -> None:
    (logs / "app.log").write_bytes(b"one\nlast")
    kept = KeptBatches()
    os.utime(logs / "app.log", (1e9, 1e9))
    now = 1e9 + 1
    tail = opened(source(logs, idle_timeout=120_000, now=lambda: now), kept)
    read_all(tail, kept)
    assert kept.bodies() == [b"one"]
    now += 120
    read_all(tail, kept)
    assert kept.bodies() == [b"one", b"last"]


def test_events_have_the_headers_of_the_group_the_file_and_the_offset(logs: Path) -> None:
    (logs / "app.log").write_bytes(b"one\ntwo\n")
    kept = KeptBatches()
    tail = source(logs, headers={"g": {"host": "h"}}, file_header=True, byte_offset_header=True)
    read_all(opened(tail, kept), kept)
    path = str(logs / "app.log")
    assert kept.headers() == [
        {"host": "h", "file": path, "byteoffset": "0"},
        {"host": "h", "file": path, "byteoffset": "4"},
    ]


def test_the_oldest_file_is_read_first_and_a_file_yields_after_max_batch_count(logs: Path) -> None:
    for name, age in (("app.1", 1e9), ("app.2", 1e9 + 1)):
        (logs / name).write_text(f"{name} a\n{name} b\n{name} c\n")
        os.utime(logs / name, (age, age))
    kept = KeptBatches()
    read_all(opened(source(logs, batch_size=1), kept), kept)
    assert [b[:5] for b in kept.bodies()] == [b"app.1"] * 3 + [b"app.2"] * 3
    again = KeptBatches()
    shutil.rmtree(logs.parent / "other", ignore_errors=True)
    tail = TailDir({"g": f"{logs}/app.*"}, position_file=logs.parent / "other.json", batch_size=1, max_batch_count=1)
    read_all(opened(tail, again), again)
    assert sorted(again.bodies()) == sorted(kept.bodies())
    assert [b[:5] for b in again.bodies()[:2]] == [b"app.1", b"app.2"]


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


def test_a_full_second_channel_gets_each_line_once_though_the_batch_is_put_again(logs: Path) -> None:
    append(logs / "app.log", "1\n2\n")
    kept = KeptBatches(2)
    kept.full = {1}
    tail = opened(source(logs, batch_size=1), kept)
    for _ in range(3):
        with pytest.raises(DeliveryError):
            tail.poll(kept)
    kept.full = set()
    read_all(tail, kept)
    assert kept.bodies(0) == kept.bodies(1) == [b"1", b"2"]


def test_a_batch_that_only_one_channel_has_is_put_again_after_a_crash(logs: Path) -> None:
    append(logs / "app.log", "1\n2\n3\n")
    kept = KeptBatches(2)
    tail = opened(source(logs, batch_size=2, write_pos_interval=0), kept)
    kept.full = {1}
    with pytest.raises(DeliveryError):
        tail.poll(kept)
    append(logs / "app.log", "4\n")
    kept.full = set()
    (logs / "app.log").rename(logs / "app.old")
    read_all(opened(source(logs, batch_size=2), kept), kept)  # the first one was killed
    assert kept.bodies(0) == kept.bodies(1) == [b"1", b"2", b"3", b"4"]


def test_a_batch_that_is_gone_after_a_crash_is_named(logs: Path, caplog: pytest.LogCaptureFixture) -> None:
    append(logs / "app.log", "1\n")
    kept = KeptBatches(2)
    kept.full = {1}
    with pytest.raises(DeliveryError):
        opened(source(logs), kept).poll(kept)
    (logs / "app.log").unlink()
    kept.full = set()
    again = opened(source(logs), kept)
    assert "the bytes 0 to 2 of" in caplog.text
    assert list(again.missed) == [f"{logs}/app.log is gone, and some channels have not got its bytes 0 to 2"]


def test_a_file_that_cannot_be_read_is_missed_and_the_others_are_read(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(logs / "app.1", "1\n")
    append(logs / "app.2", "2\n")
    split = TailDir._split

    def refused(self: TailDir, file: Any) -> Any:
        if file.path.endswith("app.1"):
            raise StorageError(f"can't read {file.path} at 0 (Input/output error); check the disk")
        return split(self, file)

    monkeypatch.setattr(TailDir, "_split", refused)
    kept = KeptBatches()
    tail = opened(source(logs), kept)
    read_all(tail, kept)
    assert kept.bodies() == [b"2"]
    assert list(tail.missed) == [f"can't read {logs}/app.1 at 0 (Input/output error); check the disk"]


def test_positions_of_flume_are_where_it_begins_and_flume_can_read_ours(logs: Path) -> None:
    log, kept = logs / "app.log", KeptBatches()
    append(log, "read by Flume\nnew\n")
    positions = logs.parent / "positions.json"
    positions.write_text(json.dumps([{"inode": log.stat().st_ino, "pos": 14, "file": str(log)}]))
    tail = opened(source(logs), kept)
    read_all(tail, kept)
    tail.close()
    assert kept.bodies() == [b"new"]
    assert json.loads(positions.read_text()) == [{"inode": log.stat().st_ino, "pos": 18, "file": str(log)}]


def test_where_flume_has_run_in_between_its_positions_count(logs: Path) -> None:
    log, kept = logs / "app.log", KeptBatches()
    append(log, "1\n2\n3\n")
    tail = opened(source(logs), KeptBatches())
    tail.close()
    positions = logs.parent / "positions.json"
    positions.write_text(json.dumps([{"inode": log.stat().st_ino, "pos": 4, "file": str(log)}]))
    read_all(opened(source(logs), kept), kept)
    assert kept.bodies() == [b"3"]


@pytest.mark.parametrize("damaged", ["positions.json", "positions.json.marks"])
def test_a_damaged_position_file_is_refused_by_name(logs: Path, damaged: str) -> None:
    (logs.parent / damaged).write_text("[{")
    with pytest.raises(CorruptionError, match=damaged):
        source(logs).open(KeptBatches())


def test_files_without_a_position_can_be_read_from_their_end(logs: Path) -> None:
    append(logs / "app.log", "old\n")
    kept = KeptBatches()
    tail = opened(source(logs, skip_to_end=True), kept)
    append(logs / "app.log", "new\n")
    append(logs / "app.later", "whole\n")
    read_all(tail, kept)
    assert sorted(kept.bodies()) == [b"new", b"whole"]


def test_a_crash_does_not_pass_over_what_came_after_a_file_was_skipped_to_its_end(logs: Path) -> None:
    kept = KeptBatches()
    append(logs / "app.old", "1\n")
    opened(source(logs, skip_to_end=True), kept).close()
    append(logs / "app.new", "2\n")
    opened(source(logs, skip_to_end=True), kept)
    append(logs / "app.new", "3\n")
    tail = opened(source(logs, skip_to_end=True), kept)  # without a close of the one before
    read_all(tail, kept)
    assert kept.bodies() == [b"3"]


def test_a_crash_does_not_pass_over_a_file_that_came_while_it_ran(logs: Path) -> None:
    now, kept = [2e9], KeptBatches()
    tail = opened(source(logs, skip_to_end=True, now=lambda: now[0]), kept)
    (logs / "app.log").write_text("not whole")
    read_all(tail, kept)
    now[0] += 3
    read_all(tail, kept)  # writes the position file
    append(logs / "app.log", " yet\n")
    read_all(opened(source(logs, skip_to_end=True), kept), kept)  # without a close of the first
    assert kept.bodies() == [b"not whole yet"]


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


def test_nothing_is_read_twice_or_missed_by_a_restart_at_any_point(logs: Path) -> None:
    kept = KeptBatches(2)
    expected = []
    for i in range(40):
        tail = opened(source(logs, batch_size=3, write_pos_interval=0 if i % 3 else 10**9), kept)
        lines = [f"{i}-{j}" for j in range(i % 5)]
        append(logs / "app.log", "".join(line + "\n" for line in lines))
        expected += [line.encode() for line in lines]
        kept.full = {1} if i % 4 == 1 else set()
        for _ in range(i % 3):
            try:
                tail.poll(kept)
            except DeliveryError:
                break
        if i % 7 == 3:
            (logs / "app.log").rename(logs / f"app.{i}")
    kept.full = set()
    read_all(opened(source(logs), kept), kept)
    assert sorted(kept.bodies(0)) == sorted(expected)
    assert kept.bodies(1) == kept.bodies(0)


def test_a_thousand_idle_files_cost_one_look_each(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(50):
        append(logs / f"app.{i}", "line\n")
    os.utime(logs, (1e9, 1e9))
    kept = KeptBatches()
    tail = opened(source(logs, now=Clock()), kept)
    read_all(tail, kept)
    calls = {"stat": 0, "scandir": 0, "pread": 0}
    for name in calls:
        real = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda *a, _n=name, _r=real, **k: (calls.__setitem__(_n, calls[_n] + 1), _r(*a, **k))[1]
        )
    assert tail.poll(kept) is Status.BACKOFF
    assert calls == {"stat": 51, "scandir": 0, "pread": 0}


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("commit", range(6))
def test_a_crash_at_any_commit_leaves_each_line_once_in_both_channels(logs: Path, after: bool, commit: int) -> None:
    append(logs / "app.log", "".join(f"{i}\n" for i in range(10)))
    real, calls = PutTransaction.commit, 0

    def dies(self: PutTransaction) -> None:
        nonlocal calls
        calls += 1
        if calls == commit + 1 and after:
            real(self)
        if calls > commit:
            raise Killed
        real(self)

    def run() -> None:
        with (
            Channel(logs.parent / "a", minimum_required_space=0) as a,
            Channel(logs.parent / "b", minimum_required_space=0) as b,
            ChannelProcessor({"a": a, "b": b}, producer="a1.r1") as processor,
        ):
            tail = source(logs, batch_size=4, write_pos_interval=0)
            tail.open(processor)
            while tail.poll(processor) is Status.READY:
                pass

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(PutTransaction, "commit", dies)
        patch.setattr("spillable_stream.call_threads.wait", lambda _: None)
        run()
    shutil.copyfile(logs / "app.log", logs / "app.log.1")
    os.truncate(logs / "app.log", 0)
    append(logs / "app.log", "10\n11\n")
    run()
    for name in ("a", "b"):
        with Channel(logs.parent / name) as channel, channel.take_transaction() as tx:
            assert sorted(int(e.body) for e in tx.take_many(100)) == list(range(12)), name


def test_lines_that_do_not_fit_a_channel_together_are_read_in_smaller_batches(logs: Path, tmp_path: Path) -> None:
    lines = [bytes([65 + i]) * 300_000 for i in range(7)]
    (logs / "app.log").write_bytes(b"\n".join(lines) + b"\n")
    with (
        Channel(tmp_path / "large", minimum_required_space=0) as large,
        Channel(tmp_path / "small", memory_capacity=100, overflow_capacity=0, byte_capacity=1 << 20) as small,
        ChannelProcessor({"large": large, "small": small}, producer="a1.r1") as processor,
    ):
        tail, found = opened(source(logs, batch_size=5), processor), []
        while tail.poll(processor) is Status.READY:
            found += take(small)
        tail.close()
        assert found == lines and peek(large) == lines
        counters = tail.counters.flume_counters()
        assert counters["EventReceivedCount"] == counters["EventAcceptedCount"] == 7


def test_a_line_that_never_fits_stops_the_source_and_is_named(
    logs: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (logs / "app.log").write_bytes(b"1\n" + b"x" * 1_000_000 + b"\n2\n")
    with (
        Channel(tmp_path / "small", memory_capacity=100, overflow_capacity=0, byte_capacity=1 << 20) as small,
        ChannelProcessor({"small": small}, producer="a1.r1") as processor,
    ):
        tail = opened(source(logs), processor)
        with pytest.raises(PutTooLargeError, match="1 event does not fit"):
            read_all(tail, processor)
        assert take(small) == [b"1"]
        tail.close()
    assert "the event a1.r1:2:0 can't pass" in caplog.text


def test_lines_are_read_in_smaller_batches_until_one_that_no_frame_holds_is_alone_and_named(
    logs: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spillable_stream.format.batch.MAX_PAYLOAD_BYTES", 100_000)
    for module in ("flow.part_room", "channel.put_transaction"):
        monkeypatch.setattr(f"spillable_stream.{module}.SURELY_FRAMED_BYTES", 50_000)
    (logs / "app.log").write_bytes(b"1\n2\n" + b"x" * 200_000 + b"\n3\n")
    with (
        Channel(tmp_path / "a", minimum_required_space=0) as a,
        Channel(tmp_path / "b", minimum_required_space=0) as b,
        ChannelProcessor({"a": a, "b": b}, producer="a1.r1") as processor,
    ):
        tail = opened(source(logs), processor)
        for _ in range(3):
            with pytest.raises(EventTooLargeError):
                read_all(tail, processor)
        assert take(a) == take(b) == [b"1", b"2"]
        tail.close()
    assert caplog.text.count("can't pass") == 1


def test_lines_are_read_in_smaller_batches_after_a_transaction_of_a_channel_became_smaller(
    logs: Path, tmp_path: Path
) -> None:
    (logs / "app.log").write_bytes(b"1\n2\n3\n4\n5\n")
    with (
        Channel(tmp_path / "c", minimum_required_space=0) as channel,
        ChannelProcessor({"c": channel}, producer="a1.r1") as processor,
    ):
        tail = opened(source(logs), processor)
        Channel(tmp_path / "c", transaction_capacity=2).close()
        read_all(tail, processor)
        assert [take(channel) for _ in range(3)] == [[b"1", b"2"], [b"3", b"4"], [b"5"]]
        tail.close()


class NotedBytes(KeptBatches):
    """Keeps how long the notes are that go with batches."""

    def process(self, events: pa.RecordBatch, *, number: int | None = None, note: bytes = b"") -> None:
        self.noted.append(len(note))
        super().process(events, number=number, note=note)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.noted: list[int] = []


def test_what_goes_with_a_batch_and_is_added_for_it_is_small_however_many_files_change(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 32 KiB a note, the 1,000 batches had 16 MB of notes in each channel."""
    count, kept, added = 1_000, NotedBytes(), list[int]()
    names = [f"app.{i}" for i in range(count)]
    real = position_file.write_over

    def write_over(descriptor: int, line: bytes, offset: int) -> None:
        added.append(len(line))
        real(descriptor, line, offset)

    monkeypatch.setattr(position_file, "write_over", write_over)
    options: dict[str, Any] = {"write_pos_interval": 2**40, "now": Clock()}
    tail = opened(source(logs, **options), kept)
    expected = []
    for turn in range(2):
        for name in names:
            append(logs / name, f"{name} {turn}\n")
            expected.append(f"{name} {turn}".encode())
        read_all(tail, kept)
        assert len(kept.noted) == (turn + 1) * count
        if turn == 0:
            tail = opened(source(logs, **options), kept)  # without a close of the first
    assert sorted(kept.bodies()) == sorted(expected)
    each_bytes = (sum(kept.noted) + sum(added)) / len(kept.noted)
    assert max(kept.noted) <= 2 << 10 and each_bytes < 1_400 and len(added) < 2 * count / 12


@pytest.mark.parametrize("step", ["before", "half", "unsynced", "after"])
@pytest.mark.parametrize("number", range(3))
def test_a_crash_at_any_step_of_adding_positions_reads_no_line_twice(
    logs: Path, monkeypatch: pytest.MonkeyPatch, step: str, number: int
) -> None:
    """And a power cut after it, which takes back what was not synced, also after the next agent has read it."""
    monkeypatch.setattr("spillable_stream.flow.sources.taildir._NOTE_BYTES", 0)
    kept, calls, real = KeptBatches(), 0, position_file.write_over

    def write_over(descriptor: int, line: bytes, offset: int) -> None:
        nonlocal calls
        calls += 1
        if calls <= number or step == "after":
            real(descriptor, line, offset)
        if calls <= number:
            return
        if step in ("half", "unsynced"):
            os.pwrite(descriptor, line[: len(line) // 2] if step == "half" else line, offset)
        raise Killed

    options: dict[str, Any] = {"batch_size": 1, "max_batch_count": 1, "write_pos_interval": 2**40}
    for i in range(3):
        append(logs / f"app.{i}", f"{i}a\n{i}b\n")
    tail = opened(source(logs, **options), kept)
    marks = logs.parent / "positions.json.marks"
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(position_file, "write_over", write_over)
        read_all(tail, kept)
    again = opened(source(logs, **options), kept)
    assert again.poll(kept) is Status.READY
    if step == "unsynced":
        assert b"\n" not in marks.read_bytes()[:-1], "what the next agent relies on is synced"
    read_all(opened(source(logs, **options), kept), kept)
    assert sorted(kept.bodies()) == [b"0a", b"0b", b"1a", b"1b", b"2a", b"2b"]


def test_flumes_file_has_all_positions_after_the_end_though_they_were_added_one_by_one(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spillable_stream.flow.sources.taildir._NOTE_BYTES", 0)
    kept = KeptBatches()
    for name in ("app.1", "app.2"):
        append(logs / name, f"{name[-1]}x\n")
    tail = opened(source(logs, write_pos_interval=2**40), kept)
    read_all(tail, kept)
    tail._save_changes()
    tail.close()
    assert [entry["pos"] for entry in json.loads((logs.parent / "positions.json").read_text())] == [3, 3]


def test_a_position_file_that_cannot_be_written_loses_no_line(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many files have changed since it was written last, so that a note has no room for their positions."""
    for i in range(4):
        (logs / f"app.{i}").write_text(f"{i}\n")
    kept = KeptBatches()
    tail = opened(source(logs, batch_size=1), kept)
    monkeypatch.setattr("spillable_stream.flow.sources.taildir._NOTE_BYTES", 0)
    assert tail.poll(kept) is Status.READY

    def refuse(*_: object) -> None:
        raise StorageError("no space is left")

    for call in ("add", "write"):
        with monkeypatch.context() as full:
            full.setattr(PositionFile, call, refuse)
            full.setattr(PositionFile, "add", refuse if call == "add" else lambda *_: False)
            with pytest.raises(StorageError):
                tail.poll(kept)
    read_all(tail, kept)
    assert sorted(kept.bodies()) == [b"0", b"1", b"2", b"3"]


def test_two_sources_never_share_a_position_file(logs: Path) -> None:
    """Each would read again, after a restart, what it had read before the other one wrote its positions."""
    first, second = source(logs, "a.*"), source(logs, "b.*")
    first.name, second.name = "a1.r1", "a1.r2"
    for name in ("a", "b"):
        (logs / name).write_text("1\n")
    for bodies in ([b"1"], []):
        kept = KeptBatches()
        read_all(opened(first, kept), kept)
        assert kept.bodies() == bodies
        with pytest.raises(StorageError, match=r"is the position file of a1\.r1: give a1\.r2 a positionFile"):
            second.open(KeptBatches())
        first.close()


def test_positions_that_an_agent_writes_at_its_end_count_for_one_that_waits_for_it(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one gets the source's name in the channels when the first one gives it up."""
    for name in ("app.a", "app.b"):
        (logs / name).write_text(f"{name}\n")
    kept = KeptBatches()
    first, second, newest = opened(source(logs), kept), source(logs), kept.newest

    def wait_and_claim() -> Noted | None:
        assert first.poll(kept) is Status.READY
        first._write_positions()
        assert first.poll(kept) is Status.READY
        return newest()

    monkeypatch.setattr(kept, "newest", wait_and_claim)
    read_all(opened(second, kept), kept)
    assert sorted(kept.bodies()) == [b"app.a", b"app.b"]
