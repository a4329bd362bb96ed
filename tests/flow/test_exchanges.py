from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import spillable_stream as ss
from spillable_stream import flow
from spillable_stream.channel import option_change, several_channels
from spillable_stream.engine.append_plan import AppendPlan, CommitResult
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
        wait_until(lambda: not running.wait(0.001) and builds.opened and builds.opened[0]._open.has_ended)
        assert running._exchanges is not None
        wait_until(lambda: not running.wait(0.001) and running._exchanges._reloading is None)  # type: ignore[union-attr]
        assert running.channels["c2"].channel is of_reload
        log(place, "1")
        wait_until(lambda: written(place, "out2") == ["1"])


def test_a_file_that_changes_while_another_content_of_it_hangs_is_read_and_the_hanging_component_is_named(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It stayed unread until the disk answered, so nobody could correct the file that named a disk which hung."""
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
        monkeypatch.setattr(assembling, "_LONG_SECONDS", 0.0)
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


def test_files_are_read_no_more_while_too_many_contents_of_them_hang_and_are_read_as_soon_as_one_ends(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each change of a file cost one more thread for as long as a disk hung."""
    monkeypatch.setattr(assembling, "_LONG_SECONDS", 0.0)
    monkeypatch.setattr(exchanges, "_AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(exchanges, "_MOST_BESIDE", 2)
    with agent(place) as running:
        builds = HeldBuilds(monkeypatch)
        changed(place, running)
        begin(running, builds)

        def replace_by(path: str) -> None:
            write(place, CONFIGURATION.replace("checkpointDir = {dir}/c2", f"checkpointDir = {{dir}}/{path}"))

        builds.hangs.clear()
        replace_by("c4")
        begin(running, builds)
        replace_by("c5")
        said = "what 2 earlier contents of its files said is still being assembled"
        wait_until(lambda: not running.wait(0.001) and said in caplog.text)
        with pytest.raises(ss.StorageError, match=said):
            running.reload()
        replace_by("c6")
        assert not running.wait(0.25)
        assert len([t for t in threading.enumerate() if t.name == "a1-assemble"]) == 2
        builds.go_on.set()
        wait_until(lambda: not running.wait(0.001) and str(running.channels["c2"].channel.path).endswith("c6"))
    assert caplog.text.count("can't be read yet") == 1


def test_an_interrupted_reload_leaves_nothing_open(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with agent(place) as running:
        builds = HeldBuilds(monkeypatch)
        write(place, CONFIGURATION.replace("checkpointDir = {dir}/c2", "checkpointDir = {dir}/c3"))

        def interrupted(attempt: assembling.Assembling, seconds: float) -> bool:
            assert builds.hangs.wait(60)
            raise KeyboardInterrupt

        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(assembling.Assembling, "wait", interrupted)
            running.reload()
        builds.go_on.set()
        assert running._exchanges is not None
        (attempt,) = running._exchanges._beside
        wait_until(lambda: attempt.is_closed)
        assert not builds.opened


def test_options_are_as_before_where_they_were_being_stored_for_files_that_were_given_up(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    class Hangs(option_change._StoreOptions):
        def plan(self, plan: AppendPlan) -> CommitResult:
            begun.set()
            go_on.wait()
            return super().plan(plan)

    with agent(place) as running:
        capacity = running.channels["c2"].channel.put_options().transaction_capacity
        monkeypatch.setattr(option_change, "_StoreOptions", Hangs)
        write(place, CONFIGURATION + f"a1.channels.c2.transactionCapacity = {capacity - 1}\n")
        reloading = threading.Thread(target=running.reload)
        reloading.start()
        assert begun.wait(60)
        running.ask_to_stop()
        reloading.join(60)
        go_on.set()
        assert running._exchanges is not None
        (attempt,) = running._exchanges._beside
        wait_until(lambda: attempt.is_closed)
        assert running.channels["c2"].channel.put_options().transaction_capacity == capacity


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


def test_files_that_were_read_before_others_that_are_taken_by_now_are_read_again(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent ran from what its files had said, and no longer say."""
    with agent(place) as running:
        before, builds = running.channels["c2"], HeldBuilds(monkeypatch)
        write(place, CONFIGURATION.replace("checkpointDir = {dir}/c2", "checkpointDir = {dir}/c3"))
        reloading = threading.Thread(target=running.reload)
        reloading.start()
        assert builds.hangs.wait(60)
        monkeypatch.undo()
        write(place, CONFIGURATION)
        assert running.reload() is not None
        builds.go_on.set()
        reloading.join(60)
        assert running.channels["c2"] is before
