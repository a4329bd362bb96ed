"""A worker's process lets others see what it does."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from spillable_stream import Channel, StorageError
from spillable_stream.channel.stats import WorkerStats
from spillable_stream.channel.worker_status import decode_status
from spillable_stream.engine.local.local_worker_statuses import LocalStatusWriter
from spillable_stream.engine.worker_statuses import SILENT_SECONDS, StatusPace
from spillable_stream.workers import reporting
from spillable_stream.workers.reporting import Reporting, one_line
from tests.support import pythons
from tests.support.events import numbered, put
from tests.support.one_module import replace_in
from tests.support.waiting import wait_until

Open = Callable[..., Channel]
NEW = WorkerStats("g", "new", True, 0, 0, 0, 0, 0, 0, 0)


class FakeWriter:
    pace = StatusPace(change_seconds=1.0, alive_seconds=6.0, silent_seconds=SILENT_SECONDS)

    def __init__(self) -> None:
        self.said: list[WorkerStats | None] = []
        self.closed = False

    def write(self, value: bytes) -> None:
        self.said.append(decode_status(value))

    def close(self, last: bytes | None) -> None:
        if last is not None:
            self.write(last)
        self.closed = True


def seen_at(path: Path) -> tuple[WorkerStats, ...]:
    with Channel(path, create=False, readonly=True) as channel:
        return channel.stats().workers


def test_it_is_said_once_a_second_while_it_changes_and_otherwise_as_a_sign_of_life(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, stats, writer = [0.0], [NEW], FakeWriter()
    replace_in(monkeypatch, reporting, "time", monotonic=lambda: now[0])
    found = Reporting(writer, lambda: stats[0])

    def says(at: float, done: int) -> int:
        now[0], stats[0], before = at, replace(NEW, done_events=done), len(writer.said)
        found.look()
        assert found._has_written(60)
        return len(writer.said) - before

    assert [says(0.0, 0), says(0.5, 1), says(1.1, 1), says(2.2, 1), says(3.3, 1), says(7.2, 1)] == [1, 0, 1, 0, 0, 1]
    stats[0] = replace(NEW, state="ended")
    found.close()
    assert writer.closed and writer.said[-1] is not None and writer.said[-1].state == "ended"
    found.look()
    found.close()
    assert len(writer.said) == 4


def test_neither_a_look_nor_the_end_waits_for_storage_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "_LAST_SECONDS", 0.01)
    now, writer, may_write = [0.0], FakeWriter(), threading.Event()
    replace_in(monkeypatch, reporting, "time", monotonic=lambda: now[0])
    monkeypatch.setattr(writer, "write", lambda value: may_write.wait(60) and FakeWriter.write(writer, value))
    found = Reporting(writer, lambda: NEW)

    def look_and_close() -> None:
        for now[0] in (0.0, 10.0, 20.0):
            found.look()
        found.close()

    looking = threading.Thread(target=look_and_close, daemon=True)
    looking.start()
    looking.join(5)
    is_stuck = looking.is_alive()
    may_write.set()
    looking.join(60)
    assert not is_stuck and found._has_written(60) and len(writer.said) == 1, "it begins no other write meanwhile"


def test_storage_that_can_not_be_written_to_ends_no_worker(open_channel: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(writer: LocalStatusWriter, value: bytes) -> None:
        raise StorageError("the thread of the status can't start")

    monkeypatch.setattr(LocalStatusWriter, "write", refuse)
    channel = open_channel()
    put(channel, *numbered(0, 3))
    worker = channel.worker("g", lambda event: None)
    worker.run(until_empty=True)
    assert worker.stats().done_events == 3 and not seen_at(channel.path)
    channel.another().consumer("g", owner_timeout_seconds=0).close()


def test_a_forked_child_says_nothing() -> None:
    writer = FakeWriter()
    found = Reporting(writer, lambda: NEW)
    found.leave()
    found.close()
    assert writer.closed and not writer.said


def test_an_error_is_one_line_that_is_not_long() -> None:
    assert one_line(ValueError("two\nlines")) == "ValueError: two lines"
    assert len(one_line(ValueError("x" * 1000))) == 200


def test_a_read_only_handle_sees_how_each_groups_last_worker_ended(open_channel: Open, tmp_path: Path) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 3))

    def fail(event: object) -> None:
        raise ValueError("no\namount")

    with channel.worker("done", lambda event: None) as first:
        first.run(until_empty=True)
    put(channel, *numbered(3, 3))
    with channel.worker("bad", fail, max_attempts=1, dead_letter=tmp_path / "d") as second:
        second.run(until_empty=True)
    bad, done = seen_at(channel.path)
    assert (done.group, done.state, done.done_events, done.last_error) == ("done", "ended", 3, "")
    assert (bad.group, bad.dead_letter_events, bad.failed_calls) == ("bad", 3, 3)
    assert bad.last_error == "ValueError: no amount" and bad.process == f"pid {os.getpid()} on {os.uname().nodename}"
    assert not any(worker.is_troubled for worker in (bad, done))
    assert [worker.process for worker in channel.stats().workers] == ["", ""], "its own handle has them itself"


PROGRAM = """
import sys
import spillable_stream as ss
with ss.Channel(sys.argv[1]) as channel:
    channel.worker("g", lambda event: None).run()
"""


@pytest.mark.slow
def test_a_worker_that_is_killed_is_seen_as_one_that_died_until_the_next_one_runs(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 3))
    process = pythons.Popen(
        [sys.executable, "-c", PROGRAM, str(channel.path)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    try:
        wait_until(lambda: [w.done_events for w in seen_at(channel.path)] == [3])
        (running,) = seen_at(channel.path)
        assert (running.state, running.is_healthy) == ("running", True)
        assert running.process.startswith(f"pid {process.pid} on ")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    (died,) = seen_at(channel.path)
    assert (died.state, died.done_events, died.is_troubled) == ("died", 3, True)
    with channel.worker("g", lambda event: None) as worker:
        worker.run(until_empty=True)
    assert [w.state for w in seen_at(channel.path)] == ["ended"]
