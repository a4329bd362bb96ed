"""`backup`: copies of the delayed events that wait, and of side files that are delivered meanwhile."""

from __future__ import annotations

import random
import shutil
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import spillable_stream as ss
from spillable_stream import (
    Channel,
    CorruptionError,
)
from spillable_stream.errors import DataLossError
from spillable_stream.log.delayed_files import DelayedFiles
from spillable_stream.state.delays import DelayedFile
from tests.support.backups import contents
from tests.support.damage import flip
from tests.support.delays import clock_of, deliveries_of, put_late
from tests.support.events import take


def test_events_that_wait_are_copied_and_are_due_at_their_time(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with Channel(path, minimum_required_space=0) as channel:
        clock = clock_of(channel)
        put_late(channel, 10, b"a", b"b")
        put_late(channel, 20, b"c")
        put_late(channel, 100_000, b"d")
        with channel.put_transaction() as tx:
            tx.put(ss.Event(b"now"))
            tx.put(ss.Event(b"e"), ttl=3600, deliver_after=200_000)
        clock.pass_by(15)
        assert deliveries_of(channel).deliver()
        report = ss.backup(path, copy)
        assert (report.copied_events, report.delayed_events, report.files, report.last_id) == (3, 3, 4, 3)
    for new_identity in (True, False):
        shutil.rmtree(path, ignore_errors=True)
        made = ss.restore(copy, path, new_identity=new_identity)
        assert (made.events, made.delayed_events) == (3, 3)
        assert '"format": 3' in (path / "channel.json").read_text()
        with Channel(path, create=False, minimum_required_space=0) as restored:
            now_ms = clock.now_ms
            deliveries_of(restored).clock_ms = clock
            assert take(restored) == [b"now", b"a", b"b"]
            put_late(restored, 6, b"later")  # into the side file of the original, or another one
            clock.pass_by(5.001)
            assert take(restored) == [b"c"]
            clock.pass_by(1)
            assert take(restored) == [b"later"]
            clock.pass_by(100_000)
            assert take(restored) == [b"d"]
            clock.pass_by(100_000)
            with restored.take_transaction() as tx:
                (event,) = tx.take_many(10)
            assert event.body == b"e"
            assert restored.stats().delayed.events == 0
            assert list((path / "data").glob("delayed-*")) == []
            clock.now_ms = now_ms
        assert ss.verify(path).healthy


def test_a_side_file_is_written_again_only_if_it_has_other_events(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with Channel(path, minimum_required_space=0) as channel:
        clock = clock_of(channel)
        put_late(channel, 10_000, b"a")
        put_late(channel, 1_000_000, b"b")
        first = ss.backup(channel, copy)
        assert (first.files, first.kept_files, first.copied_events) == (2, 0, 0)
        assert first.copied_bytes == sum(f.stat().st_size for f in (copy / "delays").iterdir())
        second = ss.backup(channel, copy)
        assert (second.files, second.kept_files, second.copied_bytes) == (2, 2, 0)
        put_late(channel, 10_000, b"c")
        third = ss.backup(channel, copy)
        assert (third.files, third.kept_files, third.delayed_events) == (2, 1, 3)
        clock.pass_by(20_000)
        assert deliveries_of(channel).deliver()
        fourth = ss.backup(channel, copy)
        assert (fourth.files, fourth.kept_files, fourth.delayed_events) == (2, 1, 1)
        assert len(list((copy / "delays").iterdir())) == 1
        clock.pass_by(1_000_000)
        assert deliveries_of(channel).deliver()
        assert ss.backup(channel, copy).delayed_events == 0
    assert list((copy / "delays").iterdir()) == []
    (manifest,) = (copy / "backups").iterdir()
    assert '"format": 1' in manifest.read_text() and "delays" not in manifest.read_text()


def test_a_side_file_that_is_delivered_while_it_is_copied_is_copied_as_events(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        channel.consumer("default")
        clock = clock_of(channel)
        put_late(channel, 10, b"a")
        put_late(channel, 100_000, b"b")
        content = DelayedFiles.content

        def deliver_first(files: DelayedFiles, file: DelayedFile) -> bytes:
            clock.pass_by(11)
            deliveries_of(channel).deliver()
            return content(files, file)

        monkeypatch.setattr(DelayedFiles, "content", deliver_first)
        report = ss.backup(path, tmp_path / "copy")
    assert (report.copied_events, report.delayed_events, report.last_id) == (1, 1, 1)
    assert contents(tmp_path / "copy", tmp_path / "r", "default") == (1, {1: b"a"})


def test_a_copy_of_a_side_file_that_is_not_needed_in_the_end_is_removed(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first side file is copied, and all events are delivered before the second one is."""
    with Channel(path, minimum_required_space=0) as channel:
        clock = clock_of(channel)
        put_late(channel, 10, b"a")
        put_late(channel, 100_000, b"b")
        content, read = DelayedFiles.content, list[int]()

        def deliver_before_the_second(files: DelayedFiles, file: DelayedFile) -> bytes:
            read.append(file.number)
            if len(read) == 2:
                clock.pass_by(200_000)
                deliveries_of(channel).deliver()
            return content(files, file)

        monkeypatch.setattr(DelayedFiles, "content", deliver_before_the_second)
        report = ss.backup(path, tmp_path / "copy")
    assert (read, report.copied_events, report.delayed_events) == ([1, 2], 2, 0)
    assert list((tmp_path / "copy" / "delays").iterdir()) == []


def test_a_side_file_that_is_gone_or_damaged_leaves_the_earlier_backup(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with Channel(path, minimum_required_space=0) as channel:
        put_late(channel, 10_000, b"a" * 100)
        ss.backup(channel, copy)
        (file,) = (path / "data").glob("delayed-*")
        whole = file.read_bytes()
        flip(file, whole.index(b"a" * 100))
        with pytest.raises(CorruptionError, match="delayed events is damaged"):
            ss.backup(channel, copy)
        file.unlink()
        with pytest.raises(DataLossError, match="the file was removed"):
            ss.backup(channel, copy)
        file.write_bytes(whole)
    assert [f.name[:20] for f in (copy / "backups").iterdir()] == ["00000000000000000001"]
    assert ss.restore(copy, tmp_path / "r", new_identity=True).delayed_events == 1


def test_a_copy_of_a_side_file_that_is_gone_is_noticed(path: Path, tmp_path: Path) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        put_late(channel, 10_000, b"a")
        ss.backup(channel, tmp_path / "copy")
        next((tmp_path / "copy" / "delays").iterdir()).unlink()
        with pytest.raises(CorruptionError, match="a file of an earlier backup is gone, or was cut"):
            ss.backup(channel, tmp_path / "copy")


@pytest.mark.parametrize("times", [3, pytest.param(30, marks=pytest.mark.slow)])
@pytest.mark.parametrize("options", [{}, {"memory_capacity": 200, "overflow_timeout": 0}])
def test_a_backup_under_load_has_each_transaction_whole_with_its_events_that_wait(
    path: Path, tmp_path: Path, options: Any, times: int
) -> None:
    """Each transaction puts one event for now and two for later, which are delivered while backups are created."""
    ended, rng = threading.Event(), random.Random(1)

    def load() -> None:
        number = 0
        while not ended.is_set():
            with channel.put_transaction() as tx:
                tx.put(ss.Event(b"%d" % number))
                tx.put(ss.Event(b"%d" % number), deliver_after=rng.choice([0.001, 0.01, 0.1, 100]))
                tx.put(ss.Event(b"%d" % number), deliver_after=0.03)
            number += 1

    with Channel(path, minimum_required_space=0, **options) as channel:
        thread = threading.Thread(target=load)
        thread.start()
        try:
            for i in range(times):
                report = ss.backup(channel if i % 2 else path, tmp_path / "copy")
                ss.restore(tmp_path / "copy", tmp_path / "r", new_identity=True)
                with Channel(tmp_path / "r", create=False, minimum_required_space=0) as restored:
                    stats = restored.stats()
                    assert stats.last_id == report.last_id and stats.delayed.events == report.delayed_events
                    clock_of(restored).pass_by(1000)
                    while deliveries_of(restored).deliver():
                        pass
                    found = Counter(body for batch in restored.read() for body in batch.column("body").to_pylist())
                assert found == {b"%d" % number: 3 for number in range(len(found))}
                shutil.rmtree(tmp_path / "r")
        finally:
            ended.set()
            thread.join()
