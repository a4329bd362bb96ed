"""Sources end before sinks, and sinks before channels; nothing waits for what hangs."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

import spillable_stream as ss
from spillable_stream import flow
from spillable_stream.errors import StorageError
from spillable_stream.flow.sinks.base import Taken
from spillable_stream.flow.sources.base import BatchProcessor, Status
from tests.support.flow_batches import batch_of
from tests.support.waiting import wait_until


class OnRequest(flow.BatchSink):
    """A sink that writes a batch of one event when it is told to."""

    def __init__(self, channel: str) -> None:
        super().__init__(1, channel)
        self.begun = 0
        self.go_on = threading.Semaphore(0)

    def write(self, taken: Taken) -> None:
        self.begun += 1
        self.go_on.acquire()


def feed_exec() -> tuple[Any, Callable[[], None]]:
    return flow.Exec("yes", batch_size=2, batch_timeout=10), lambda: None


def feed_udp() -> tuple[Any, Callable[[], None]]:
    source = flow.NetcatUdp(0, bind="127.0.0.1")

    def feed() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            for i in range(100):
                client.sendto(b"%d" % i, ("127.0.0.1", source.port))

    return source, feed


def feed_http() -> tuple[Any, Callable[[], None]]:
    source = flow.Http(0, bind="127.0.0.1")

    def post() -> None:
        with suppress(httpx.TransportError):  # the last ones find nobody
            httpx.post(f"http://127.0.0.1:{source.port}", content='[{"body": "x"}]', timeout=60, trust_env=False)

    def feed() -> None:
        for _ in range(40):
            threading.Thread(target=post, daemon=True).start()

    return source, feed


@pytest.mark.parametrize("make", [feed_exec, feed_udp, feed_http])
def test_a_stop_beside_a_slow_sink_and_a_full_channel_takes_one_batch_of_the_sink(
    tmp_path: Path, make: Callable[[], tuple[Any, Callable[[], None]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The channel would let each put wait for ten minutes, and far more is read than it has room for."""
    monkeypatch.setattr("spillable_stream.flow.running_flow._LAST_WAIT_SECONDS", 0.0)
    source, feed = make()
    full = {"memory_capacity": 0, "overflow_capacity": 1, "transaction_capacity": 1, "keep_alive": 600.0}
    with ss.Channel(tmp_path / "c1", minimum_required_space=0, **full) as channel:
        sink = OnRequest("c1")
        processor = flow.ChannelProcessor({"c1": channel}, producer="a1.r1")
        running = flow.Agent(sources=[flow.Source(source, processor)], sinks=[sink], name="a1")
        running.start()
        (runner,) = running.sinks.values()
        stopped: list[bool] = []
        stop = threading.Thread(target=lambda: stopped.append(running.stop()), daemon=True)
        try:
            feed()
            wait_until(lambda: sink.begun == 1 and source.counters.event_received_count > 1)
            stop.start()
            wait_until(runner._stopping.is_set)  # the sources have ended
        finally:
            sink.go_on.release()
            running.stop()
        stop.join(60)
        assert (stopped, sink.begun) == ([True], 1)


class HangsAtStart(flow.EventSource):
    """A source whose address does not answer."""

    alive = True

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go_on = threading.Event(), threading.Event()

    def start(self, processor: BatchProcessor) -> None:
        self.begun.set()
        self.go_on.wait()

    def stop(self) -> None: ...


@pytest.mark.parametrize("by", [flow.Agent.stop, flow.Agent.ask_to_stop])
def test_a_start_that_hangs_is_not_waited_for_once_the_agent_is_asked_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: Callable[[flow.Agent], object]
) -> None:
    monkeypatch.setattr("spillable_stream.flow.supervisor._START_SECONDS", 600.0)
    source = HangsAtStart()
    with ss.Channel(tmp_path / "c1", minimum_required_space=0) as channel:
        sources = [flow.Source(source, flow.ChannelProcessor({"c1": channel}), name="r1")]
        agent = flow.Agent(sources=sources, name="a1", shutdown_timeout_seconds=0.01)
        running = threading.Thread(target=agent.run, daemon=True)
        ending = threading.Thread(target=by, args=(agent,), daemon=True)
        try:
            running.start()
            assert source.begun.wait(60)
            ending.start()
            for thread in (running, ending):
                thread.join(60)
            assert not running.is_alive() and not ending.is_alive()
        finally:
            source.go_on.set()
        wait_until(lambda: not agent.supervisor.late())


class HangsAtRestart(flow.EventSource):
    """A source that ends, and hangs as it is started again: its address does not answer."""

    def __init__(self) -> None:
        super().__init__()
        self.starts, self.go_on, self.is_stopped = 0, threading.Event(), False

    def start(self, processor: BatchProcessor) -> None:
        self.starts += 1
        if self.starts > 1:
            self.go_on.wait(60)

    def stop(self) -> None:
        self.is_stopped = True

    @property
    def alive(self) -> bool:
        return False


def test_a_stop_beside_a_source_that_hangs_as_it_is_started_again_ends_everything_else_in_its_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = HangsAtRestart()
    with ss.Channel(tmp_path / "c1", minimum_required_space=0) as channel:
        sources = [flow.Source(source, flow.ChannelProcessor({"c1": channel}), name="r1")]
        running = flow.Agent(sources=sources, sinks=[flow.Null(channel="c1")], name="a1", shutdown_timeout_seconds=0.01)
        running.start()
        running.supervisor.look()
        running.supervisor._watched["a1.r1"].retry_at = 0
        looking = threading.Thread(target=running.supervisor.look, daemon=True)
        looking.start()
        wait_until(lambda: source.starts == 2)
        stopped: list[bool] = []
        stop = threading.Thread(target=lambda: stopped.append(running.stop()), daemon=True)
        stop.start()
        stop.join(30)
        source.go_on.set()
        assert stopped == [False]
        assert "a1.r1 did not end within 0.01 s" in caplog.text
        wait_until(lambda: source.is_stopped and not running.supervisor.late())
        looking.join(30)


def test_a_stop_ends_the_source_its_interceptors_and_then_the_sink_each_with_its_batch_done(tmp_path: Path) -> None:
    ends: list[str] = []
    working = threading.Barrier(3, timeout=30)  # a source in a poll, a sink in a write, and the test

    class Slow(flow.PolledSource):
        def poll(self, processor: BatchProcessor) -> Status:
            working.wait()
            processor.process(batch_of(b"last"))
            ends.append("poll")
            return Status.BACKOFF

        def close(self) -> None:
            ends.append("source")

    class Last(flow.Interceptor):
        def intercept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
            return batch

        def close(self) -> None:
            ends.append("interceptor")

    class SlowSink(flow.BatchSink):
        def write(self, taken: Taken) -> None:
            working.wait()
            wait_until(lambda: "interceptor" in ends)  # it is not asked to stop before
            ends.append("write")

        def close(self) -> None:
            ends.append("sink")

    with ss.Channel(tmp_path / "c", minimum_required_space=0) as channel:
        with channel.put_transaction() as tx:
            tx.put(ss.Event(b"first"))
        processor = flow.ChannelProcessor({"c1": channel}, [Last()])
        running = flow.Agent(sources=[flow.Source(Slow(), processor)], sinks=[SlowSink(1, channel="c1")])
        running.start()
        working.wait()
        assert running.stop()
        assert ends == ["poll", "source", "interceptor", "write", "sink"]
        assert channel.stats().channel_size == 1  # the first was written, the last is kept


class Refusing(flow.Interceptor):
    """An interceptor of a user's that can't be closed."""

    def intercept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch

    def close(self) -> None:
        raise ValueError("the connection broke")


def test_an_error_of_one_part_or_of_a_lag_that_cannot_be_told_leaves_no_other_part_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    channel = ss.Channel(tmp_path / "c1", minimum_required_space=0)
    with channel.put_transaction() as tx:
        tx.put(ss.Event(b"first"))
    processor = flow.ChannelProcessor({"c1": channel}, [Refusing()])
    agent = flow.Agent(sources=[flow.Source(flow.Seq(total_events=1), processor, name="r1")],
                       sinks=[flow.Null(channel="c1")], name="a1")  # fmt: skip
    agent._flow._owns_channels = True
    agent.start()
    (runner,) = agent.sinks.values()
    asked, closed, stats, close = [1, 2], list[str](), channel.stats, channel.close

    def stats_later() -> Any:
        if asked:
            raise StorageError(f"the store is away, for the {asked.pop(0)}. time")
        return stats()

    def close_and_fail() -> None:
        close()
        closed.append("c1")
        raise RuntimeError("a fault")

    monkeypatch.setattr(channel, "stats", stats_later)
    monkeypatch.setattr(channel, "close", close_and_fail)
    assert not agent.is_drained()
    assert not agent.stop(drain=True)
    assert not asked and not runner.alive and closed == ["c1"]
    said = [r.getMessage() for r in caplog.records if r.levelname == "ERROR"]
    assert said == [
        "what the sinks have yet to take from c1 can't be told now: the store is away, for the 1. time",
        "a1.r1 could not be closed: the connection broke",
        "the channel c1 could not be closed: a fault",
    ]


def test_a_drain_ends_though_a_failovers_lower_sinks_have_channels_of_their_own_and_says_what_stays_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with ss.Channel(tmp_path / "c1") as one, ss.Channel(tmp_path / "c2") as other:
        for channel in (one, other):
            with channel.put_transaction() as tx:
                tx.put_many([ss.Event(b"x")] * 3)
        sinks = {"k1": flow.Null(channel="c1"), "k2": flow.Null(channel="c2")}
        group = flow.SinkGroup(sinks, flow.Failover(priority={"k1": 2, "k2": 1}))
        agent = flow.Agent(sink_groups=[group], channels={"c1": one, "c2": other}, name="a1")
        ended: list[bool] = []
        run = threading.Thread(target=lambda: ended.append(agent.run(once=True)), daemon=True)
        run.start()
        run.join(60)
        assert ended == [True]
        assert [channel.stats().groups["default"].lag if channel.stats().groups else 3 for channel in (one, other)] == [
            0,
            3,
        ]
    said = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert said == ["the channel c2 keeps 3 events: its sinks stand by while another one of their group works"]


def test_a_sink_that_commits_what_it_held_while_it_is_looked_at_has_not_taken_the_rest(tmp_path: Path) -> None:
    class Holds(flow.Null):
        held = 5

        def held_events(self) -> int:
            return self.held

    with ss.Channel(tmp_path / "c1") as channel:
        with channel.put_transaction() as tx:
            tx.put_many([ss.Event(b"x")] * 8)
        sink = Holds(channel="c1")
        agent = flow.Agent(sinks=[sink], channels={"c1": channel}, name="a1")
        stats = channel.stats

        def commit_and_look() -> Any:
            if sink.held:
                sink.held = 0
                with channel.take_transaction() as tx:
                    assert len(tx.take_many(5)) == 5
            return stats()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(channel, "stats", commit_and_look)
            assert not agent.is_drained()


def test_no_source_is_started_once_the_agent_is_asked_to_stop_while_its_sinks_start(tmp_path: Path) -> None:
    class Slow(flow.BatchSink):
        def open(self, channel: ss.Channel, written: Any = None) -> None:
            super().open(channel, written)
            agent.ask_to_stop()

        def write(self, taken: Taken) -> None: ...

    source = HangsAtStart()
    with ss.Channel(tmp_path / "c1", minimum_required_space=0) as channel:
        sources = [flow.Source(source, flow.ChannelProcessor({"c1": channel}), name="r1")]
        agent = flow.Agent(sources=sources, sinks=[Slow(1, channel="c1")], name="a1")
        source.go_on.set()
        assert agent.run() and not source.begun.is_set()


def test_a_start_that_is_interrupted_leaves_nothing_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with ss.Channel(tmp_path / "c1", minimum_required_space=0) as channel:
        sources = [flow.Source(flow.Seq(), flow.ChannelProcessor({"c1": channel}), name="r1")]
        agent = flow.Agent(sources=sources, sinks=[flow.Null(channel="c1")], name="a1")
        monkeypatch.setattr(agent.supervisor, "begin", interrupt)
        with pytest.raises(KeyboardInterrupt):
            agent.start()
        assert not any(runner.alive for runner in [*agent.sources.values(), *agent.sinks.values()])
        assert agent.stop()
