"""Where delayed events go: to the newest side file of their stretch of time, or to a new one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest

from spillable_stream import Channel, CommitOutcomeUnknownError, Event, StorageError
from spillable_stream.channel.event_columns import batch_from_columns
from spillable_stream.engine import delayed_puts
from spillable_stream.engine.append_plan import AppendPlan, CommitResult
from spillable_stream.engine.delayed_puts import DelayedChunk, DelayedPuts, DelayPlan, chunks_of
from spillable_stream.engine.put_request import Put
from spillable_stream.format.dues import dues_frame, stretch_of
from spillable_stream.format.frame import Frame, FrameType, Payload
from spillable_stream.state.delays import Delays
from spillable_stream.storage.file import File
from tests.support.delays import clock_of, deliver_all, deliveries_of, put_late
from tests.support.events import peek

Open = Callable[..., Channel]


def chunk(stretch: int, first_ms: int, size_bytes: int = 8) -> DelayedChunk:
    put = Frame.of(FrameType.PUT, bytes(size_bytes), 1)
    return DelayedChunk(stretch, 10, first_ms, (dues_frame([first_ms]), put))


def plan_of(channel: Channel) -> DelayPlan:
    return DelayPlan(deliveries_of(channel).files, channel.engine().state.delays)


def test_events_of_one_stretch_go_to_one_file_of_several_transactions(open_channel: Open) -> None:
    plan = plan_of(open_channel())
    first = plan.place([chunk(0, 5), chunk(10, 15), chunk(0, 6)])
    second = plan.place([chunk(10, 11)])
    assert [(run.file, run.start, run.count, run.first_ms) for run in first] == [(1, 0, 2, 5), (2, 0, 1, 15)]
    assert [(run.file, run.start, run.count) for run in second] == [(2, first[1].end, 1)]


def test_a_file_that_is_full_is_followed_by_another(open_channel: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delayed_puts, "FULL_BYTES", 1000)
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


def test_events_that_wait_do_not_fit_memory(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=10, overflow_capacity=1, byte_capacity=1 << 20)
    request = Put([], delayed=DelayedPuts(deliveries_of(channel).files, [chunk(0, 1), chunk(0, 2)]))
    assert request.too_large(channel.engine().state, channel.path)


def _leave_unknown(*_: object) -> NoReturn:
    raise CommitOutcomeUnknownError("nobody knows")


def test_what_waits_has_a_size(open_channel: Open) -> None:
    puts = DelayedPuts(deliveries_of(open_channel()).files, [chunk(0, 1, 8), chunk(0, 2, 16)])
    assert puts.use() == (2, 24)
    assert puts.size_bytes() == 4 * 48 + 2 * 8 + 24


@pytest.mark.parametrize("kind", ["disk", "store"])
def test_events_that_are_due_at_once_keep_their_order_where_stretches_get_wider(tmp_path: Path, kind: str) -> None:
    """Many events of one put, due where a stretch is twice as wide as the one of those right before."""
    address = tmp_path / "c" if kind == "disk" else f"object+file://{tmp_path}/c"
    with Channel(address, transaction_capacity=20_000) as channel:
        clock, bodies = clock_of(channel), list[bytes]()
        with channel.put_transaction() as tx:
            for seconds in range(519, 531):  # at 524.288 s
                group = [b"%0200d" % (1_000 * seconds + i) for i in range(700)]
                tx.put_many([Event(body) for body in group], deliver_after=seconds)
                bodies += group
        clock.pass_by(1_000)
        deliver_all(channel)
        assert peek(channel) == bodies


def test_each_event_is_in_the_stretch_of_its_own_due_time() -> None:
    now_ms = 1_795_650_000_000
    stretch = partial(stretch_of, now_ms=now_ms)
    dues = sorted(now_ms + seconds * 500 for seconds in range(0, 9_000, 7) for _ in range(3))
    batch = batch_from_columns([b"x"] * len(dues), {})
    at = 0
    for chunk in chunks_of(dues, batch, 0, 0, "none", stretch):
        count = chunk.frames[1].count
        assert {stretch(due) for due in dues[at : at + count]} == {chunk[:2]}
        at += count
    assert at == len(dues)
