"""Repairs of channels that lack files, and what is left in part, or comes twice, after one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spillable_stream import Channel
from spillable_stream.format.frame import FrameType
from spillable_stream.integrity.repair import repair
from spillable_stream.integrity.verify import verify
from tests.support.channels import check_outcome, contents, contents_of_copy, fill, first_bytes, repaired, three_puts
from tests.support.damage import age_head, flip, kill, log_file, lose_memory, memory_of, offsets, reboot
from tests.support.delays import clock_of, deliver_all, put_late
from tests.support.events import put, take


@pytest.mark.parametrize("which", ["middle", "newest", "first"])
@pytest.mark.parametrize("checkpoints", ["kept", "removed"])
def test_a_missing_data_file_costs_what_was_in_it(path: Path, which: str, checkpoints: str) -> None:
    fill(path)
    before = contents_of_copy(path)
    if checkpoints == "removed":
        shutil.rmtree(path / "checkpoint")
    files = sorted((path / "data").glob("log-*"))
    with_events = [f for f in files if offsets(path, FrameType.PUT, int(f.name[4:]))]
    {"middle": with_events[len(with_events) // 2], "newest": files[-1], "first": files[0]}[which].unlink()
    report = repaired(path)
    check_outcome(before, contents(path), report)
    assert report.loss.lost or which == "first"


def test_whatever_data_file_is_missing_a_repaired_channel_opens(path: Path, tmp_path: Path) -> None:
    """Also one that has takes alone: the header of the next one says them, and an open needs the files before it."""
    with Channel(path, minimum_required_space=0, max_file_size=1500, checkpoint_on_close=False) as channel:
        for group in ("a", "b"):
            channel.consumer(group)
        for i in range(4):
            put(channel, b"%d" % i * 300)
            take(channel, 1, "a")
    shutil.rmtree(path / "checkpoint")
    before = contents_of_copy(path)
    files = sorted((path / "data").glob("log-*"))
    assert len(files) > 5
    shutil.copytree(path, tmp_path / "whole")
    for file in files:
        shutil.rmtree(path)
        shutil.copytree(tmp_path / "whole", path)
        file.unlink()
        report = verify(path)
        if not report.healthy:
            assert repair(path).loss == report.loss
        check_outcome(before, contents(path), report)


def test_the_newest_file_of_a_memory_tier_is_missed_and_the_others_keep_their_events(path: Path) -> None:
    channel = Channel(path, minimum_required_space=0, memory_capacity=100)
    put(channel, b"1", b"2")
    channel.checkpoint()
    put(channel, b"3", b"4")
    kill(channel)
    *_, second = sorted(memory_of(path).glob("memory-0*"))
    second.unlink()
    report = verify(path)
    assert path / "memory" / second.name in {found.path for found in report.findings}
    assert report.loss.lost == ((3, 4),)
    repair(path)
    assert first_bytes(path) == [b"1", b"2"]


def test_the_checkpoint_that_was_created_in_a_missing_newest_file_says_what_was_before_it(path: Path) -> None:
    """It was left out: a column was gone, and the group was given what it had taken before the checkpoint, too."""
    one, two = pa.schema([("n", pa.int64())]), pa.schema([("n", pa.int64()), ("m", pa.int64())])
    with Channel(path, schema=one, minimum_required_space=0, checkpoint_on_close=False) as channel:
        with channel.put_transaction() as tx:
            tx.put_batch(pa.record_batch({"n": list(range(6))}, one))
        with channel.engine().committing():
            channel.engine().log.tiers.disk.roll(channel.engine().state.small)
        with channel.take_transaction() as tx:
            tx.take_many(3)
        channel.evolve(two)
        channel.checkpoint()
        with channel.take_transaction() as tx:
            tx.take_many(1)
    log_file(path, 2).unlink()
    report = repaired(path)
    assert (report.loss.lost, report.loss.repeated) == ((), {"default": ((4, 6),)})
    with Channel(path, create=False) as channel:
        assert channel.schema.names == ["n", "m"]
        assert [n for batch in channel.read(group="default") for n in batch.column("n").to_pylist()] == [3, 4, 5]


def test_takes_in_a_missing_newest_file_may_come_again_though_a_memory_tier_knew_of_it(path: Path) -> None:
    channel = Channel(path, minimum_required_space=0, memory_capacity=2, overflow_timeout=0)
    put(channel, b"1", b"2", b"3")  # to disk
    put(channel, b"4")
    with channel.engine().committing():
        channel.engine().log.tiers.disk.roll(channel.engine().state.small)
    channel.checkpoint()  # the memory tier's new file knows of the data files' end
    assert take(channel, 2) == [b"1", b"2"]
    kill(channel)
    log_file(path, 2).unlink()
    assert repaired(path).loss.repeated["default"] == ((1, 4),)
    assert first_bytes(path) == [b"1", b"2", b"3", b"4"]


def test_kept_events_of_a_missing_first_file_are_named_where_there_ever_was_a_memory_tier(path: Path) -> None:
    """`verify` called the channel healthy, and an open refused it for them."""
    options: dict[str, Any] = {"memory_capacity": 2, "overflow_timeout": 0, "retention_ms": 3_600_000}
    with Channel(path, minimum_required_space=0, checkpoint_on_close=False, **options) as channel:
        put(channel, b"1", b"2", b"3")  # to disk
        take(channel)
        with channel.engine().committing():
            channel.engine().log.tiers.disk.roll(channel.engine().state.small)
        put(channel, b"4", b"5", b"6")
        channel.checkpoint()
    log_file(path, 1).unlink()
    report = repaired(path)
    assert (report.loss.lost, report.loss.kept) == ((), ((1, 3),))
    assert (log_file(path, 1), ((1, 3),)) in [(found.path, found.events) for found in report.findings]
    assert first_bytes(path) == [b"4", b"5", b"6"]


@pytest.mark.parametrize("happened", [reboot, age_head])
def test_what_was_taken_ahead_from_a_lost_memory_tier_is_not_missing_though_a_checkpoint_has_it(
    path: Path, happened: Callable[[Path], None]
) -> None:
    """`verify` called each such channel damaged after a boot, though nothing is lost."""
    channel = Channel(path, minimum_required_space=0, memory_capacity=2, overflow_timeout=0)
    put(channel, b"1", b"2", b"3")  # to disk
    put(channel, b"4")
    channel.checkpoint()
    slow = channel.take_transaction()
    slow.begin()
    slow.take_many(3)
    assert take(channel) == [b"4"]
    kill(channel)
    happened(path)
    lose_memory(path)
    report = verify(path)
    assert report.healthy and report.loss.count == 0
    assert first_bytes(path) == [b"1", b"2", b"3"]


def test_a_put_to_memory_bounds_no_take_that_the_data_files_hide(path: Path) -> None:
    channel = Channel(path, minimum_required_space=0, memory_capacity=2, overflow_timeout=0)
    put(channel, b"1")
    put(channel, b"2")
    put(channel, b"3", b"4", b"5")  # to disk
    assert take(channel, 4) == [b"1", b"2", b"3", b"4"]
    put(channel, b"6")  # to memory
    kill(channel)
    log_file(path).write_bytes(bytes(log_file(path).stat().st_size))
    repeated = repaired(path).loss.repeated["default"]
    again = contents(path).groups["default"].keys() & {1, 2, 3, 4}
    assert again == {1, 2} and again <= {i for first, last in repeated for i in range(first, last + 1)}


@pytest.mark.parametrize("where", ["inline", "staged", "moved"])
def test_a_transaction_that_is_left_in_part_is_named(path: Path, where: str) -> None:
    options: dict[str, Any] = {
        "inline": {},
        "staged": {"max_inline_bytes": 10},
        "moved": {"memory_capacity": 10, "overflow_timeout": 0},
    }[where]
    with Channel(path, minimum_required_space=0, checkpoint_on_close=False, **options) as channel:
        put(channel, b"whole")
        with channel.put_transaction() as tx:
            for body in (b"first", b"second", b"third"):
                tx.put_batch(pa.RecordBatch.from_pydict({"headers": [{}], "body": [body * 9]}, channel.schema))
    found = [f for f in (path / "data").iterdir() if b"second" * 9 in f.read_bytes()]
    flip(found[0], found[0].read_bytes().index(b"second" * 9))
    report = repaired(path)
    assert report.loss.lost == ((3, 3),)
    assert report.loss.partial == (tx.committed.transaction_id,)
    assert first_bytes(path) == [b"w", b"f", b"t"]


@pytest.mark.parametrize("where", ["inline", "moved"])
def test_a_transaction_whose_end_is_cut_off_is_named(path: Path, where: str) -> None:
    options: dict[str, Any] = {} if where == "inline" else {"memory_capacity": 10, "overflow_timeout": 0}
    with Channel(path, minimum_required_space=0, checkpoint_on_close=False, **options) as channel:
        with channel.put_transaction() as tx:
            for body in (b"first", b"second", b"third"):
                tx.put_batch(pa.RecordBatch.from_pydict({"headers": [{}], "body": [body * 9]}, channel.schema))
        put(channel, b"later")
    file = next(f for f in (path / "data").iterdir() if b"third" * 9 in f.read_bytes())
    file.write_bytes(file.read_bytes()[: file.read_bytes().index(b"third" * 9)])
    report = repaired(path)
    assert report.loss.lost == ((3, 4),)
    assert report.loss.partial == (tx.committed.transaction_id,)


def test_a_transaction_that_is_lost_or_left_as_a_whole_is_not_named_as_left_in_part(path: Path) -> None:
    at = three_puts(path)
    flip(log_file(path), at[1] + 60)
    assert repaired(path).loss.partial == ()


@pytest.mark.parametrize("hides", ["the end of the log", "what is before another put"])
def test_delayed_events_that_may_come_twice_are_counted(path: Path, hides: str) -> None:
    with Channel(path, minimum_required_space=0, checkpoint_on_close=False) as channel:
        clock = clock_of(channel)
        clock.pass_by(-100_000)  # so that what waits 10,000 seconds is due by now
        clock.begin_stretch(10_000)
        put_late(channel, 10_000, b"0", b"1")
        put_late(channel, 10_001, b"later")
        clock.pass_by(10_000)
        deliver_all(channel)
        assert channel.stats().delayed.events == 1
        if hides != "the end of the log":
            put(channel, b"2")
    commit = offsets(path, FrameType.COMMIT)[-1 if hides == "the end of the log" else -2]
    flip(log_file(path), commit + 50)
    if hides == "the end of the log":
        age_head(path)
    assert verify(path).loss.redelivered == repaired(path).loss.redelivered == 3  # all that were due by now
