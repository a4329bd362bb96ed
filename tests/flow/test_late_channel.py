"""An agent runs without an optional channel that can't be opened, and has it as soon as it can."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream import Channel, flow
from spillable_stream.channel.consumer import Consumer
from spillable_stream.errors import ChannelBusyError, ChannelError, LockTimeoutError, NotAChannelError, StorageError
from spillable_stream.flow import assembly, sink_runner, wired
from spillable_stream.flow.assembly import opened_processor
from spillable_stream.flow.late_channel import ChannelAwayError, LateChannel, asking, is_open
from spillable_stream.flow.loading import load
from spillable_stream.format.batch import EVENT_SCHEMA
from tests.support.events import peek
from tests.support.flow_agents import CONFIGURATION, agent, log, write, written
from tests.support.flow_batches import batch_of
from tests.support.late_channels import OPTIONAL, away, opened_late
from tests.support.no_threads import no_threads
from tests.support.waiting import wait_until

# ── an agent ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("soon")
def test_an_agent_runs_without_an_optional_channel_and_fills_it_when_it_can_be_opened(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = away(place)
    with agent(place) as running:
        assert not is_open(running.channels["c2"].channel)
        log(place, "1")
        wait_until(lambda: written(place) == ["1"])
        wait_until(
            lambda: "the optional channel c2 did not get 1 event: c2 is not open yet, and is tried" in caplog.text
        )
        assert running.troubles() == {}, "the agent works, and the log says what c2 misses"
        file.unlink()
        wait_until(lambda: is_open(running.channels["c2"].channel))
        running.supervisor.look()  # which starts its sink
        log(place, "2")
        wait_until(lambda: (written(place), written(place, "out2")) == (["1", "2"], ["2"]))
        wait_until(lambda: running.troubles() == {})
    said = [r.getMessage() for r in caplog.records if "c2 can't be opened, so the others run without" in r.getMessage()]
    assert len(said) == 1 and f"{place}/c2" in said[0]
    assert "the optional channel c2 is open now" in caplog.text and "a1.k2" not in caplog.text


GROUP = (
    OPTIONAL
    + """
a1.sinkgroups = g1
a1.sinkgroups.g1.sinks = k2 k1
a1.sinkgroups.g1.processor.type = {kind}
"""
)
SECOND = """
a1.sinks = k1 k2 k3
a1.sinkgroups.g1.sinks = k2 k3 k1
a1.sinks.k3.type = file_roll
a1.sinks.k3.sink.directory = {dir}/out3
a1.sinks.k3.channel = c2
"""
COMPRESSED = """
a1.sinks.{sink}.type = hdfs
a1.sinks.{sink}.hdfs.path = {dir}/{out}
a1.sinks.{sink}.hdfs.fileType = CompressedStream
a1.sinks.{sink}.hdfs.codeC = gzip
a1.sinks.{sink}.hdfs.rollInterval = 1
"""


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("kind", ["failover", "load_balance"])
def test_a_group_of_sinks_takes_from_an_open_channel_while_an_optional_one_is_away_and_then_from_both(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    monkeypatch.setattr(sink_runner, "_FAILED_SECONDS", 0.01)
    file = away(place)
    write(place, GROUP.replace("{kind}", kind) + SECOND)
    with agent(place) as running:
        log(place, "1")
        wait_until(lambda: written(place) == ["1"] and "channel c2 did not get 1 event" in caplog.text)
        assert running.troubles() == {}, "the agent works without the optional channel"
        file.unlink()
        wait_until(lambda: is_open(running.channels["c2"].channel))
        log(place, "2")
        both = lambda: written(place, "out2") + written(place, "out3")  # noqa: E731
        wait_until(lambda: both() == ["2"] and running.troubles() == {})
    assert "it can't be opened" not in caplog.text, "the first of the two needs the note of the second"


def test_a_group_that_a_reload_starts_takes_from_its_other_channels_while_an_open_optional_one_is_away(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_runner, "_FAILED_SECONDS", 0.01)
    write(place, OPTIONAL)
    consumer = Channel.consumer

    def refuse(channel: Channel, *given: object, **named: object) -> object:
        if Path(channel.path) == place / "c2":
            raise StorageError("the store is away")
        return consumer(channel, *given, **named)  # type: ignore[arg-type]

    with agent(place) as running:
        log(place, "1")
        wait_until(lambda: written(place) == written(place, "out2") == ["1"])
        with monkeypatch.context() as patch:
            patch.setattr(Channel, "consumer", refuse)
            write(place, GROUP.replace("{kind}", "load_balance"))
            assert running.reload() is not None
            log(place, "2")
            wait_until(lambda: written(place) == ["1", "2"])
            assert running.troubles() == {}
        wait_until(lambda: written(place, "out2") == ["1", "2"] and running.troubles() == {})


@pytest.mark.usefixtures("soon")
def test_a_sink_that_cannot_be_opened_when_its_optional_channel_is_keeps_the_others_of_its_group_from_nothing(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sink_runner, "_FAILED_SECONDS", 0.01)
    file = away(place)
    write(place, GROUP.replace("{kind}", "load_balance"))
    with agent(place) as running:
        log(place, "1")
        wait_until(lambda: written(place) == ["1"])
        (place / "out2").write_text("no directory")
        file.unlink()
        wait_until(lambda: "the sink k2 failed, and the next one is asked: it can't be opened: " in caplog.text)
        log(place, "2")
        wait_until(lambda: written(place) == ["1", "2"])
        wait_until(lambda: "each sink of the channel c2 fails" in str(running.troubles()))
        (place / "out2").unlink()
        wait_until(lambda: "2" in written(place, "out2") and running.troubles() == {})


def lines(place: Path, out: str) -> list[str]:
    """Return the lines that a sink has written, compressed or not."""
    files = [f for f in sorted((place / out).glob("[!.]*")) if f.suffix != ".tmp"]  # such a file goes at any moment
    texts = [gzip.decompress(f.read_bytes()) if f.suffix == ".gz" else f.read_bytes() for f in files]
    return [line for text in texts for line in text.decode().splitlines()]


@pytest.mark.parametrize(("channel", "sink", "out"), [("c1", "k1", "out1"), ("c2", "k2", "out2")])
@pytest.mark.parametrize("asked", ["claim", "read", "commit"])
@pytest.mark.parametrize("kind", ["", COMPRESSED])
def test_a_channel_that_goes_away_under_its_sink_is_trouble_unless_it_is_optional(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    channel: str,
    sink: str,
    out: str,
    asked: str,
    kind: str,
) -> None:
    monkeypatch.setattr(sink_runner, "_FAILED_SECONDS", 0.01)
    write(place, OPTIONAL + kind.replace("{sink}", sink).replace("{out}", out))
    do = getattr(Consumer, asked)

    def refuse(consumer: Consumer, *given: object, **named: object) -> object:
        if Path(consumer._engine.path) == place / channel:
            raise StorageError("the store is away")
        return do(consumer, *given, **named)

    with agent(place) as running:
        log(place, "1")
        wait_until(lambda: lines(place, "out1") == lines(place, "out2") == ["1"])
        with monkeypatch.context() as patch:
            patch.setattr(Consumer, asked, refuse)
            log(place, "2")
            wait_until(lambda: f"a1.{sink}: the events are back in the channel, and are tried again" in caplog.text)
            wait_until(lambda: (f"a1.{sink}" in running.troubles()) == (channel == "c1"))
            assert running.troubles().keys() <= {"a1.k1"}
        wait_until(lambda: lines(place, "out1") == lines(place, "out2") == ["1", "2"] and running.troubles() == {})


def test_a_start_does_not_wait_for_an_optional_channel_whose_store_hangs_and_a_stop_does_not_either(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write(place, OPTIONAL)
    answers, closed, opens = threading.Event(), threading.Event(), assembly._opened

    def open_when_it_answers(*arguments: object) -> Channel:
        assert answers.wait(60)
        channel = opens(*arguments)  # type: ignore[arg-type]
        close = channel.close
        monkeypatch.setattr(channel, "close", lambda: (close(), closed.set()))
        return channel

    monkeypatch.setattr(assembly, "_opened", open_when_it_answers)
    monkeypatch.setattr(wired, "_START_SECONDS", 0.01)
    with agent(place) as running:
        assert "the optional channel c2 is still being opened" in caplog.text
        log(place, "1")
        wait_until(lambda: written(place) == ["1"])
        assert running.stop()
    answers.set()
    assert closed.wait(60), "a channel that is opened after the end stays open"


def test_an_agent_does_not_start_without_a_channel_that_another_source_requires(place: Path) -> None:
    away(place)
    with (place / "flume.conf").open("a") as f:
        f.write("a1.sources = r1 r2\na1.sources.r2.type = seq\na1.sources.r2.channels = c2\n")
    with pytest.raises(NotAChannelError, match="c2"):
        agent(place).start()


def test_an_agent_does_not_start_without_the_channel_of_its_dead_letters_though_it_is_optional_too(place: Path) -> None:
    away(place)
    with (place / "flume.conf").open("a") as f:
        f.write("a1.sinks.k1.deadLetter = c2\n")
    with pytest.raises(NotAChannelError, match="c2"):
        agent(place).start()


def test_a_reload_that_requires_a_channel_that_is_not_open_is_refused(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    away(place)
    with agent(place) as running:
        write(place, CONFIGURATION)
        assert running.reload() is None
        assert "the changed configuration is refused" in caplog.text and "c2 is not a channel" in caplog.text
        log(place, "1")
        wait_until(lambda: written(place) == ["1"])


@pytest.mark.parametrize("is_optional", [False, True])
def test_what_a_reload_makes_of_a_channel_decides_whether_it_is_trouble_that_it_is_away(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_optional: bool
) -> None:
    monkeypatch.setattr(sink_runner, "_FAILED_SECONDS", 0.01)
    claim = Consumer.claim

    def refuse(consumer: Consumer, *given: object, **named: object) -> object:
        if Path(consumer._engine.path) == place / "c2":
            raise StorageError("the store is away")
        return claim(consumer, *given, **named)  # type: ignore[arg-type]

    write(place, CONFIGURATION if is_optional else OPTIONAL)
    with agent(place) as running:
        write(place, OPTIONAL if is_optional else CONFIGURATION)
        assert running.reload() is not None
        log(place, "1")
        wait_until(lambda: written(place) == written(place, "out2") == ["1"])
        with monkeypatch.context() as patch:
            patch.setattr(Consumer, "claim", refuse)
            wait_until(lambda: "a1.k2: the events are back in the channel, and are tried again" in caplog.text)
            wait_until(lambda: ("a1.k2" in running.troubles()) != is_optional)


def test_a_reload_opens_an_optional_channel_that_is_elsewhere_now(place: Path) -> None:
    away(place)
    with agent(place) as running:
        write(place, OPTIONAL.replace("{dir}/c2", "{dir}/other"))
        assert running.reload() is not None
        log(place, "1")
        wait_until(lambda: written(place, "out2") == ["1"])


def test_events_are_sent_through_a_source_without_its_optional_channel(place: Path) -> None:
    away(place)
    config = load(place / "flume.conf").agents["a1"]
    with opened_processor(config, "r1", {}) as processor:
        processor.process(batch_of(b"x"))
    with Channel(place / "c1", create=False) as c1:
        assert peek(c1) == [b"x"]


@pytest.mark.usefixtures("soon")
def test_a_channel_that_turns_out_to_be_another_one_of_its_source_gets_nothing_twice(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Channel(place / "c1") as c1:
        late = LateChannel("c2", lambda: Channel(place / "c1"))
        selector = flow.Replicating(optional=["c2"])
        channels: dict[str, Channel] = {"c1": c1, "c2": late}  # type: ignore[dict-item]
        with flow.ChannelProcessor(channels, selector=selector, producer="p") as processor:
            processor.process(batch_of(b"1"), number=1)
            late.begin()
            wait_until(lambda: late.is_open)
            processor.left_out._said_ms.clear()
            processor.process(batch_of(b"2"), number=2)
            assert peek(c1) == [b"1", b"2"] and "c1 and c2 are one channel" in caplog.text
        late.close()


def test_an_optional_channel_that_answers_late_is_said_to_be_open_then(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write(place, OPTIONAL)
    answers, opens = threading.Event(), assembly._opened

    def open_when_it_answers(*arguments: object) -> Channel:
        assert answers.wait(60)
        return opens(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(assembly, "_opened", open_when_it_answers)
    monkeypatch.setattr(wired, "_START_SECONDS", 0.01)
    with agent(place) as running:
        answers.set()
        wait_until(lambda: "the optional channel c2 is open now" in caplog.text)
        log(place, "1")
        wait_until(lambda: "1" in written(place, "out2") or running.troubles())


def is_left() -> bool:
    """Tell whether no thread tries to open the channel any more."""
    return not any(thread.name == "c2-open" for thread in threading.enumerate())


# ── a channel ───────────────────────────────────────────────────────────────────────────────────


def test_a_channel_that_is_not_open_refuses_whatever_is_asked_of_it_and_says_why() -> None:
    def refuse() -> Channel:
        raise StorageError("the store is away")

    late = LateChannel("c2", refuse)
    asked: list[Callable[[], object]] = [late.put_transaction, lambda: late.path, lambda: late.stats()]
    for ask in asked:
        with pytest.raises(ChannelError, match="c2 is not open yet, but is being opened"):
            ask()
    late.begin()
    late.wait(time.monotonic() + 60, lambda: False, 0.2)
    for ask in asked:
        with pytest.raises(ChannelError, match="c2 is not open yet, and is tried again: the store is away"):
            ask()
    late.close()
    wait_until(is_left)


def test_a_channel_that_cannot_be_closed_after_the_end_is_said_to_be_open_still_and_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    closed, opened = threading.Event(), list[Channel]()
    channel = Channel(place / "c2")

    def refuse() -> None:
        raise StorageError("the store is away")

    def open_channel() -> Channel:
        opened.append(channel)
        assert closed.wait(60)
        return channel

    late = LateChannel("c2", open_channel)
    late.begin()
    wait_until(lambda: opened != [])
    late.close()
    with monkeypatch.context() as patch:
        patch.setattr(channel, "close", refuse)
        closed.set()
        wait_until(is_left)
    channel.close()
    assert "the optional channel c2 was opened after its agent had ended, and could not be closed: the" in caplog.text
    assert opened == [channel] and "tried again" not in caplog.text


def test_a_channel_that_cannot_be_opened_after_the_end_is_not_said_to_be_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    closed, opened = threading.Event(), list[str]()

    def open_channel() -> Channel:
        opened.append("c2")
        assert closed.wait(60)
        raise StorageError("the store is away")

    late = LateChannel("c2", open_channel)
    late.begin()
    wait_until(lambda: opened != [])
    late.close()
    closed.set()
    wait_until(is_left)
    assert opened == ["c2"] and caplog.text == ""


@pytest.mark.usefixtures("soon")
def test_an_optional_channel_that_cannot_delay_its_events_is_not_opened_and_the_log_says_why(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    columns = [*EVENT_SCHEMA, pa.field("kind", pa.string_view())]
    Channel(place / "c2", schema=pa.schema(columns)).close()
    write(place, OPTIONAL + "a1.channels.c2.deliverAfter = 1h\n")
    with agent(place) as running:
        assert not is_open(running.channels["c2"].channel)
        assert "the optional channel c2 can't be opened" in caplog.text and "can't delay rows" in caplog.text
        log(place, "1")
        wait_until(lambda: "the optional channel c2 did not get 1 event: c2 is not open yet, and is" in caplog.text)
        wait_until(lambda: written(place) == ["1"])


@pytest.mark.parametrize("error", [ChannelBusyError("x"), LockTimeoutError("x"), StorageError("x")], ids=repr)
def test_an_optional_channel_that_keeps_everybody_waiting_is_away_and_a_required_one_is_not(
    place: Path, error: ChannelError
) -> None:
    with Channel(place / "c1") as channel:
        for used, raised in ((opened_late(lambda: channel), ChannelAwayError), (channel, type(error))):
            with pytest.raises(raised), asking(used):
                raise error


@pytest.mark.usefixtures("soon")
def test_an_agent_runs_what_a_reload_starts_though_there_is_no_thread_to_open_an_optional_channel(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The reload raised, when what had run was ended and nothing else was started."""
    write(place, CONFIGURATION)
    with agent(place) as running:
        write(place, OPTIONAL)
        with no_threads(named="c2-open"):
            assert running.reload()
            log(place, "1")
            wait_until(lambda: written(place) == ["1"])
        assert "the optional channel c2 can't be opened" in caplog.text
        log(place, "2")
        wait_until(lambda: is_open(running.channels["c2"].channel))
        running.supervisor.look()  # which starts its sink
        log(place, "3")
        wait_until(lambda: written(place, "out2")[-1:] == ["3"])
