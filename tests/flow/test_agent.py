"""An agent of a file, and one of objects: how it runs, and how it ends."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

import spillable_stream as ss
from spillable_stream import flow
from spillable_stream.channel.put_transaction import PutTransaction
from spillable_stream.channel.take_transaction import TakeTransaction
from spillable_stream.errors import NotAChannelError, OptionError
from spillable_stream.flow.sink_processors import Failover
from tests.support.flow_agents import CONFIGURATION, agent, log, write, written
from tests.support.waiting import wait_until


def test_a_file_of_flumes_runs_once_to_the_end(place: Path) -> None:
    log(place, *map(str, range(250)))
    assert agent(place).run(once=True)
    assert written(place, "out1") == written(place, "out2") == [str(i) for i in range(250)]
    log(place, "more")
    assert agent(place).run(once=True)
    assert written(place)[-1] == "more"
    assert len(written(place)) == 251


def test_a_run_to_the_end_waits_for_what_is_in_the_spool_of_a_channel(place: Path) -> None:
    in_store = "path = object+file://{dir}/store", "durability = local", "spool = {dir}/spool", "commitInterval = 1s"
    of_disk = "a1.channels.c1.checkpointDir = {dir}/c1\na1.channels.c1.minimumRequiredSpace = 0"
    write(place, CONFIGURATION.replace(of_disk, "\n".join(f"a1.channels.c1.{line}" for line in in_store)))
    for lines in (["1", "2"], ["3"]):
        log(place, *lines)
        assert agent(place).run(once=True)
        assert written(place)[-len(lines) :] == lines


def test_events_flow_while_it_runs_and_a_stop_closes_the_channels(place: Path, running: flow.Agent) -> None:
    log(place, "1")
    wait_until(lambda: written(place) == written(place, "out2") == ["1"])
    assert running.troubles() == {}
    assert running.stop()
    with pytest.raises(ss.ChannelClosedError):
        running.channels["c1"].channel.stats()
    assert running.stop()


def test_a_channel_whose_directory_was_moved_away_is_a_trouble_though_nothing_comes(
    place: Path, running: flow.Agent
) -> None:
    wait_until(lambda: running.troubles() == {})
    (place / "c1").rename(place / "elsewhere")
    trouble = running.troubles()["c1"]
    assert str(place / "c1") in trouble and "put it back, or start the agent again" in trouble
    (place / "elsewhere").rename(place / "c1")
    assert running.troubles() == {}


@pytest.mark.parametrize(("channels", "thread"), [("c1", "a1.r1"), ("c1 c2", "spillable-flow-put_0")])
def test_a_stop_beside_a_put_that_hangs_ends_everything_else_in_its_time(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, channels: str, thread: str
) -> None:
    """The disk of one channel does not answer."""
    go_on, hangs, commit = threading.Event(), threading.Event(), PutTransaction.commit

    def hang(transaction: PutTransaction) -> None:
        if threading.current_thread().name == thread:
            hangs.set()
            go_on.wait()
        commit(transaction)

    write(place, CONFIGURATION.replace("r1.channels = c1 c2", f"r1.channels = {channels}"))
    running = flow.Agent.from_properties(place / "flume.conf", name="a1", shutdown_timeout_seconds=3.0)
    running.start()
    monkeypatch.setattr(PutTransaction, "commit", hang)
    source = running.sources["r1"]
    try:
        log(place, "1")
        assert hangs.wait(60)
        assert not running.stop()
        assert source.source.counters.event_accepted_count == 0
        assert not any(sink.alive for sink in running.sinks.values())
        assert running.supervisor.late() == [source]
        assert "a1.r1 did not end within 3 s" in caplog.text
        if channels == "c1":
            with ss.Channel(place / "c2") as other:
                assert other.stats().groups["default"].lag == 0
    finally:
        go_on.set()
    wait_until(lambda: not any(t.name.endswith("-close") for t in threading.enumerate()))
    assert running.supervisor.late() == []


def test_a_stop_with_drain_empties_the_channels(place: Path) -> None:
    log(place, *map(str, range(1000)))
    with agent(place) as running:
        wait_until(lambda: running.sources["r1"].source.counters.event_accepted_count >= 1000)
        running.stop(drain=True)
    assert written(place) == [str(i) for i in range(1000)]


def test_what_cannot_be_started_is_tried_again_and_the_rest_runs(place: Path) -> None:
    (place / "out2").write_text("a file where a directory should be")
    log(place, "1")
    with agent(place) as running:
        wait_until(lambda: written(place) == ["1"])
        assert "a1.k2" in running.troubles()
        (place / "out2").unlink()
        running.supervisor._watched["a1.k2"].retry_at = 0
        running.supervisor.look()
        wait_until(lambda: written(place, "out2") == ["1"])
        assert running.troubles() == {}


def test_a_sink_does_not_write_what_another_one_of_its_channel_has_written_and_cannot_say_yet(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one was killed between its note and its commit, and its directory can't be written at the restart."""

    def kill(_: object) -> None:
        raise KeyboardInterrupt

    log(place, "1")
    with agent(place) as running:
        wait_until(lambda: written(place) == written(place, "out2") == ["1"])
        running.stop()
    with ss.Channel(place / "c1", minimum_required_space=0) as channel:
        with channel.put_transaction() as tx:
            tx.put(ss.Event(b"2"))
        sink = flow.FileRoll(place / "out1")
        sink.name = "a1.k1"
        sink.open(channel)
        with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
            killed.setattr(TakeTransaction, "commit", kill)
            sink.process()
    (place / "out1").rename(place / "away")
    (place / "out1").touch()
    more = "\na1.sinks.k3.type = file_roll\na1.sinks.k3.sink.directory = {dir}/out3\na1.sinks.k3.channel = c1\n"
    write(place, CONFIGURATION.replace("a1.sinks = k1 k2", "a1.sinks = k1 k2 k3") + more)
    with agent(place) as running:
        assert "a1.k1" in running.troubles()
        assert "a1.k1 can't be opened yet" in running.troubles().get("a1.k3", "")
        (place / "out1").unlink()
        (place / "away").rename(place / "out1")
        for name in ("a1.k1", "a1.k3"):
            running.supervisor._watched[name].retry_at = 0
        running.supervisor.look()
        running.supervisor._watched["a1.k3"].retry_at = 0
        running.supervisor.look()
        assert running.troubles() == {}
        log(place, "3")
        wait_until(lambda: sorted(written(place) + written(place, "out3")) == ["1", "2", "3"])


def test_a_run_to_the_end_fails_where_something_cannot_be_started(place: Path) -> None:
    (place / "out2").write_text("a file where a directory should be")
    assert not agent(place).run(once=True)


def test_a_directory_of_flumes_own_files_is_refused_and_not_touched(place: Path) -> None:
    (place / "c1").mkdir()
    (place / "c1" / "log-1.meta").write_bytes(b"x")
    with pytest.raises(NotAChannelError, match=r"log-1\.meta"):
        agent(place).start()
    assert [p.name for p in (place / "c1").iterdir()] == ["log-1.meta"]


@pytest.mark.parametrize("name", ["a2", "a1"])
def test_an_agent_without_a_part_that_can_run_is_refused_with_the_findings(place: Path, name: str) -> None:
    write(place, "a1.sources = r1\na1.sources.r1.type = netcat\n")
    with pytest.raises(OptionError, match="a1"):
        flow.Agent.from_properties(place / "flume.conf", name=name)


@pytest.mark.parametrize("old", ["r1.type = TAILDIR", "k2.type = file_roll"])
def test_a_run_to_the_end_fails_if_a_source_or_a_sink_of_the_file_could_not_run(place: Path, old: str) -> None:
    write(place, CONFIGURATION.replace(old, f"{old[:8]} no_such"))
    assert not flow.Agent.from_properties(place / "flume.conf", name="a1").run(once=True)


def test_a_run_to_the_end_that_is_asked_to_stop_does_not_wait_for_a_sink_that_fails(tmp_path: Path) -> None:
    class Broken(flow.BatchSink):
        def write(self, taken: object) -> None:
            asked.ask_to_stop()
            raise ss.StorageError("broken")

    with ss.Channel(tmp_path / "c", minimum_required_space=0) as channel:
        with channel.put_transaction() as tx:
            tx.put(ss.Event(b"x"))
        asked = flow.Agent(sinks=[Broken(10, "c")], channels={"c": channel})
        running = threading.Thread(target=asked.run, kwargs={"once": True}, daemon=True)
        running.start()
        running.join(30)
        assert not running.is_alive()
        assert channel.stats().channel_size == 1


def test_python_objects_are_the_other_door(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with ss.Channel(tmp_path / "c", minimum_required_space=0) as channel:
        processor = flow.ChannelProcessor({"ok": channel})
        seq = flow.Source(flow.Seq(total_events=25, batch_size=10), processor)
        running = flow.Agent(sources=[seq], sinks=[flow.FileRoll(tmp_path / "out1", channel="ok")])
        assert running.run(once=True)
    assert written(tmp_path) == [str(i) for i in range(25)]


def test_a_sink_of_a_channel_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="takes from the channel 'x'; there are none"):
        flow.Agent(sinks=[flow.Null(channel="x")])


def test_several_sinks_of_a_channel_share_its_events(tmp_path: Path) -> None:
    with ss.Channel(tmp_path / "c", minimum_required_space=0) as channel:
        with channel.put_transaction() as tx:
            tx.put_many([ss.Event(b"%d" % i) for i in range(100)])
        sinks = [flow.FileRoll(tmp_path / f"out{n}", channel="c", batch_size=3) for n in (1, 2)]
        assert flow.Agent(sinks=sinks, channels={"c": channel}).run(once=True)
    both = written(tmp_path, "out1") + written(tmp_path, "out2")
    assert sorted(map(int, both)) == list(range(100))


def test_a_group_fails_over_to_its_other_sink(tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("")

    class Broken(flow.BatchSink):
        def write(self, taken: object) -> None:
            raise ss.StorageError("broken")

    with ss.Channel(tmp_path / "c", minimum_required_space=0) as channel:
        with channel.put_transaction() as tx:
            tx.put_many([ss.Event(b"x")])
        sinks = {"bad": Broken(10, "c"), "good": flow.FileRoll(tmp_path / "out1", channel="c")}
        group = flow.SinkGroup(sinks, Failover(priority={"bad": 2, "good": 1}))
        assert flow.Agent(sink_groups=[group], channels={"c": channel}).run(once=True)
    assert written(tmp_path) == ["x"]


class Unsure(flow.Seq):
    """A source that can't say whether it is at its end."""

    @property
    def finished(self) -> bool:
        raise ZeroDivisionError

    @finished.setter
    def finished(self, value: bool) -> None:
        pass


def test_a_run_that_an_error_ends_leaves_nothing_running(tmp_path: Path) -> None:
    with ss.Channel(tmp_path / "c", minimum_required_space=0) as channel:
        source = flow.Source(Unsure(total_events=1), flow.ChannelProcessor({"c": channel}))
        failing = flow.Agent(sources=[source], sinks=[flow.Null(channel="c")])
        with pytest.raises(ZeroDivisionError):
            failing.run(once=True)
        assert not [runner.name for runner in (*failing.sources.values(), *failing.sinks.values()) if runner.alive]
