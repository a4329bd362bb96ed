"""Where a restart of a source of growing files begins, after an end or a crash anywhere."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from spillable_stream import Channel
from spillable_stream.channel.put_transaction import PutTransaction
from spillable_stream.errors import CorruptionError, DeliveryError, StorageError
from spillable_stream.flow.processor import ChannelProcessor
from spillable_stream.flow.selectors import Multiplexing, Replicating, Selector
from spillable_stream.flow.sources import position_file
from spillable_stream.flow.sources.base import Noted, Status
from spillable_stream.flow.sources.position_file import PositionFile
from tests.support.events import peek
from tests.support.failing_puts import LIMITS, Faulty, Upper
from tests.support.flow_processors import KeptBatches
from tests.support.taildir import Clock, append, opened, read_all, source


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


@pytest.mark.parametrize("is_mount_point", [False, True])
def test_files_whose_disk_is_away_for_a_time_are_read_on_when_it_is_back(
    logs: Path, monkeypatch: pytest.MonkeyPatch, is_mount_point: bool
) -> None:
    def stat_of_another_device(path: Any, **options: Any) -> Any:
        found = stat(path, **options)
        if path != str(logs):
            return found
        return SimpleNamespace(st_ino=found.st_ino, st_mtime_ns=found.st_mtime_ns, st_dev=found.st_dev + 1)

    kept, away, stat = KeptBatches(), logs.parent / "away", os.stat
    append(logs / "app.1", "1\n")
    append(logs / "app.2", "2\n")
    tail = opened(source(logs), kept)
    read_all(tail, kept)
    logs.rename(away)
    with monkeypatch.context() as without:
        if is_mount_point:
            logs.mkdir()
            without.setattr(os, "stat", stat_of_another_device)
        for _ in range(3):
            read_all(tail, kept)
        if is_mount_point:
            logs.rmdir()
        else:
            tail.close()
            tail = opened(source(logs), kept)
            read_all(tail, kept)
    away.rename(logs)
    append(logs / "app.1", "3\n")
    for _ in range(2):
        read_all(tail, kept)
    tail.close()
    assert sorted(kept.bodies()) == [b"1", b"2", b"3"]
    assert len(json.loads((logs.parent / "positions.json").read_text())) == 2


def test_a_file_whose_name_is_not_text_is_read_also_after_a_crash(logs: Path) -> None:
    kept = KeptBatches(2)
    append(logs / os.fsdecode(b"app.\xff"), "1\n2\n")
    killed = opened(source(logs, file_header=True), kept)
    kept.full = {1}
    with pytest.raises(DeliveryError):
        killed.poll(kept)
    kept.full = set()
    tail = opened(source(logs, file_header=True), kept)
    read_all(tail, kept)
    tail.close()
    read_all(opened(source(logs, file_header=True), kept), kept)
    assert kept.bodies(0) == kept.bodies(1) == [b"1", b"2"]
    assert kept.headers(1) == [{"file": f"{logs}/app.\ufffd"}] * 2


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
        patch.setattr("spillable_stream.call_threads.wait_for", lambda _: None)
        run()
    shutil.copyfile(logs / "app.log", logs / "app.log.1")
    os.truncate(logs / "app.log", 0)
    append(logs / "app.log", "10\n11\n")
    run()
    for name in ("a", "b"):
        with Channel(logs.parent / name) as channel, channel.take_transaction() as tx:
            assert sorted(int(e.body) for e in tx.take_many(100)) == list(range(12)), name


def test_a_batch_that_a_removed_channel_lacked_is_put_anew_though_the_agent_is_killed_before_that_is_done(
    logs: Path,
) -> None:
    """The first start by the changed file writes positions: they must not say that all channels had the batch."""
    append(logs / "app.log", "1\n2\n")
    with Channel(logs.parent / "a") as a, Channel(logs.parent / "b") as b:
        both: dict[str, Any] = {"a": a, "b": Faulty(b, ["full"])}
        with ChannelProcessor(both, producer="a1.r1", division="x") as processor, pytest.raises(DeliveryError):
            opened(source(logs), processor).poll(processor)
        for _ in range(2):
            with ChannelProcessor({"a": a}, producer="a1.r1", division="y") as processor:
                opened(source(logs), processor)
                assert processor._numbers is not None
                newest = processor._numbers.newest
                assert newest is not None and (newest.number, newest.complete) == (2, False)
        with ChannelProcessor({"a": a}, producer="a1.r1", division="y") as processor:
            tail = opened(source(logs), processor)
            read_all(tail, processor)
            tail.close()
        assert peek(a) == [b"1", b"2", b"1", b"2"]


@pytest.mark.parametrize("remaining", ["b", "a b"], ids=["removed", "optional"])
def test_positions_that_a_start_writes_do_not_pass_over_a_batch_that_it_has_still_to_put(
    logs: Path, remaining: str
) -> None:
    """The channel that has the batch may be the source's no more at the next start: then only positions say what is."""
    channels = {name: Channel(logs.parent / name, **LIMITS) for name in ("a", "b")}
    full: dict[str, Any] = {"a": channels["a"], "b": Faulty(channels["b"], ["full"] * 9)}

    def run(given: dict[str, Any], division: str, optional: Sequence[str] = ()) -> None:
        selector = Replicating(optional=optional)
        with ChannelProcessor(given, (), selector, producer="a1.r1", division=division) as processor:
            tail = opened(source(logs), processor)
            with pytest.raises(DeliveryError) if given is full else nullcontext():
                read_all(tail, processor)
            tail.close()

    append(logs / "app.1", "one\n")
    run(channels, "x")
    append(logs / "app.2", "two\n")
    run(full, "x")
    run(full, "x")
    run({name: channels[name] for name in remaining.split()}, "y", ["a"] if "a" in remaining else [])
    assert peek(channels["b"]) == [b"one", b"two"]
    for channel in channels.values():
        channel.close()


def test_a_restart_does_not_pass_over_what_came_after_a_file_was_skipped_though_a_batch_was_held_all_the_time(
    logs: Path,
) -> None:
    kept = KeptBatches(2)
    tail = opened(source(logs, skip_to_end=True), kept)
    append(logs / "app.1", "1\n")
    kept.full = {1}
    with pytest.raises(DeliveryError):
        tail.poll(kept)
    tail.close()
    append(logs / "app.2", "skipped\n")
    tail = opened(source(logs, skip_to_end=True), kept)
    append(logs / "app.2", "2\n")
    tail.close()
    kept.full = set()
    read_all(opened(source(logs, skip_to_end=True), kept), kept)
    assert kept.bodies(0) == kept.bodies(1) == [b"1", b"2"]


def test_no_batch_comes_twice_that_only_a_removed_channel_had_where_the_end_went_well(logs: Path) -> None:
    """It refused the next one: that is held at the end, and the positions are those before it."""
    append(logs / "app.log", "1\n2\n3\n4\n")
    channels = {name: Channel(logs.parent / name, **LIMITS) for name in ("a", "b")}
    a = channels["a"]

    def run(given: dict[str, Any], division: str, selector: Selector, *, is_full: bool = False) -> None:
        with ChannelProcessor(given, (), selector, producer="a1.r1", division=division) as processor:
            tail = opened(source(logs, batch_size=1, headers={"g": {"to": "b"}}), processor)
            with pytest.raises(DeliveryError) if is_full else nullcontext():
                read_all(tail, processor)
            tail.close()

    to_b = Multiplexing("to", {"b": ["b"]}, default=["a"])
    run({"a": a, "b": Faulty(channels["b"], [""] * 2 + ["full"] * 9)}, "x", to_b, is_full=True)
    assert [peek(channel) for channel in channels.values()] == [[], [b"1", b"2"]]
    run({"a": a}, "y", Replicating())
    assert peek(a) == [b"3", b"4"]
    for channel in channels.values():
        channel.close()


def test_nothing_comes_twice_where_only_the_dead_letter_channel_is_another_one(logs: Path) -> None:
    append(logs / "app.log", "1\nbad\n")
    channels = {name: Channel(logs.parent / name, **LIMITS) for name in ("a", "err", "err2")}
    for dead in ("err", "err2"):
        given = {"a": channels["a"]}
        with ChannelProcessor(
            given, [Upper()], producer="a1.r1", division=f"into {dead}", dead_letter=channels[dead]
        ) as processor:
            tail = opened(source(logs), processor)
            read_all(tail, processor)
            tail.close()
    assert [peek(channel) for channel in channels.values()] == [[b"1"], [b"bad"], []]
    for channel in channels.values():
        channel.close()


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

    def wait_and_claim(is_settled: Callable[[int], bool]) -> Noted | None:
        assert first.poll(kept) is Status.READY
        first._write_positions()
        assert first.poll(kept) is Status.READY
        return newest(is_settled)

    monkeypatch.setattr(kept, "newest", wait_and_claim)
    read_all(opened(second, kept), kept)
    assert sorted(kept.bodies()) == [b"app.a", b"app.b"]
