"""Files of the HDFS sink after crashes, failures and interrupts: each event is once in closed files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import Channel
from spillable_stream.channel.consumer import Consumer
from spillable_stream.channel.take_transaction import TakeTransaction
from spillable_stream.errors import StorageError
from spillable_stream.flow.sinks import claimed_files
from spillable_stream.flow.sinks.appended_batch import AppendedBatch
from spillable_stream.flow.sinks.base import Taken
from spillable_stream.flow.sinks.hdfs import Hdfs
from spillable_stream.flow.sinks.output_file import OutputFile
from spillable_stream.flow.sources.base import Status
from tests.support.hdfs_sinks import KINDS, NO_ROLLS, drain, files, lines, opened, put
from tests.support.interrupts import Interrupts
from tests.support.note_syncs import fail_syncs_of_notes

WHERE_BATCHES_ARE_WRITTEN = (
    "sinks/appended_batch.py",
    "sinks/bucket_files.py",
    "sinks/bucket_sink.py",
    "sinks/output_file.py",
    "sinks/written.py",
)


@pytest.fixture
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The channel is not below `tmp_path`, which has the files of the sink."""
    return tmp_path_factory.mktemp("channel") / "channel"


@pytest.fixture
def channel(open_channel: Callable[..., Channel]) -> Channel:
    return open_channel()


class Killed(BaseException):
    pass


STEPS = {
    "DataStream": [
        "OutputFile.append",
        "OutputFile.sync",
        "NoteFile.write",
        "TakeTransaction.commit",
        "Naming.name",
    ],
    "CompressedStream": ["NoteFile.write", "LocalFiles.publish", "Consumer.commit"],
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("call", range(4))
def test_a_crash_at_any_step_leaves_each_event_once_in_closed_files(
    open_channel: Callable[..., Channel], tmp_path: Path, kind: dict[str, Any], after: bool, call: int
) -> None:
    from spillable_stream.flow.sinks.claimed_files import ClaimedFiles
    from spillable_stream.flow.sinks.destinations import LocalFiles
    from spillable_stream.flow.sinks.naming import Naming
    from spillable_stream.flow.sinks.written import NoteFile

    owners = {c.__name__: c for c in (Consumer, TakeTransaction, Naming, LocalFiles, OutputFile, NoteFile)}
    channel = open_channel(checkpoint_on_close=False)
    for number, step in enumerate(STEPS[kind["file_type"]]):
        out = tmp_path / f"out{number}"
        put(channel, *map(str, range(20)), a="x")
        put(channel, *map(str, range(20, 26)), a="y")
        owner, name = step.split(".")
        target = owners[owner]
        real, calls = getattr(target, name), 0

        def dies(self: Any, *arguments: Any, _real: Any = real, **keywords: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == call + 1 and after:
                _real(self, *arguments, **keywords)
            if calls > call:
                raise Killed
            return _real(self, *arguments, **keywords)

        options = {**NO_ROLLS, "roll_count": 6, "batch_size": 4, **kind}
        sink = opened(channel, out / "%{a}", **options)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(target, name, dies)
            patch.setattr(AppendedBatch, "undo", lambda *_: None)
            patch.setattr(ClaimedFiles, "_discard", lambda *_: None)
            with contextlib.suppress(Killed):
                drain(sink)
        channel.close()
        channel = open_channel(checkpoint_on_close=False)
        sink = opened(channel, out / "%{a}", **{**options, "now": lambda: 2.0})
        drain(sink)
        sink.close()
        assert sorted(map(int, lines(out))) == list(range(26)), step
        assert not list(out.rglob("*.tmp")), step
        assert channel.stats().groups["default"].lag == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", ["OutputFile.append", "TakeTransaction.commit"])
def test_a_crash_soon_after_a_crash_before_the_commit_leaves_each_event_once(
    open_channel: Callable[..., Channel], tmp_path: Path, kind: dict[str, Any], step: str
) -> None:
    """The restart finds what is noted in one take with later events, and notes these."""
    from spillable_stream.flow.sinks.destinations import LocalFiles

    def dies(*_: Any) -> None:
        raise Killed

    options, out = {**NO_ROLLS, **kind}, tmp_path / "out"
    for run, name in enumerate(("TakeTransaction.commit", step)):
        channel = open_channel()
        put(channel, str(run))
        sink = opened(channel, out, **options, **{"now": lambda run=run: float(run)})
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
            owner, method = name.split(".")
            patch.setattr({"OutputFile": OutputFile, "TakeTransaction": TakeTransaction}[owner], method, dies)
            patch.setattr(Consumer if run == 0 else LocalFiles, "commit" if run == 0 else "publish", dies)
            patch.setattr(AppendedBatch, "undo", dies)
            patch.setattr("spillable_stream.flow.sinks.claimed_files.ClaimedFiles._discard", dies)
            drain(sink)
            sink.close()
        channel.close()
    channel = open_channel()
    sink = opened(channel, out, **options, **{"now": lambda: 9.0})
    drain(sink)
    sink.close()
    assert sorted(lines(out)) == ["0", "1"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_that_fails_is_written_again(
    channel: Channel, tmp_path: Path, kind: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(channel, *map(str, range(10)))
    sink = opened(channel, tmp_path, **{**NO_ROLLS, "roll_count": 4, "batch_size": 3, **kind})
    sink.process()
    real = sink._made._content

    def fails() -> Any:
        raise StorageError("the disk is full")

    monkeypatch.setattr(sink._made, "_content", fails)
    for _ in range(2):
        with pytest.raises(StorageError):
            drain(sink)
    monkeypatch.setattr(sink._made, "_content", real)
    drain(sink)
    sink.close()
    assert sorted(map(int, lines(tmp_path))) == list(range(10))


@pytest.mark.parametrize("failures", [1, 9], ids=["once", "for good"])
@pytest.mark.parametrize("crashes", [True, False], ids=["crash", "no crash"])
@pytest.mark.parametrize("before", [["1"], []], ids=["a file", "no file"])
def test_a_batch_is_not_cut_while_a_note_may_name_it(
    channel: Channel, tmp_path: Path, failures: int, crashes: bool, before: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A note that could not be synced is there or not: a crash leaves the batch with it, or without it."""
    failing = [*([] if before else [False]), *[True] * failures]  # the first note of a new file is whole

    options: dict[str, Any] = {**NO_ROLLS, "file_type": "DataStream"}
    put(channel, *before)
    sink = opened(channel, tmp_path, **options)
    drain(sink)
    put(channel, "2")
    with monkeypatch.context() as patched:
        fail_syncs_of_notes(patched, lambda: bool(failing) and failing.pop(0))
        for _ in range(1 + (failures > 1)):
            with pytest.raises(StorageError, match="Input/output error"):
                drain(sink)
    if crashes:
        sink = opened(channel, tmp_path, **options)
    drain(sink)
    sink.close()
    assert sorted(lines(tmp_path)) == [*before, "2"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_dead_letter_is_there_once_though_the_sink_dies_before_its_commit(
    channel: Channel, tmp_path: Path, kind: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise StorageError("crash")

    put(channel, "untimed")
    with Channel(tmp_path / "dead", minimum_required_space=0) as dead:
        for dies in (True, False):
            sink = Hdfs(str(tmp_path / "out" / "%Y"), **{"file_type": "DataStream", **NO_ROLLS, **kind})
            sink.name, sink.dead_letter = "a1.k1", dead
            sink.open(channel)
            with monkeypatch.context() as patched:
                if dies:
                    patched.setattr(TakeTransaction, "commit", crash)
                    patched.setattr(Consumer, "commit", crash)
                    with pytest.raises(StorageError, match="crash"):
                        sink.process()
                else:
                    drain(sink)
                    sink.close()
        assert dead.stats().channel_size == 1
    assert channel.stats().channel_size == 0
    assert lines(tmp_path / "out") == []


@pytest.mark.parametrize(
    "restart",
    [pytest.param(False, id="continues"), pytest.param(True, id="begins anew", marks=pytest.mark.slow)],
)
@pytest.mark.parametrize(
    "rolls",
    [
        pytest.param({"roll_count": 0}, id="one file", marks=pytest.mark.slow),
        pytest.param({"roll_count": 3}, id="files of three"),
    ],
)
@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_an_interrupt_anywhere_in_a_batch_leaves_each_event_once(
    channel: Channel, tmp_path: Path, restart: bool, rolls: dict[str, int], step: int
) -> None:
    number, hit = 0, True
    while hit:
        number += step
        out, wanted = tmp_path / f"out{number}", [str(i) for i in range(number * 10, number * 10 + 8)]
        options = {**NO_ROLLS, **rolls, "batch_size": 2, "write_format": "Text"}
        sink = opened(channel, out, **options)
        put(channel, *wanted)
        assert sink.process() is Status.READY
        interrupts = Interrupts(number, *WHERE_BATCHES_ARE_WRITTEN)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sink, "write", interrupted(sink.write, interrupts))
            with contextlib.suppress(KeyboardInterrupt):
                sink.process()
        hit = interrupts.hit
        if restart:
            sink._notes.close()
            sink = opened(channel, out, **options, now=lambda: 2.0)
        drain(sink)
        sink.close()
        assert sorted("".join(files(out).values()).split()) == sorted(wanted), number
        assert not [name for name, text in files(out).items() if text and name.endswith(".tmp")], number
    assert number > 20


def interrupted(write: Callable[[Taken], None], interrupts: Interrupts) -> Callable[[Taken], None]:
    def write_interrupted(taken: Taken) -> None:
        interrupts.run(lambda: write(taken))
        if interrupts.hit:
            raise KeyboardInterrupt

    return write_interrupted


@pytest.mark.parametrize("phase", ["process", pytest.param("close", marks=pytest.mark.slow)])
@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_an_interrupt_of_a_sink_whose_files_count_when_they_are_closed_leaves_each_event_once(
    path: Path, tmp_path: Path, phase: str, step: int
) -> None:
    number, hit = 0, True
    while hit:
        number += step
        out, wanted = tmp_path / f"out{number}", [str(i) for i in range(number * 10, number * 10 + 6)]
        options = {**NO_ROLLS, **KINDS[1], "roll_count": 3, "batch_size": 2, "write_format": "Text"}
        with Channel(path, minimum_required_space=0) as channel:
            sink = opened(channel, out, **options)
            put(channel, *wanted)
            assert sink.process() is sink.process() is Status.READY
            interrupts = Interrupts(
                number,
                "sinks/bucket_files.py",
                "sinks/bucket_sink.py",
                "sinks/bucket_notes.py",
                "sinks/claimed_files.py",
                "sinks/written.py",
            )
            interrupts.run(sink.process if phase == "process" else sink.close)
            hit = interrupts.hit
            drain(sink)
            sink.close()
        with Channel(path, create=False) as channel:
            again = opened(channel, out, **options, now=lambda: 2.0)
            drain(again)
            again.close()
        named = [name for name in files(out) if name.endswith(".gz")]
        assert sorted(line for name in named for line in files(out)[name].splitlines()) == sorted(wanted), number
    assert number > 20


def test_a_file_that_a_crash_left_does_not_replace_another_one(
    open_channel: Callable[..., Channel], tmp_path: Path
) -> None:
    channel = open_channel(checkpoint_on_close=False)
    put(channel, "1")
    drain(opened(channel, tmp_path, **NO_ROLLS))
    channel.close()
    (tmp_path / "FlumeData.1000").write_text("another\n")
    channel = open_channel()
    with pytest.raises(StorageError, match=r"FlumeData\.1000, which is another file"):
        opened(channel, tmp_path, **NO_ROLLS)
    (tmp_path / "FlumeData.1000").rename(tmp_path / "another")
    opened(channel, tmp_path, **NO_ROLLS).close()
    assert files(tmp_path) == {"FlumeData.1000": "1\n", "another": "another\n"}


@pytest.mark.parametrize("changed", [{"in_use_prefix": "", "in_use_suffix": ".open"}, {"empty_in_use_suffix": True}])
def test_a_file_that_a_crash_left_gets_its_name_though_the_names_in_use_are_other_ones_at_the_restart(
    open_channel: Callable[..., Channel], tmp_path: Path, changed: dict[str, Any]
) -> None:
    channel = open_channel(checkpoint_on_close=False)
    put(channel, "1", "2")
    first = opened(channel, tmp_path, in_use_prefix="_", in_use_suffix=".tmp", **NO_ROLLS)
    drain(first)
    channel.close()
    channel = open_channel()
    put(channel, "3")
    sink = opened(channel, tmp_path, **changed, **{**NO_ROLLS, "now": lambda: 2.0})
    drain(sink)
    sink.close()
    assert files(tmp_path) == {"FlumeData.1000": "1\n2\n", "FlumeData.2000": "3\n"}


def test_a_compressed_file_without_a_name_in_use_does_not_count_before_it_is_whole(
    open_channel: Callable[..., Channel], tmp_path: Path
) -> None:
    """The process is killed when the note names the file that is closed now, and bytes of it are not written yet."""
    from spillable_stream.flow.sinks.destinations import FileStream, LocalFiles

    def dies(_: LocalFiles, stream: FileStream, *__: str) -> None:
        written = stream.raw.name
        stream.raw.close()
        os.truncate(written, 3)
        raise Killed

    options: dict[str, Any] = {
        **NO_ROLLS,
        "file_type": "CompressedStream",
        "codec": "gzip",
        "empty_in_use_suffix": True,
    }
    channel = open_channel(checkpoint_on_close=False)
    put(channel, "1", "2")
    first = opened(channel, tmp_path, **options)
    drain(first)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(LocalFiles, "publish", dies)
        patch.setattr(claimed_files.ClaimedFiles, "_discard", lambda *_: None)
        first.close()
    channel.close()
    channel = open_channel()
    sink = opened(channel, tmp_path, **{**options, "now": lambda: 2.0})
    drain(sink)
    sink.close()
    assert files(tmp_path) == {"FlumeData.2000.gz": "1\n2\n"}
