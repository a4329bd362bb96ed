from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import Channel, Event
from spillable_stream.errors import CorruptionError, OptionError, StorageError
from spillable_stream.flow import durable_file
from spillable_stream.flow.sinks import file_roll, output_file
from spillable_stream.flow.sinks.file_roll import FileRoll
from spillable_stream.flow.sinks.output_file import OutputFile
from spillable_stream.flow.sinks.written import NoteFile
from spillable_stream.flow.slot_file import SlotFile
from spillable_stream.flow.sources.base import Status
from tests.support.events import peek
from tests.support.interrupts import Interrupts
from tests.support.note_syncs import fail_syncs_of_notes
from tests.support.one_module import replace_in


@pytest.fixture
def channel(open_channel: Callable[..., Channel]) -> Channel:
    return open_channel()


def put(channel: Channel, *bodies: str, **headers: str) -> None:
    with channel.put_transaction() as tx:
        tx.put_many([Event(b.encode(), headers) for b in bodies])


def opened(channel: Channel, out: Path, **options: Any) -> FileRoll:
    sink = FileRoll(out, **options)
    sink.name = "a1.k1"
    sink.open(channel)
    return sink


def drain(sink: FileRoll) -> None:
    while sink.process() is Status.READY:
        pass


def files(out: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(out.iterdir()) if not p.name.startswith(".")}


def lines(out: Path) -> list[bytes]:
    return b"".join(files(out).values()).split(b"\n")[:-1]


def test_bodies_are_lines_of_a_file_and_batches_are_committed(channel: Channel, tmp_path: Path) -> None:
    put(channel, "1", "2", "3")
    sink = opened(channel, tmp_path / "out", batch_size=2, path_manager_prefix="x-", path_manager_extension="log")
    sink.now = lambda: 5.0
    sink.open(channel)
    drain(sink)
    sink.close()
    assert files(tmp_path / "out") == {"x-5000-1.log": b"1\n2\n3\n"}
    assert channel.stats().groups["default"].lag == 0
    counters = sink.counters.flume_counters()
    assert [counters[f"Batch{n}Count"] for n in ("Empty", "Underflow", "Complete")] == [1, 1, 1]
    assert counters["EventDrainSuccessCount"] == 3


def test_files_can_be_named_by_their_time_and_never_replace_another(channel: Channel, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for expected in (1, 2):
        put(channel, "x")
        sink = opened(channel, out, path_manager="ROLLTIME")
        sink.now = lambda: 0.0
        drain(sink)
        sink.close()
        assert len(files(out)) == expected
    assert all(len(name) == 16 and name[14] == "-" for name in files(out))


def test_headers_can_be_written_too_and_line_ends_left_out(channel: Channel, tmp_path: Path) -> None:
    put(channel, "1", "2", a="x", b="y")
    drain(opened(channel, tmp_path / "a", serializer="HEADER_AND_TEXT"))
    assert lines(tmp_path / "a") == [b"{a=x, b=y} 1", b"{a=x, b=y} 2"]
    put(channel, "1", "2")
    drain(opened(channel, tmp_path / "b", serializer_append_newline=False))
    assert list(files(tmp_path / "b").values()) == [b"12"]


def test_a_new_file_begins_after_the_interval(
    channel: Channel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = 100.0
    replace_in(monkeypatch, file_roll, "time", monotonic=lambda: seconds)
    sink = opened(channel, tmp_path / "out", roll_interval=30)
    for expected in (1, 1, 2):
        put(channel, "x")
        drain(sink)
        seconds += 16
        assert len(files(tmp_path / "out")) == expected
        assert sink.due_seconds() in (14.0, 0.0)


# What a crash can come between: the steps of a batch, in order. At each the process ends before the step.
STEPS = ["OutputFile.append", "OutputFile.sync", "NoteFile.write", "TakeTransaction.commit"]


class Killed(BaseException):
    pass


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("batch", [0, 1])
def test_a_crash_at_any_step_writes_each_event_once(
    open_channel: Callable[..., Channel],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    after: bool,
    batch: int,
) -> None:
    from spillable_stream.channel.take_transaction import TakeTransaction

    channel, out = open_channel(), tmp_path / "out"
    put(channel, *map(str, range(9)))
    owner, name = step.split(".")
    target = {"OutputFile": OutputFile, "NoteFile": NoteFile, "TakeTransaction": TakeTransaction}[owner]
    real, calls = getattr(target, name), 0

    def dies(self: Any, *arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls <= batch:
            return real(self, *arguments)
        if after:
            real(self, *arguments)
        raise Killed

    sink = opened(channel, out, batch_size=3)
    with monkeypatch.context() as patch:
        patch.setattr(target, name, dies)
        patch.setattr(OutputFile, "cut", lambda self: None)
        with pytest.raises(Killed):
            drain(sink)
    channel.close()
    again = open_channel()
    sink = opened(again, out, batch_size=2)
    sink._series += 1
    put(again, "9")
    drain(sink)
    assert lines(out) == [str(i).encode() for i in range(10)]
    assert again.stats().groups["default"].lag == 0


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("after", [False, True])
def test_a_crash_soon_after_a_crash_before_the_commit_writes_each_event_once(
    open_channel: Callable[..., Channel],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    after: bool,
) -> None:
    """The restart finds what is noted in one take with later events, and notes these."""
    from spillable_stream.channel.take_transaction import TakeTransaction

    def dies_at(target: Any, name: str, after: bool) -> Any:
        real = getattr(target, name)

        def dies(self: Any, *arguments: Any) -> None:
            if after:
                real(self, *arguments)
            raise Killed

        return dies

    out = tmp_path / "out"
    owner, name = step.split(".")
    target = {"OutputFile": OutputFile, "NoteFile": NoteFile, "TakeTransaction": TakeTransaction}[owner]
    for second, (dying, method, late) in enumerate(((TakeTransaction, "commit", False), (target, name, after))):
        channel = open_channel()
        put(channel, "first" if second == 0 else "second")
        sink = opened(channel, out)
        sink._series += second
        with monkeypatch.context() as patch:
            patch.setattr(dying, method, dies_at(dying, method, late))
            patch.setattr(OutputFile, "cut", lambda self: None)
            with pytest.raises(Killed):
                drain(sink)
        channel.close()
    channel = open_channel()
    sink = opened(channel, out)
    sink._series += 2
    drain(sink)
    assert sorted(lines(out)) == [b"first", b"second"]
    assert channel.stats().groups["default"].lag == 0


def test_a_note_does_not_grow_by_what_is_committed(open_channel: Callable[..., Channel], tmp_path: Path) -> None:
    out = tmp_path / "out"
    for body in "abc":
        channel = open_channel()
        put(channel, body)
        drain(opened(channel, out))
        note = NoteFile(out, "a1.k1").read(channel)
        assert note is not None and len(note.ranges) == 1
        channel.close()


@pytest.mark.parametrize("restarts", [False, True])
def test_the_events_of_a_file_that_cannot_be_cut_back_are_written_when_it_is_or_at_the_next_start(
    channel: Channel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarts: bool
) -> None:

    def fails(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    put(channel, "1")
    sink = opened(channel, tmp_path / "out")
    drain(sink)
    put(channel, "2")
    with monkeypatch.context() as patch:
        replace_in(patch, output_file, "os", fdatasync=fails, ftruncate=fails)
        with pytest.raises(StorageError, match="can't sync"):
            drain(sink)
        with pytest.raises(StorageError, match="can't cut"):
            drain(sink)
    assert lines(tmp_path / "out") == [b"1", b"2"], "of which the second does not count"
    if restarts:
        sink.close()
        sink = opened(channel, tmp_path / "out")
    drain(sink)
    assert sorted(lines(tmp_path / "out")) == [b"1", b"2"]
    sink.close()


def test_a_batch_is_not_cut_while_a_note_may_name_it(
    channel: Channel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A note that could not be synced is there or not: a crash leaves the batch with it, or without it."""
    put(channel, "1")
    sink = opened(channel, tmp_path / "out")
    drain(sink)
    put(channel, "2")

    with monkeypatch.context() as patch:
        fail_syncs_of_notes(patch, lambda: True)
        with pytest.raises(StorageError, match=r"\.note \(Input/output error\)"):
            drain(sink)
    again = opened(channel, tmp_path / "out")  # after a crash
    drain(again)
    again.close()
    assert sorted(lines(tmp_path / "out")) == [b"1", b"2"]


def test_a_batch_that_fails_is_cut_back_and_written_again(
    channel: Channel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(channel, "1")
    sink = opened(channel, tmp_path / "out")
    drain(sink)
    put(channel, "2", "3")
    with monkeypatch.context() as patch:

        def fails(*_: object) -> None:
            raise OSError(28, "No space left on device")

        patch.setattr(os, "fdatasync", fails)
        with pytest.raises(StorageError, match="No space left"):
            sink.process()
    assert lines(tmp_path / "out") == [b"1"]
    drain(sink)
    assert lines(tmp_path / "out") == [b"1", b"2", b"3"]
    assert sink.counters.flume_counters()["EventWriteFail"] == 1


def test_a_commit_that_fails_after_the_note_does_not_write_again(
    channel: Channel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spillable_stream.channel.take_transaction import TakeTransaction

    put(channel, "1", "2")
    sink = opened(channel, tmp_path / "out")
    with monkeypatch.context() as patch:

        def fails(*_: object) -> None:
            raise StorageError("the disk refused")

        patch.setattr(TakeTransaction, "commit", fails)
        with pytest.raises(StorageError):
            sink.process()
    drain(sink)
    assert lines(tmp_path / "out") == [b"1", b"2"]


@pytest.mark.parametrize("ending", ["note", "json"])
def test_a_damaged_note_is_refused_by_name(channel: Channel, tmp_path: Path, ending: str) -> None:
    note = tmp_path / f".spillable-a1.k1.{ending}"
    note.write_text("{")
    with pytest.raises(CorruptionError, match=str(note)):
        opened(channel, tmp_path)


@pytest.mark.parametrize("ending", ["note", "json"])
def test_a_note_of_another_channel_is_ignored(channel: Channel, tmp_path: Path, ending: str) -> None:
    out = tmp_path / "out"
    out.mkdir()
    other = out / "other"
    other.write_bytes(b"not ours")
    note = json.dumps(
        {"channel": "x", "files": {str(other): 3}, "ranges": [[1, 2]], "closing": "", "closing_ranges": []}
    ).encode()
    if ending == "json":
        (out / ".spillable-a1.k1.json").write_bytes(note)
    else:
        SlotFile(out / ".spillable-a1.k1.note").write(note)
    put(channel, "1", "2")
    sink = opened(channel, out)
    drain(sink)
    sink.close()
    assert sorted(files(out).values()) == [b"1\n2\n", b"not ours"]


def test_a_new_file_that_cannot_be_noted_is_removed(
    channel: Channel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt would leave one more."""
    put(channel, "1")
    sink = opened(channel, tmp_path / "out")
    with monkeypatch.context() as patch:
        fail_syncs_of_notes(patch, lambda: True)
        for _ in range(3):
            with pytest.raises(StorageError):
                sink.process()
    assert files(tmp_path / "out") == {}
    drain(sink)
    sink.close()
    assert lines(tmp_path / "out") == [b"1"]


def test_a_sink_that_was_never_opened_can_be_closed(tmp_path: Path) -> None:
    FileRoll(tmp_path).close()
    assert not list(tmp_path.iterdir())


def test_a_batch_syncs_its_file_the_note_and_the_log_once_each(
    channel: Channel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the second batch on: the first one creates the file and the note."""
    synced: list[str] = []
    for name in ("fsync", "fdatasync"):
        real = getattr(os, name)

        def syncs(descriptor: int, real: Callable[[int], None] = real) -> None:
            synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
            real(descriptor)

        monkeypatch.setattr(os, name, syncs)
    put(channel, *map(str, range(6)))
    sink = opened(channel, tmp_path / "out", batch_size=2)
    sink.process()
    for _ in range(2):
        synced.clear()
        sink.process()
        (output,) = files(tmp_path / "out")
        assert synced == [output, ".spillable-a1.k1.note", "log-000001"]
    sink.close()


@pytest.mark.parametrize("options", [{"serializer": "no.such"}, {"serializer": "NONE"}, {"path_manager": "x"}])
def test_a_wrong_option_is_refused(options: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(OptionError):
        FileRoll(tmp_path, **options)


@pytest.mark.parametrize("restart", [False, True], ids=["goes on", "begins anew"])
@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_an_interrupt_anywhere_in_a_round_leaves_each_event_once(
    channel: Channel, tmp_path: Path, restart: bool, step: int
) -> None:
    number, hit = 0, True
    while hit:
        number += step
        out, wanted = tmp_path / f"out{number}", [b"%d" % i for i in range(number * 10, number * 10 + 6)]
        sink = opened(channel, out, batch_size=2)
        put(channel, *(body.decode() for body in wanted))
        assert sink.process() is Status.READY
        interrupts = Interrupts(number, "sinks/file_roll.py", "sinks/output_file.py", "sinks/written.py")
        interrupts.run(sink.process)
        hit = interrupts.hit
        if restart:
            sink._notes.close()
            sink = opened(channel, out, batch_size=2)
        drain(sink)
        sink.close()
        assert lines(out) == wanted, number
    assert number > 20


@pytest.mark.parametrize("is_file", [True, False], ids=["a-file-in-the-way", "missing"])
def test_the_directory_of_a_file_is_durable_before_events_are_in_it_or_refused_at_once(
    channel: Channel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_file: bool
) -> None:
    synced, real = list[Path](), durable_file.sync_directory
    also_synced = list[Path]()
    monkeypatch.setattr(durable_file, "sync_directory", lambda path: (synced.append(path), real(path)))
    monkeypatch.setattr(file_roll, "sync_directory", lambda path: (also_synced.append(path), real(path)))
    put(channel, "1")
    sink = FileRoll(tmp_path / "out", path_manager_prefix="today/")
    sink.open(channel)
    if is_file:
        (tmp_path / "out" / "today").touch()
        with pytest.raises(StorageError, match="today"):
            sink.process()
        assert peek(channel) == [b"1"]
    else:
        sink.process()
        assert [path for path in synced if path.is_relative_to(tmp_path)][:2] == [tmp_path, tmp_path / "out"]
        assert tmp_path / "out" / "today" in also_synced
        assert peek(channel) == []
    sink.close()
