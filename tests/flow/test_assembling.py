from __future__ import annotations

import threading
from pathlib import Path

import pytest

import spillable_stream as ss
from spillable_stream.flow import assembling
from spillable_stream.flow.wired import Wired, agent_channel
from tests.support.waiting import wait_until


def test_a_try_that_is_under_way_has_not_closed_its_channel_and_does_so_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(assembling, "_LAST_SECONDS", 0.0)
    go_on, channel = threading.Event(), ss.Channel(tmp_path / "c")

    def assemble() -> Wired:
        go_on.wait()
        return Wired({"c": agent_channel(channel)})

    attempt = assembling.Assembling("c", "the channel c is still being opened again", Wired(), assemble)
    assert not attempt.drop()
    assert "the channel c is still being opened again" in caplog.text
    go_on.set()
    wait_until(lambda: channel._open.is_left)
    assert attempt.drop()


def test_a_stop_waits_for_a_try_that_takes_a_moment(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A stop right after a change of a file failed, and warned of a loss."""
    go_on, channel = threading.Event(), ss.Channel(tmp_path / "c")

    class Ends(assembling.Assembling):
        def hangs(self) -> bool:
            go_on.set()
            return super().hangs()

    def assemble() -> Wired:
        go_on.wait()
        return Wired({"c": agent_channel(channel)})

    assert Ends("c", "the channel c is still being opened again", Wired(), assemble).drop()
    assert channel._open.is_left and not caplog.text
