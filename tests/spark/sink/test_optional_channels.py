"""A channel that is required for no event holds a stream up for a second, and no longer, whatever hangs there."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

import pytest

from spillable_stream.engine.local.local_plans import LocalStagePlan
from spillable_stream.engine.local.local_port import LocalPort
from spillable_stream.errors import StorageError
from spillable_stream.flow import bulkhead as module
from spillable_stream.flow.bulkhead import Bulkhead
from spillable_stream.log.staged_file import StagedFileWriter
from spillable_stream.spark.sink import optional_channel, optional_channels
from spillable_stream.spark.sink.flow_writer import FlowStreamWriter
from tests.spark.sink.test_flow_plan import plan
from tests.spark.sink.test_flow_writer import staged, stored
from tests.support.waiting import wait_until

LARGE = b"INFO " + b"a" * (1 << 20)
ROWS = [b"INFO a", b"ERROR b"]
OTHERS = {"ok": [b"INFO a"], "errors": [b"ERROR b"], "dead": []}


class Gate:
    """Lets calls for the channel ``may`` pass while it is open."""

    def __init__(self) -> None:
        self.opens = threading.Event()
        self.met = 0

    def pass_for(self, path: object) -> None:
        if Path(str(path)).name == "may":
            self.met += 1
            assert self.opens.wait(60)

    def wait_in_time(self, calls: Collection[Future[Any]], _: float) -> None:
        """Wait until all calls have ended, or one of them hangs."""
        wait_until(lambda: all(call.done() for call in calls) or (self.met > 0 and not self.opens.is_set()))


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    monkeypatch.setattr(optional_channel, "_bulkheads", {})
    monkeypatch.setattr(module, "_LIMIT_SECONDS", 600.0)
    found = Gate()
    monkeypatch.setattr(module, "wait", found.wait_in_time)
    yield found
    found.opens.set()
    wait_until(lambda: not any(bulkhead.is_busy for bulkhead in optional_channel._bulkheads.values()))


def hang(monkeypatch: pytest.MonkeyPatch, gate: Gate, step: str) -> None:
    """Let a step of a write to ``may`` wait for the gate."""
    owner, name, path_of = {
        "open": (optional_channels, "visit", lambda path: path),
        "ask": (LocalStagePlan, "ask_here", lambda stage: stage.layout.path),
        "finish": (StagedFileWriter, "finish", lambda file: str(file.path.parent).removesuffix("-data")),
        "commit": (LocalPort, "publish", lambda port: port._engine.path),
    }[step]
    do: Callable[..., Any] = getattr(owner, name)

    def when_open(self: Any, *arguments: Any, **named: Any) -> Any:
        gate.pass_for(path_of(self))
        return do(self, *arguments, **named)

    monkeypatch.setattr(owner, name, when_open)


@pytest.mark.parametrize("step", ["open", "ask", "commit"])
def test_the_others_get_a_micro_batch_while_an_optional_channel_hangs_and_it_gets_the_next_one_when_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate, step: str, caplog: pytest.LogCaptureFixture
) -> None:
    plan(tmp_path)
    with monkeypatch.context() as patch:
        hang(patch, gate, step)
        writer = FlowStreamWriter(plan(tmp_path))
        writer.commit(staged(writer, ROWS), 1)
        again = FlowStreamWriter(plan(tmp_path))  # which passes over what hangs still
        again.commit(staged(again, [b"INFO c"], batch_id=2), 2)
        assert gate.met == 1
        found = {name: stored(tmp_path)[name] for name in OTHERS}
        assert found == {**OTHERS, "ok": [b"INFO a", b"INFO c"]}
        says = "may not get" if step == "commit" else "does not get"
        assert f"the optional channel may {says} the batch 1" in caplog.text
        gate.opens.set()
        wait_until(lambda: not any(bulkhead.is_busy for bulkhead in optional_channel._bulkheads.values()))
    writer = FlowStreamWriter(plan(tmp_path))
    writer.commit(staged(writer, [b"INFO d"], batch_id=3), 3)
    assert stored(tmp_path)["may"] == [*([b"INFO a"] if step == "commit" else []), b"INFO d"]


def test_a_stream_whose_optional_channel_cannot_be_opened_stores_its_batches_in_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "may").write_text("not a channel")
    writer = FlowStreamWriter(plan(tmp_path))
    with caplog.at_level(logging.WARNING):
        writer.commit(staged(writer, ROWS), 1)
    assert "the optional channel may does not get the batch 1 (1 event): it can't be opened: " in caplog.text
    (tmp_path / "may").unlink()
    writer = FlowStreamWriter(plan(tmp_path))
    writer.commit(staged(writer, [b"INFO c"], batch_id=2), 2)
    assert stored(tmp_path) == {**OTHERS, "ok": [b"INFO a", b"INFO c"], "may": [b"INFO c"]}


def test_an_optional_channel_has_all_rows_of_a_micro_batch_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    writer = FlowStreamWriter(plan(tmp_path))
    first = staged(writer, [b"INFO a"])
    with monkeypatch.context() as patch:
        hang(patch, gate, "ask")
        second = staged(writer, [b"INFO b"])
        gate.opens.set()
    writer.commit([*first, *second], 1)
    assert (stored(tmp_path)["ok"], stored(tmp_path)["may"]) == ([b"INFO a", b"INFO b"], [])
    assert "does not get the batch 1 (2 events): its rows can't be staged: " in caplog.text


def test_large_rows_of_an_optional_channel_are_staged_and_a_failed_write_leaves_none_of_them(tmp_path: Path) -> None:
    large = b"INFO " + b"a" * (1 << 20)
    writer = FlowStreamWriter(plan(tmp_path))

    def staged_files() -> list[Path]:
        return [path for path in tmp_path.glob("may*/**/*") if path.is_file() and path.stat().st_size > len(large)]

    before = len(staged_files())
    found = staged(writer, [large])
    assert len(staged_files()) > before
    writer.abort(found, 1)
    assert len(staged_files()) == before
    writer.commit(staged(writer, [large]), 1)
    assert stored(tmp_path)["may"] == [large]


def staged_of_may(directory: Path) -> list[str]:
    return [path.name for path in directory.glob("may*/**/segment.query*")]


@pytest.mark.parametrize("first_fails", [False, True])
def test_of_a_micro_batch_that_a_task_cannot_stage_no_staged_file_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first_fails: bool
) -> None:
    writer = FlowStreamWriter(plan(tmp_path))
    with monkeypatch.context() as patch:
        staged_before = [] if first_fails else staged(writer, [LARGE])
        assert len(staged_of_may(tmp_path)) == len(staged_before)
        fill_disk_of_may(patch)
        found = [*staged_before, *staged(writer, [LARGE])]
    if first_fails:
        found += staged(writer, [LARGE])
    writer.commit(found, 1)
    assert (stored(tmp_path)["ok"], stored(tmp_path)["may"]) == ([LARGE, LARGE], [])
    assert staged_of_may(tmp_path) == []


def fill_disk_of_may(patch: pytest.MonkeyPatch) -> None:
    """Let each write of a staged file of ``may`` fail when a part of it is there."""
    write = StagedFileWriter.write

    def fail(file: StagedFileWriter, frames: Any) -> None:
        write(file, frames)
        if "may-data" in str(file.path):
            raise StorageError("the disk is full")

    patch.setattr(StagedFileWriter, "write", fail)


@pytest.mark.parametrize("step", ["ask", "finish"])
def test_what_is_staged_after_it_was_waited_for_is_removed_when_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate, step: str
) -> None:
    plan(tmp_path)
    hang(monkeypatch, gate, step)
    writer = FlowStreamWriter(plan(tmp_path))
    found = staged(writer, [LARGE])
    assert found[0].optional["may"].staged is None and gate.met == 1
    gate.opens.set()
    wait_until(lambda: not any(bulkhead.is_busy for bulkhead in optional_channel._bulkheads.values()))
    assert staged_of_may(tmp_path) == []
    writer.commit(found, 1)
    assert (stored(tmp_path)["ok"], stored(tmp_path)["may"]) == ([LARGE], [])


def test_a_call_that_ends_just_as_nobody_waits_for_it_any_more_leaves_no_staged_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate
) -> None:
    writer, give_up = FlowStreamWriter(plan(tmp_path)), Bulkhead.give_up
    hang(monkeypatch, gate, "ask")

    def give_up_as_it_ends(bulkhead: Bulkhead, begun: Any) -> bool:
        is_late = give_up(bulkhead, begun)
        gate.opens.set()
        wait_until(lambda: not bulkhead.is_busy)
        return is_late

    with monkeypatch.context() as patch:
        patch.setattr(Bulkhead, "give_up", give_up_as_it_ends)
        found = staged(writer, [LARGE])
    assert found[0].optional["may"].staged is None
    assert staged_of_may(tmp_path) == []


@pytest.mark.parametrize("step", ["open", "ask", "finish", "commit"])
def test_a_step_into_a_channel_that_was_slow_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate, step: str
) -> None:
    plan(tmp_path)

    def answer(calls: Collection[Future[Any]], _: float) -> None:
        if calls:
            gate.opens.set()
            wait(calls, 60)

    monkeypatch.setattr(module, "wait", answer)
    monkeypatch.setattr(module, "_LIMIT_SECONDS", -1.0)  # nothing ends in time
    for bulkhead in optional_channel._bulkheads.values():
        bulkhead.is_slow = True
    hang(monkeypatch, gate, step)
    writer = FlowStreamWriter(plan(tmp_path))
    writer.commit(staged(writer, [LARGE]), 1)
    assert gate.met and stored(tmp_path)["may"] == [LARGE]
