"""Sinks are asked again when Flume would ask them, or when events come."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from spillable_stream import Channel, Event
from spillable_stream.channel.take_transaction import TakeTransaction
from spillable_stream.errors import SpillableError, StorageError
from spillable_stream.flow import sink_runner
from spillable_stream.flow.late_channel import ChannelAwayError, LateChannel
from spillable_stream.flow.sink_processors import Failover, LoadBalance, SinkProcessor
from spillable_stream.flow.sink_runner import SinkRunner
from spillable_stream.flow.sinks.base import BatchSink, Taken
from spillable_stream.flow.sinks.written import WrittenEvents
from tests.support.late_channels import opened_late
from tests.support.producers import Mute
from tests.support.waiting import wait_until


class Kept(BatchSink):
    def __init__(self) -> None:
        super().__init__(1)
        self.bodies: list[bytes] = []
        self.failures: list[Exception | SystemExit] = []
        self.closed_by = 0

    def write(self, taken: Taken) -> None:
        if self.failures:
            raise self.failures.pop()
        self.bodies += taken.batch.column(1).to_pylist()

    def close(self) -> None:
        self.closed_by = threading.get_ident()


def test_a_sink_waits_as_in_flume_and_longer_after_a_failure(open_channel: Callable[..., Channel]) -> None:
    channel, sink = open_channel(), Kept()
    runner = SinkRunner([(sink, channel, WrittenEvents())], None, "a1.k1")
    runner.open()
    assert [runner.round() for _ in range(7)] == [1, 2, 3, 4, 5, 5, 5]
    assert runner.finished
    with channel.put_transaction() as tx:
        tx.put_many([Event(b"1"), Event(b"2")])
    sink.failures = [StorageError("no")]
    assert runner.round() == 5
    assert runner.trouble == "StorageError: no"
    assert not runner.finished
    assert [runner.round() for _ in range(4)] == [0, 0, 1, 2]
    assert sink.bodies == [b"1", b"2"]


def test_an_error_of_a_sink_whose_text_raises_ends_nothing(open_channel: Callable[..., Channel]) -> None:
    channel, sink = open_channel(), Kept()
    with channel.put_transaction() as tx:
        tx.put(Event(b"1"))
    runner = SinkRunner([(sink, channel, WrittenEvents())], None, "a1.k1")
    runner.open()
    sink.failures = [Mute()]
    assert runner.round() == 5
    assert runner.trouble == "Mute: (its text can't be told: ValueError)"
    assert runner.round() == 0
    assert sink.bodies == [b"1"]


def test_a_sink_wakes_for_events_and_is_closed_in_its_thread(open_channel: Callable[..., Channel]) -> None:
    channel, sink = open_channel(), Kept()
    runner = SinkRunner([(sink, channel, WrittenEvents())], None, "a1.k1")
    runner.start()
    wait_until(lambda: runner.finished)
    with channel.put_transaction() as tx:
        tx.put(Event(b"1"))
    wait_until(lambda: sink.bodies == [b"1"])
    assert runner.stop(30)
    assert sink.closed_by not in (0, threading.get_ident())


def test_a_sink_that_waits_for_the_note_of_another_one_starts_when_that_is_read_and_is_closed_if_it_never_is(
    open_channel: Callable[..., Channel], monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, written, sink, other = open_channel(), WrittenEvents(), Kept(), Kept()
    other.name, other.keeps_note = "a1.k2", True

    def runner(of: Kept = sink) -> SinkRunner:
        return SinkRunner([(of, channel, written)], None, of.name)

    before = runner(other)
    before.await_notes()
    monkeypatch.setattr("spillable_stream.flow.sink_runner._NOTES_SECONDS", 0.0)
    waiting = runner()
    with pytest.raises(SpillableError, match=r"a1\.k2 is still being opened"):
        waiting.start()
    assert waiting.stop(0) and sink.closed_by == threading.get_ident()
    monkeypatch.setattr("spillable_stream.flow.sink_runner._NOTES_SECONDS", 600.0)
    for let_it_start in (before.open, before.begin_stop):
        before.await_notes()
        waiting = runner()
        starting = threading.Thread(target=waiting.start)
        starting.start()
        let_it_start()
        starting.join(60)
        assert waiting.alive and waiting.stop(30)


def test_a_sink_does_not_wait_for_the_note_of_another_one_that_cannot_be_opened(
    open_channel: Callable[..., Channel],
) -> None:
    class Broken(Kept):
        keeps_note = True

        def open(self, channel: Channel, written: WrittenEvents | None = None) -> None:
            raise StorageError("the directory is gone")

    channel, written, first, second = open_channel(), WrittenEvents(), Broken(), Broken()
    first.name, second.name = "a1.k1", "a1.k2"
    before = SinkRunner([(first, channel, written), (second, channel, written)], None, "a1.g1")
    before.await_notes()
    with pytest.raises(StorageError):
        before.open()
    with pytest.raises(SpillableError, match=r"a1\.k1, a1\.k2 can't be opened yet"):
        written.require_notes(float("inf"))


def test_a_sink_that_is_stopped_as_it_begins_to_open_and_fails_is_expected_by_nobody(
    open_channel: Callable[..., Channel],
) -> None:
    class Broken(Kept):
        keeps_note = True

        def open(self, channel: Channel, written: WrittenEvents | None = None) -> None:
            raise StorageError("the directory is gone")

    channel, written, sink = open_channel(), WrittenEvents(), Broken()
    runner = SinkRunner([(sink, channel, written)], None, "a1.k1")
    runner.begin_stop()  # after its start has looked whether it should stop
    with pytest.raises(StorageError):
        runner.open()
    written.require_notes(0.0)


def test_a_channel_that_refuses_while_a_sink_waits_is_trouble_and_ends_nothing(
    open_channel: Callable[..., Channel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the store of an object channel that is away for a while."""
    channel, sink = open_channel(), Kept()
    waited, wait, go_on = threading.Event(), sink.wait, threading.Event()

    def refuse(seconds: float) -> bool:
        if not waited.is_set():
            waited.set()
            raise StorageError("the store is away")
        go_on.wait(30)
        return wait(seconds)

    monkeypatch.setattr(sink, "wait", refuse)
    runner = SinkRunner([(sink, channel, WrittenEvents())], None, "a1.k1")
    monkeypatch.setattr(sink_runner, "_MOST_MS", 10)
    runner.start()
    assert waited.wait(30)
    go_on.set()
    with channel.put_transaction() as tx:
        tx.put(Event(b"1"))
    wait_until(lambda: sink.bodies == [b"1"])
    wait_until(lambda: runner.trouble == "")
    assert runner.alive and not sink.closed_by
    assert runner.stop(30)


@pytest.mark.parametrize("is_optional", [False, True])
def test_a_store_that_is_away_while_a_sink_waits_is_trouble_unless_the_channel_is_optional(
    open_channel: Callable[..., Channel], monkeypatch: pytest.MonkeyPatch, is_optional: bool
) -> None:
    channel, sink = open_channel(), Kept()
    if is_optional:
        channel = opened_late(open_channel)
    runner = SinkRunner([(sink, channel, WrittenEvents())], None, "a1.k1")
    runner.open()
    runner._rest_or_wait(runner.round())

    def refuse(*_: object, **__: object) -> None:
        raise StorageError("the store is away")

    monkeypatch.setattr(runner._stopping, "wait", lambda _: True)
    with monkeypatch.context() as patch:
        patch.setattr(TakeTransaction, "take_batch", refuse)
        runner._rest_or_wait(1.0)
        assert runner.trouble == ("" if is_optional else "StorageError: the store is away")
        assert sink.counters.channel_read_fail == 1
    runner._rest_or_wait(0.01)
    assert runner.trouble == ""


def test_trouble_of_a_target_is_said_though_the_optional_channel_was_away_the_round_before(
    open_channel: Callable[..., Channel], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As where one outage takes the store of the channel and that of the target, and only the former comes back."""
    sink, channel = Kept(), opened_late(open_channel)
    with channel.put_transaction() as tx:
        tx.put(Event(b"1"))
    runner = SinkRunner([(sink, channel, WrittenEvents())], None, "a1.k1")
    runner.open()

    def refuse(*_: object) -> None:
        raise StorageError("it is away")

    with monkeypatch.context() as patch:
        patch.setattr(TakeTransaction, "commit", refuse)
        runner.round()
        assert (runner.failure, runner.trouble) == ("ChannelAwayError: the optional channel c2 is away: it is away", "")
    with monkeypatch.context() as patch:
        patch.setattr(sink, "process", refuse)  # before it asks its channel, as to undo what failed
        runner.round()
        assert runner.trouble == "StorageError: it is away"
        assert "the events are back in the channel, and are tried again: it is away" in caplog.text
    runner.round()
    assert (runner.trouble, sink.bodies) == ("", [b"1", b"1"])


class Refusing(Kept):
    """A sink that can't be opened while there is an error."""

    keeps_note = True
    error: Exception | SystemExit | None = None

    def open(self, channel: Channel, written: WrittenEvents | None = None) -> None:
        super().open(channel, written)
        if self.error is not None:
            raise self.error


def group_of(open_channel: Callable[..., Channel], tmp_path: Path) -> tuple[SinkRunner, list[Refusing]]:
    """Return a group of one sink of a required channel, and of two of an optional one that is open."""
    c1, c2, of_c2 = open_channel(), opened_late(lambda: Channel(tmp_path / "c2")), WrittenEvents()
    sinks, processor = [Refusing() for _ in range(3)], LoadBalance()
    for sink, name, channel in zip(sinks, ("k1", "k2", "k3"), ("c1", "c2", "c2"), strict=True):
        sink.name, sink.channel_name = name, channel
    processor.configure({sink.name: sink for sink in sinks})
    wired = [(sinks[0], c1, WrittenEvents()), (sinks[1], c2, of_c2), (sinks[2], c2, of_c2)]
    return SinkRunner(wired, processor, "a1.g"), sinks


def test_a_group_starts_and_is_in_no_trouble_where_an_optional_channel_is_open_and_away(
    open_channel: Callable[..., Channel],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(sink_runner, "_FAILED_SECONDS", 0.0)
    runner, sinks = group_of(open_channel, tmp_path)
    for away in (sinks[1:], sinks[2:], []):
        for sink in sinks:
            sink.error = ChannelAwayError("the optional channel c2 is away") if sink in away else None
        if not runner._opened:
            runner._prepare()
        for _ in range(3):
            runner.round()
        assert runner.trouble == "" and sinks[0].found_nothing
    assert sinks[1].found_nothing or sinks[2].found_nothing
    assert "it can't be opened" not in caplog.text
    runner.stop(30)
    runner.channels[1].close()


@pytest.mark.parametrize("error", [StorageError("the directory is gone"), ChannelAwayError("c2 is away")])
def test_a_sink_waits_for_the_note_of_another_one_that_cannot_be_opened_later_and_the_group_says_why(
    open_channel: Callable[..., Channel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(sink_runner, "_FAILED_SECONDS", 0.0)
    runner, sinks = group_of(open_channel, tmp_path)
    for sink in sinks[1:]:
        sink.error = ChannelAwayError("the optional channel c2 is away")
    runner._prepare()
    sinks[1].error, sinks[2].error = None, error
    for _ in range(3):
        runner.round()
    assert ("each sink of the channel c2 fails" in runner.trouble) == isinstance(error, StorageError)
    assert not sinks[1].found_nothing, "it may not take what the other one may have written"
    sinks[2].error = None
    for _ in range(3):
        runner.round()
    assert runner.trouble == "" and (sinks[1].found_nothing or sinks[2].found_nothing)
    runner.stop(30)
    runner.channels[1].close()


def test_a_sink_that_waits_for_the_note_of_one_whose_optional_channel_is_away_is_in_no_trouble(
    open_channel: Callable[..., Channel],
) -> None:
    written, (one, other) = WrittenEvents(), (Refusing(), Refusing())
    one.name, other.name = "a1.k1", "a1.k2"
    other.error = ChannelAwayError("the optional channel c2 is away")
    channel = opened_late(open_channel)
    runners = [SinkRunner([(sink, channel, written)], None, sink.name) for sink in (one, other)]
    for runner in runners:
        runner.await_notes()
    for runner in reversed(runners):
        with pytest.raises(ChannelAwayError):
            runner.start()
    other.error = None
    runners[1].start()
    runners[0].start()
    assert all(runner.stop(30) for runner in runners)


@pytest.mark.parametrize(("kind", "channels"), [(Failover, 1), (LoadBalance, 1), (LoadBalance, 2)])
def test_a_group_wakes_for_events_of_each_of_its_channels_though_some_of_its_sinks_were_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[SinkProcessor], channels: int
) -> None:
    monkeypatch.setattr(sink_runner, "_INCREMENT_MS", 600_000)
    monkeypatch.setattr(sink_runner, "_MOST_MS", 600_000)
    opened = [Channel(tmp_path / str(number)) for number in range(channels)]
    sinks, processor, written = [Kept(), Kept()], kind(), [WrittenEvents() for _ in opened]
    for number, sink in enumerate(sinks):
        sink.channel_name = str(number % channels)
    processor.configure({"k1": sinks[0], "k2": sinks[1]})
    wired = [(sink, opened[n % channels], written[n % channels]) for n, sink in enumerate(sinks)]
    runner = SinkRunner(wired, processor, "a1.g")
    runner.start()
    for number in range(4):
        wait_until(lambda: runner.finished)
        with opened[number % channels].put_transaction() as tx:
            tx.put(Event(b"%d" % number))
        wait_until(lambda: sum(len(sink.bodies) for sink in sinks) == number + 1)  # noqa: B023
    assert runner.stop(30)
    for channel in opened:
        channel.close()


def test_sinks_may_start_once_a_channel_of_theirs_is_open(
    open_channel: Callable[..., Channel],
) -> None:
    """That of a group may be required: nobody would see that its events are not taken."""
    away: Channel = LateChannel("c2", open_channel)  # type: ignore[assignment]
    one, two = (Kept(), away, WrittenEvents()), (Kept(), open_channel(), WrittenEvents())
    assert not SinkRunner([one], None, "a1.k1").may_start
    assert SinkRunner([two], None, "a1.k2").may_start
    assert SinkRunner([one, two], Failover(), "a1.g").may_start


def waits_of(runner: SinkRunner, monkeypatch: pytest.MonkeyPatch, most: int) -> list[tuple[int, float]]:
    """Let a runner rest after a round, and return which of its sinks it lets wait, and for how many seconds."""
    waits: list[tuple[int, float]] = []

    def wait(number: int, seconds: float) -> bool:
        waits.append((number, seconds))
        return len(waits) == most

    for number, sink in enumerate(runner.sinks):
        monkeypatch.setattr(sink, "wait", partial(wait, number))
    runner._rest(1.0)
    return waits


@pytest.mark.parametrize(
    ("kind", "channels", "waits"),
    [
        (Failover, 1, [(0, 0.5), (0, 0.5), (0, 0.5)]),
        (Failover, 2, [(0, 0.5), (0, 0.5), (0, 0.5)]),
        (LoadBalance, 2, [(0, 0.25), (1, 0.25), (0, 0.25)]),
        (LoadBalance, 4, [(0, 0.125), (1, 0.125), (2, 0.125)]),
    ],
)
def test_each_channel_that_was_found_empty_is_looked_at_twice_a_second_however_many_there_are(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[SinkProcessor],
    channels: int,
    waits: list[tuple[int, float]],
) -> None:
    """A failover asks its first sink alone, and waits at its channel: the others stand by."""
    with ExitStack() as stack:
        opened = [stack.enter_context(Channel(tmp_path / str(number))) for number in range(channels)]
        sinks, processor = [Kept() for _ in range(4)], kind()
        for number, sink in enumerate(sinks):
            sink.channel_name = str(number % channels)
        processor.configure({f"k{number}": sink for number, sink in enumerate(sinks)})
        wired = [(sink, opened[n % channels], WrittenEvents()) for n, sink in enumerate(sinks)]
        runner = SinkRunner(wired, processor, "a1.g")
        runner.open()
        runner.round()
        assert runner.finished
        assert waits_of(runner, monkeypatch, len(waits)) == waits
        runner.stop(30)


def test_a_channel_whose_only_sink_fails_is_trouble_of_its_group_though_another_channel_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Channel(tmp_path / "0") as one, Channel(tmp_path / "1") as other:
        with other.put_transaction() as tx:
            tx.put(Event(b"1"))
        sinks, processor = [Kept(), Kept()], LoadBalance()
        for sink, name in zip(sinks, "01", strict=True):
            sink.channel_name = name
        sinks[1].failures = [StorageError("the target is away")]
        processor.configure({"k1": sinks[0], "k2": sinks[1]})
        wired = [(sink, channel, WrittenEvents()) for sink, channel in zip(sinks, (one, other), strict=True)]
        runner = SinkRunner(wired, processor, "a1.g")
        runner.open()
        runner.round()
        assert runner.trouble == "each sink of the channel 1 fails: StorageError: the target is away"
        assert not runner.finished
        assert waits_of(runner, monkeypatch, 1) == [(0, 0.5)], "what comes to the other one need not wait"
        runner.round()
        assert (runner.trouble, sinks[1].bodies) == ("", [b"1"])
        runner.stop(30)


class Unreachable(Refusing):
    """A sink without a note, whose target can't be reached while there is an error."""

    keeps_note = False


@pytest.mark.parametrize("error", [StorageError("the server is down"), SystemExit("a mistake")], ids=repr)
@pytest.mark.parametrize("kind", [Failover, LoadBalance])
def test_a_group_starts_without_a_sink_that_has_no_note_and_cannot_be_opened_and_it_takes_its_place_later(
    open_channel: Callable[..., Channel],
    monkeypatch: pytest.MonkeyPatch,
    kind: type[SinkProcessor],
    error: Exception | SystemExit,
) -> None:
    """The others did not take over, so a failover whose first server was down at the start did not run at all."""
    monkeypatch.setattr(sink_runner, "_FAILED_SECONDS", 0.0)
    channel, written, processor = open_channel(), WrittenEvents(), kind()
    sinks = {name: Unreachable() for name in ("k1", "k2")}
    for name, sink in sinks.items():
        sink.name, sink.channel_name = name, "c1"
    processor.configure(sinks)
    runner = SinkRunner([(sink, channel, written) for sink in sinks.values()], processor, "a1.g")
    sinks["k1"].error = sinks["k2"].error = error
    with pytest.raises(type(error)):
        runner._prepare()
    sinks["k2"].error = None
    runner._prepare()
    with channel.put_transaction() as tx:
        tx.put_many([Event(b"%d" % i) for i in range(4)])
    for _ in range(2):
        runner.round()
    assert len(sinks["k2"].bodies) == 2 and not sinks["k1"].bodies
    sinks["k1"].error = None
    runner.round()
    assert sinks["k1"]._channel is not None and not runner._unopened
    assert runner.stop(30)


def test_a_group_does_not_start_without_a_sink_that_keeps_a_note_though_another_channel_has_sinks(
    tmp_path: Path,
) -> None:
    """That one may have written events which nobody else may write."""

    class Noting(Unreachable):
        keeps_note = True

    sinks: dict[str, Unreachable] = {"k1": Unreachable(), "k2": Noting()}
    processor = LoadBalance()
    processor.configure(sinks)
    sinks["k2"].error = StorageError("its disk is down")
    with ExitStack() as stack:
        channels = [stack.enter_context(Channel(tmp_path / name)) for name in sinks]
        wired = [(sink, channel, WrittenEvents()) for sink, channel in zip(sinks.values(), channels, strict=True)]
        runner = SinkRunner(wired, processor, "a1.g")
        with pytest.raises(StorageError, match="its disk is down"):
            runner._prepare()
        assert sinks["k1"].closed_by, "the next try opens it once more"
        sinks["k2"].error = None
        runner._prepare()
        assert not runner._unopened
        assert runner.stop(30)


def test_a_sink_whose_channel_is_there_again_does_not_wait_for_another_one_that_fails(
    open_channel: Callable[..., Channel],
) -> None:
    """It waited for up to a minute."""
    late = LateChannel("c2", open_channel)
    away: Channel = late  # type: ignore[assignment]
    sinks, processor = {name: Unreachable() for name in ("k1", "k2", "k3")}, LoadBalance()
    for name, sink in sinks.items():
        sink.name, sink.channel_name = name, "c2" if name == "k2" else "c1"
    processor.configure(sinks)
    sinks["k1"].error = StorageError("the server is down")
    channel, of_c1 = open_channel(), WrittenEvents()
    wired = [(sinks["k1"], channel, of_c1), (sinks["k2"], away, WrittenEvents()), (sinks["k3"], channel, of_c1)]
    runner = SinkRunner(wired, processor, "a1.g")
    runner._prepare()
    assert [one[0].name for one in runner._unopened] == ["k2", "k1"]
    late.begin()
    wait_until(lambda: late.is_open)
    runner.round()
    assert [one[0].name for one in runner._unopened] == ["k1"]
    assert runner.stop(30)


def test_a_sink_that_exits_has_failed_and_is_asked_again_in_its_thread(open_channel: Callable[..., Channel]) -> None:
    channel, sink = open_channel(), Kept()
    with channel.put_transaction() as tx:
        tx.put(Event(b"1"))
    runner = SinkRunner([(sink, channel, WrittenEvents())], None, "a1.k1")
    runner.open()
    sink.failures = [SystemExit("a mistake")]
    assert runner.round() == 5
    assert runner.trouble == "SystemExit: a mistake"
    assert runner.round() == 0
    assert sink.bodies == [b"1"]


def test_a_sink_that_exits_as_it_is_closed_leaves_no_other_one_of_its_group_open(
    open_channel: Callable[..., Channel], caplog: pytest.LogCaptureFixture
) -> None:
    class Exits(Kept):
        def close(self) -> None:
            raise SystemExit("a mistake")

    channel, processor, written = open_channel(), Failover(), WrittenEvents()
    sinks = {"k1": Exits(), "k2": Kept()}
    for name, sink in sinks.items():
        sink.name, sink.channel_name = name, "c1"
    processor.configure(sinks)
    runner = SinkRunner([(sink, channel, written) for sink in sinks.values()], processor, "a1.g")
    runner.start()
    assert runner.stop(60)
    assert sinks["k2"].closed_by and "k1: the sink could not be closed" in caplog.text
