"""Where delayed events go: to the newest side file of their stretch of time, or to a new one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from spillable_stream import Channel, CommitOutcomeUnknownError, StorageError
from spillable_stream.engine import delay_plan
from spillable_stream.engine.append_plan import AppendPlan, CommitResult
from spillable_stream.engine.delay_plan import DelayPlan
from spillable_stream.format.frame import Payload
from spillable_stream.state.delays import Delays
from spillable_stream.storage.file import File
from tests.support.delays import chunk, clock_of, deliveries_of, put_late

Open = Callable[..., Channel]


def plan_of(channel: Channel) -> DelayPlan:
    return DelayPlan(deliveries_of(channel).files, channel.engine().state.delays)


def test_events_of_one_stretch_go_to_one_file_of_several_transactions(open_channel: Open) -> None:
    plan = plan_of(open_channel())
    first = plan.place([chunk(0, 5), chunk(10, 15), chunk(0, 6)])
    second = plan.place([chunk(10, 11)])
    assert [(run.file, run.start, run.count, run.first_ms) for run in first] == [(1, 0, 2, 5), (2, 0, 1, 15)]
    assert [(run.file, run.start, run.count) for run in second] == [(2, first[1].end, 1)]


def test_a_file_that_is_full_is_followed_by_another(open_channel: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delay_plan, "FULL_BYTES", 1000)
    channel = open_channel()
    runs = plan_of(channel).place([chunk(0, 5, 600) for _ in range(5)])
    assert [(run.file, run.count) for run in runs] == [(1, 2), (2, 2), (3, 1)]
    for _ in range(5):
        put_late(channel, 10_000, bytes(100))
    assert [file.events for file in channel.engine().state.delays.files.values()] == [2, 2, 1]


def test_nothing_is_added_before_what_was_delivered(open_channel: Open) -> None:
    channel = open_channel()
    clock = clock_of(channel)
    clock.now_ms -= clock.now_ms % (1 << 16)
    put_late(channel, 10, b"a")
    put_late(channel, 20, b"b")
    clock.pass_by(15)
    assert deliveries_of(channel).deliver()
    put_late(channel, 1, b"c")
    assert list(channel.engine().state.delays.files) == [1]
    clock.pass_by(-15)
    put_late(channel, 5, b"d")
    assert list(channel.engine().state.delays.files) == [1, 2]


def test_the_number_of_a_file_that_is_there_is_not_used(open_channel: Open, path: Path) -> None:
    channel = open_channel()
    for number in (1, 2):
        (path / "data" / f"delayed-{number:06d}").write_bytes(b"left by a crash")
    put_late(channel, 10, b"a")
    assert list(channel.engine().state.delays.files) == [3]


def test_a_transaction_that_cannot_be_planned_leaves_nothing_in_a_file(open_channel: Open) -> None:
    """Files are named in the order of their numbers, and each from its start on."""
    channel = open_channel()
    plan, files = AppendPlan(channel.engine().state), deliveries_of(channel).files

    def failing(plan: AppendPlan) -> CommitResult:
        plan.delay(files).place([chunk(0, 5), chunk(20, 25)])
        raise StorageError("the disk is not there")

    with pytest.raises(StorageError):
        plan.attempt(failing)
    assert plan.delays is None
    first = plan.delay(files).place([chunk(10, 15)])
    with pytest.raises(StorageError):
        plan.attempt(failing)
    second = plan.delay(files).place([chunk(20, 25), chunk(0, 5), chunk(10, 16)])
    delays = Delays()
    delays.apply(first, [])
    delays.apply(second, [])
    assert delays.events == 4
    assert [(file.number, file.begin_ms, file.holes) for file in delays.files.values()] == [
        (1, 10, ()),
        (2, 20, ()),
        (3, 0, ()),
    ]


@pytest.mark.parametrize("of", ["log-", "delayed-"])
def test_a_put_that_fails_for_want_of_space_gives_its_own_back(
    open_channel: Open, path: Path, monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    channel = open_channel()
    put_late(channel, 1_000, b"a")
    before = {file.name: file.stat().st_size for file in (path / "data").glob("delayed-*")}
    write = File.write

    def refuse(self: File, offset: int, buffers: Sequence[Payload]) -> int:
        if Path(self.path).name.startswith(of):
            raise StorageError("the disk is full")
        return write(self, offset, buffers)

    with monkeypatch.context() as full:
        full.setattr(File, "write", refuse)
        for seconds in (1_000, 1_000_000):
            with pytest.raises(StorageError):
                put_late(channel, seconds, b"b")
    assert {file.name: file.stat().st_size for file in (path / "data").glob("delayed-*")} == before
    put_late(channel, 1_000, b"b")
    put_late(channel, 1_000_000, b"c")
    assert sorted(file.name for file in (path / "data").glob("delayed-*")) == ["delayed-000001", "delayed-000002"]


def test_a_file_whose_commit_may_count_yet_is_left(
    open_channel: Open, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel()
    monkeypatch.setattr(channel.engine().log.tiers.disk, "append", _leave_unknown)
    with pytest.raises(CommitOutcomeUnknownError):
        put_late(channel, 10, b"a")
    assert [file.name for file in (path / "data").glob("delayed-*")] == ["delayed-000001"]


def _leave_unknown(*_: object) -> NoReturn:
    raise CommitOutcomeUnknownError("nobody knows")
