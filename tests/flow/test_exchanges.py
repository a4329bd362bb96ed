from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import spillable_stream as ss
from spillable_stream import flow
from spillable_stream.channel import several_channels
from spillable_stream.flow import assembling, assembly, exchanges
from spillable_stream.flow.wired import AgentChannel
from tests.support.flow_agents import CONFIGURATION, agent, log, write, written
from tests.support.no_threads import no_threads
from tests.support.waiting import wait_until


class HeldBuilds:
    """Holds the opening of an agent's channels, as a disk that hangs does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hangs, self.go_on = threading.Event(), threading.Event()
        self.opened: list[ss.Channel] = []
        self._build = assembly.build_channels
        monkeypatch.setattr(assembly, "build_channels", self.build)

    def build(self, *arguments: Any) -> dict[str, AgentChannel]:
        self.hangs.set()
        self.go_on.wait()
        found = self._build(*arguments)
        self.opened.extend(one.channel for one in found.values())
        return found


def changed(place: Path, running: flow.Agent) -> None:
    """Let c2 be another channel, and the agent look for that at once."""
    running.reload_seconds = 0.0
    write(place, CONFIGURATION.replace("checkpointDir = {dir}/c2", "checkpointDir = {dir}/c3"))


def begin(running: flow.Agent, builds: HeldBuilds) -> None:
    """Wait until the agent assembles what has changed; a short wait may be over before it looks at the files."""
    wait_until(lambda: not running.wait(0.001) and builds.hangs.is_set())


def test_a_wait_ends_in_time_though_a_changed_file_is_assembled_from_a_disk_that_hangs(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(assembling, "_LONG_SECONDS", 0.0)
    with agent(place) as running:
        builds = HeldBuilds(monkeypatch)
        changed(place, running)
        begin(running, builds)
        said = "the changed configuration of the agent a1 is still being assembled after 0 s"
        wait_until(lambda: not running.wait(0.001) and said in caplog.text)
        assert not running.wait(0.001) and caplog.text.count(said) == 1
        log(place, "1")
        wait_until(lambda: written(place, "out2") == ["1"])
        assert not running.stop(), "what is being opened is not closed yet"
    builds.go_on.set()
    assert running._exchanges is not None
    wait_until(running._exchanges.drop)
    assert not builds.opened, "nobody would run it"


def test_files_that_were_assembled_beside_what_runs_no_more_are_assembled_again(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with agent(place) as running:
        builds = HeldBuilds(monkeypatch)
        changed(place, running)
        begin(running, builds)
        monkeypatch.undo()
        assert running.reload()
        of_reload = running.channels["c2"].channel
        builds.go_on.set()
        wait_until(lambda: not running.wait(0.001) and builds.opened and builds.opened[0]._open.is_left)
        assert running._exchanges is not None
        wait_until(lambda: not running.wait(0.001) and not running._exchanges.is_reloading)  # type: ignore[union-attr]
        assert running.channels["c2"].channel is of_reload
        log(place, "1")
        wait_until(lambda: written(place, "out2") == ["1"])


def test_a_file_that_changes_while_another_content_of_it_hangs_is_read_and_the_hanging_component_is_named(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It stayed unread until the disk answered, so nobody could correct the file that named a disk which hung."""
    monkeypatch.setattr(assembling, "_LONG_SECONDS", 0.0)
    with agent(place) as running:
        opening, go_on = threading.Event(), threading.Event()
        open_one = several_channels.WantedChannel.open

        def hang(wanted: several_channels.WantedChannel, create: bool) -> ss.Channel:
            if str(wanted.path).endswith("c3"):
                opening.set()
                go_on.wait()
            return open_one(wanted, create)

        monkeypatch.setattr(several_channels.WantedChannel, "open", hang)
        changed(place, running)
        wait_until(lambda: not running.wait(0.001) and opening.is_set())
        wait_until(lambda: not running.wait(0.001) and "after 0 s, at the channel c2; check its disk" in caplog.text)
        write(place, CONFIGURATION.replace("checkpointDir = {dir}/c2", "checkpointDir = {dir}/c4"))
        wait_until(lambda: not running.wait(0.001) and str(running.channels["c2"].channel.path).endswith("c4"))
        log(place, "1")
        wait_until(lambda: written(place, "out2") == ["1"])
        running.shutdown_timeout_seconds = 1.0
        assert not running.stop(), "what hangs is not closed"
    go_on.set()
    assert running._exchanges is not None
    wait_until(running._exchanges.drop)
    assert not (place / "c3").exists()


def test_files_for_which_there_is_no_thread_are_read_when_there_is_one_and_the_agent_runs_as_it_did(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They stayed unread until somebody changed them once more."""
    monkeypatch.setattr(exchanges, "_AGAIN_SECONDS", 0.0)
    with agent(place) as running:
        before = running.channels["c2"]
        changed(place, running)
        with no_threads():
            wait_until(lambda: not running.wait(0.001) and "can't be read yet" in caplog.text)
            assert not running.wait(0.25)
        assert "can't start" in caplog.text and caplog.text.count("can't be read yet") == 1
        assert running.channels["c2"] is before
        wait_until(lambda: not running.wait(0.001) and running.channels["c2"] is not before)


def test_an_agent_can_be_stopped_while_a_reload_hangs_for_which_somebody_waits(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait and the stop waited for it, so a SIGTERM ended nothing."""
    found: list[object] = []
    with agent(place) as running:
        builds = HeldBuilds(monkeypatch)
        running.reload_seconds = None
        write(place, CONFIGURATION.replace("checkpointDir = {dir}/c2", "checkpointDir = {dir}/c3"))
        reloading = threading.Thread(target=lambda: found.append(running.reload()))
        reloading.start()
        assert builds.hangs.wait(60)
        assert not running.wait(0.001)
        assert not running.stop(), "what is being opened is not closed yet"
        reloading.join(60)
        assert found == [None]
    builds.go_on.set()
    assert running._exchanges is not None
    wait_until(running._exchanges.drop)
    assert not builds.opened
