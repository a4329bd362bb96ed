from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import spillable_stream as ss
from spillable_stream import flow
from spillable_stream.flow import assembling, assembly
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
    wait_until(lambda: builds.opened and builds.opened[0]._open.is_left)


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


def test_files_for_which_there_is_no_thread_are_refused_and_the_agent_runs_as_it_did(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with agent(place) as running:
        before = running.channels["c2"]
        changed(place, running)
        with no_threads():
            wait_until(lambda: not running.wait(0.001) and "the changed configuration is refused" in caplog.text)
        assert "can't start" in caplog.text
        assert running.channels["c2"] is before
