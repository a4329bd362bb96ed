"""A drain, and a run to the end, wait a while for an optional channel that is away."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from spillable_stream import Channel, flow
from spillable_stream.channel.consumer import Consumer
from spillable_stream.errors import StorageError
from spillable_stream.flow import running_flow, sink_runner, supervisor
from spillable_stream.flow.late_channel import is_open
from tests.support.events import put
from tests.support.flow_agents import agent, log, write, written
from tests.support.late_channels import OPTIONAL, away
from tests.support.waiting import wait_until


def test_a_run_to_the_end_comes_there_without_an_optional_channel_and_has_failed(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    away(place)
    text = (place / "flume.conf").read_text().replace("a1.sinks = k1 k2", "a1.sinks = k1")
    (place / "flume.conf").write_text(text)
    log(place, "1", "2")
    assert not agent(place).run(once=True)
    assert written(place) == ["1", "2"] and "c2: this channel was never open" in caplog.text


def goes_away(running: flow.Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the store of the optional channel of an agent be away, for its sinks and for whoever asks for its numbers."""

    def refuse(*_: object, **__: object) -> None:
        raise StorageError("the store is away")

    channel = running.channels["c2"].channel.require_open()  # type: ignore[attr-defined]
    monkeypatch.setattr(channel, "stats", refuse)
    monkeypatch.setattr(channel.consumer("default"), "claim", refuse)


@pytest.mark.parametrize("was_open", [False, True])
def test_a_drain_waits_a_while_for_an_optional_channel_that_is_away_whether_it_ever_was_open_or_not(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, was_open: bool
) -> None:
    monkeypatch.setattr(running_flow, "_AWAY_SECONDS", 1.0)
    away(place)
    if was_open:
        (place / "c2").unlink()
    running = agent(place)
    running.start()
    if was_open:
        goes_away(running, monkeypatch)
    log(place, "1")
    wait_until(lambda: written(place) == ["1"])
    began = time.monotonic()
    assert running.stop(drain=True)
    assert time.monotonic() - began >= 1.0
    assert "the channel c2 is away, and may keep what its sinks have yet to take" in caplog.text


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("was_open", [False, True])
def test_a_drain_takes_what_is_in_an_optional_channel_that_comes_back_meanwhile(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, was_open: bool
) -> None:
    monkeypatch.setattr(running_flow, "_AWAY_SECONDS", 600.0)
    monkeypatch.setattr(sink_runner, "_FAILED_SECONDS", 0.01)
    with Channel(place / "c2", minimum_required_space=0) as c2:
        put(c2, b"1")
    moved = place / "c2"
    if not was_open:
        moved = moved.rename(place / "elsewhere")
        away(place)
    write(place, OPTIONAL)
    running = agent(place)
    with monkeypatch.context() as patch:
        if was_open:
            patch.setattr(Consumer, "claim", refuse_to_claim)
        running.start()
        if was_open:
            goes_away(running, patch)
        stopping = threading.Thread(target=running.stop, kwargs={"drain": True})
        stopping.start()
        wait_until(lambda: "what the sinks have yet to take from c2 can't be told now" in caplog.text)
    if not was_open:
        (place / "c2").unlink()
        moved.rename(place / "c2")
    stopping.join(120)
    assert not stopping.is_alive() and written(place, "out2") == ["1"]


def refuse_to_claim(*_: object, **__: object) -> None:
    raise StorageError("the store is away")


def test_a_run_to_the_end_has_failed_where_an_optional_channel_is_away_then(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(running_flow, "_AWAY_SECONDS", 0.1)
    write(place, OPTIONAL)
    log(place, "1")
    running = agent(place)
    start = running.start

    def start_and_go_away() -> None:
        start()
        goes_away(running, monkeypatch)

    monkeypatch.setattr(running, "start", start_and_go_away)
    assert not running.run(once=True)
    assert written(place) == ["1"] and "c2: this channel was away at the end, and may keep events" in caplog.text


@pytest.mark.usefixtures("soon")
def test_a_drain_starts_the_sinks_of_an_optional_channel_that_was_opened_just_before(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_LOOK_SECONDS", 600.0)
    file = away(place)
    running = agent(place)
    running.start()
    file.unlink()
    wait_until(lambda: is_open(running.channels["c2"].channel))
    log(place, "1")
    wait_until(lambda: running.channels["c2"].channel.stats().channel_size == 1)
    assert running.stop(drain=True)
    assert written(place, "out2") == ["1"]
