"""What a source reads of growing files, and how it puts it."""

from __future__ import annotations

import errno
import os
import shutil
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import Channel
from spillable_stream.errors import DeliveryError, EventTooLargeError, PutTooLargeError, StorageError
from spillable_stream.flow.processor import ChannelProcessor
from spillable_stream.flow.sources.base import Status
from spillable_stream.flow.sources.file_groups import FileGroup, Found
from spillable_stream.flow.sources.taildir import TailDir
from tests.support.events import peek, take
from tests.support.flow_processors import KeptBatches
from tests.support.taildir import Clock, append, opened, read_all, source


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
    assert "the bytes 0 to 2 of" in caplog.text and "may be in some channels only, and are gone" in caplog.text
    assert list(again.missed) == [f"{logs}/app.log is gone, and some channels have not got its bytes 0 to 2"]


@pytest.mark.parametrize("reads", [0, 1, 2])
def test_a_batch_that_a_disk_cannot_read_after_a_crash_is_not_gone_and_its_file_is_named(
    logs: Path, monkeypatch: pytest.MonkeyPatch, reads: int
) -> None:
    append(logs / "app.log", "1\n")
    kept = KeptBatches(2)
    kept.full = {1}
    with pytest.raises(DeliveryError):
        opened(source(logs), kept).poll(kept)
    kept.full = set()
    calls, pread = count(), os.pread

    def refuse(descriptor: int, size: int, offset: int) -> bytes:
        if next(calls) >= reads:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return pread(descriptor, size, offset)

    with monkeypatch.context() as failing:
        failing.setattr(os, "pread", refuse)
        with pytest.raises(StorageError, match=rf"can't read {logs}/app\.log at 0 .Input/output error"):
            opened(source(logs), kept)
    again = opened(source(logs), kept)
    read_all(again, kept)
    assert kept.bodies(0) == kept.bodies(1) == [b"1"]
    assert not again.missed


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


def test_a_directory_that_cannot_be_listed_is_named_once_and_the_others_are_read(
    logs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    append(logs / "app.log", "1\n")
    (logs / "plain").touch()
    kept = KeptBatches()
    groups = {"bad": f"{logs}/plain/.*", "good": f"{logs}/app.*"}
    tail = opened(TailDir(groups, position_file=logs.parent / "positions.json"), kept)
    read_all(tail, kept)
    read_all(tail, kept)
    tail.close()
    assert kept.bodies() == [b"1"]
    assert [text.partition(" (")[0] for text in tail.missed] == [f"can't list {logs}/plain"]
    assert caplog.text.count("can't list") == 1


def test_of_two_files_with_one_inode_number_on_two_file_systems_one_is_read_and_the_other_named(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(logs / "app.log", "1\n")
    (inode,) = (entry.inode() for entry in os.scandir(logs))
    twin, files = Found("/mnt/app.log", "far", inode, -1), FileGroup.files

    def files_with_twin(group: FileGroup, *, again: bool = False) -> list[Found]:
        return [twin] if group.name == "far" else files(group, again=again)

    monkeypatch.setattr(FileGroup, "files", files_with_twin)
    for groups in ({"near": f"{logs}/app.*", "far": "/mnt/app.*"}, {"far": "/mnt/app.*", "near": f"{logs}/app.*"}):
        kept = KeptBatches()
        tail = opened(TailDir(groups, position_file=logs.parent / "positions.json"), kept)
        append(logs / "app.log", "2\n")
        read_all(tail, kept)
        tail.close()  # whose position tells the next one which of the two it has read
        assert kept.bodies()[-1:] == [b"2"]
        assert list(tail.missed) == [
            f"/mnt/app.log is not read: it has the inode number of {logs}/app.log, on another file system; give each "
            "file system a taildir source of its own"
        ]


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
