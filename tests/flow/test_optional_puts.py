"""A channel that need not take what it is given holds its source up for a second, and no longer."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import Channel, flow
from spillable_stream.channel.put_transaction import PutTransaction
from spillable_stream.errors import ChannelFullError, ProducerBusyError
from spillable_stream.flow import bulkhead as module
from spillable_stream.flow.left_out import LeftOut
from spillable_stream.flow.optional_puts import OptionalPuts
from spillable_stream.flow.part_puts import PartPuts
from spillable_stream.flow.processor import ChannelProcessor
from spillable_stream.flow.selectors import Multiplexing, Replicating
from spillable_stream.flow.sources.client_numbers import ClientNumbers
from tests.support.events import peek
from tests.support.flow_batches import batch_of
from tests.support.no_threads import no_threads
from tests.support.waiting import wait_until

PART = {"may": batch_of(b"x", b"y")}


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[float], None]]:
    """Sets how long a call is waited for, in seconds; at first it is longer than a test."""

    def set_limit(seconds: float) -> None:
        monkeypatch.setattr(module, "_LIMIT_SECONDS", seconds)

    set_limit(600.0)
    return set_limit


class Store:
    """A channel whose answers wait while it is away."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.is_there = threading.Event()
        self.is_there.set()
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)

    def _answer(self) -> None:
        self.asked += 1
        assert self.is_there.wait(60)

    def last_batch(self, producer_id: str) -> Any:
        self._answer()
        return self._channel.last_batch(producer_id)

    def put_transaction(self) -> PutTransaction:
        tx = self._channel.put_transaction()
        commit = tx._commit

        def commit_when_there() -> None:
            self._answer()
            commit()

        tx._commit = commit_when_there  # type: ignore[method-assign]
        return tx


class GatedPut:
    """A put that waits, each time it is called, at the next one of some gates; at none when all have been used."""

    def __init__(self, count: int) -> None:
        self.gates = [threading.Event() for _ in range(count)]
        self.begun: list[str] = []
        self._left = iter(self.gates)

    def __call__(self, name: str) -> Exception | None:
        gate = next(self._left, None)
        self.begun.append(name)
        assert gate is None or gate.wait(60)
        return None


def begin_put(puts: OptionalPuts, put: GatedPut) -> threading.Thread:
    """Begin a put of a source in another thread."""
    thread = threading.Thread(target=puts.put, args=(PART, put), daemon=True)
    thread.start()
    return thread


def require_waits_for(waiting: threading.Thread, gate: threading.Event) -> None:
    assert waiting.is_alive()
    gate.set()
    waiting.join(60)
    assert not waiting.is_alive()


def processor_of(must: Channel, may: Any, producer: str | None = "p") -> ChannelProcessor:
    """Return what puts all events into two channels, of which one is optional."""
    return ChannelProcessor({"must": must, "may": may}, selector=Replicating(optional=["may"]), producer=producer)


@contextmanager
def puts_of(source: str = "a1.r1") -> Iterator[OptionalPuts]:
    puts = OptionalPuts(source, {"may"}, PartPuts({}), LeftOut(source, lambda: 0))
    yield puts
    puts.close()


def test_a_source_waits_for_a_channel_that_is_in_time_and_hears_what_failed(caplog: pytest.LogCaptureFixture) -> None:
    done: list[str] = []

    def put(name: str) -> Exception | None:
        done.append(name)
        return ChannelFullError("full")

    with puts_of() as puts:
        puts.put(PART, put)
        assert done == ["may"] and not puts.under_way()
    assert "a1.r1: the optional channel may did not get 2 events: it is full" in caplog.text


def test_a_put_that_hangs_is_waited_for_once_and_others_pass_it_over_until_it_ends(
    caplog: pytest.LogCaptureFixture, limit: Callable[[float], None]
) -> None:
    put = GatedPut(1)
    with puts_of() as puts:
        limit(0.01)
        puts.put(PART, put)
        assert puts.under_way() == ["may"]
        wait_until(lambda: put.begun)  # its thread may come late
        limit(600.0)
        puts.put(PART, put)
        puts.put(PART, put)
        assert len(put.begun) == 1
        assert re.search(r"did not get 2 events: a call that began \d+ s ago has not ended there", caplog.text)
        put.gates[0].set()
        wait_until(lambda: not puts.under_way())
        puts.put(PART, put)
        wait_until(lambda: len(put.begun) == 2)


def test_a_channel_that_is_given_up_for_a_batch_is_named_at_once_and_again_when_it_was_in_time_meanwhile(
    limit: Callable[[float], None], caplog: pytest.LogCaptureFixture
) -> None:
    put, said = GatedPut(4), "a1.r1: the optional channel may has not answered within a second, and is not waited for"
    with puts_of() as puts:

        def end(number: int) -> None:
            put.gates[number].set()
            wait_until(lambda: not puts.under_way())

        limit(0.0)
        puts.put(PART, put)
        assert caplog.text.count(said + ": whether it gets 2 events shows later") == 1
        end(0)
        puts.put(PART, put)  # it is late, too
        limit(600.0)
        end(1)
        assert caplog.text.count(said) == 1
        put.gates[2].set()
        puts.put(PART, put)
        limit(0.0)
        puts.put(PART, put)
        assert caplog.text.count(said) == 2
        end(3)


def test_a_channel_that_was_slow_is_waited_for_again_once_a_put_ended_in_time(limit: Callable[[float], None]) -> None:
    put = GatedPut(3)
    with puts_of() as puts:
        limit(0.0)
        puts.put(PART, put)
        put.gates[0].set()
        wait_until(lambda: not puts.under_way())
        limit(600.0)
        puts.put(PART, put)  # nobody waits for it
        put.gates[1].set()
        wait_until(lambda: not puts.under_way())
        waiting = begin_put(puts, put)
        wait_until(puts.under_way)
        require_waits_for(waiting, put.gates[2])


def test_a_put_that_nobody_awaits_is_overtaken_by_none_though_another_one_ended_in_time(
    limit: Callable[[float], None], caplog: pytest.LogCaptureFixture
) -> None:
    put = GatedPut(2)
    with puts_of() as puts:
        waiting = begin_put(puts, put)
        wait_until(lambda: len(put.begun) == 1)
        limit(0.01)
        puts.put(PART, put)
        limit(600.0)
        put.gates[0].set()
        waiting.join(60)
        puts.put(PART, put)
        assert "has not ended there" in caplog.text
        wait_until(lambda: len(put.begun) == 2)
        put.gates[1].set()
        wait_until(lambda: not puts.under_way())
        puts.put(PART, put)
        wait_until(lambda: len(put.begun) == 3)


def test_a_batch_that_begins_a_put_as_the_late_one_ends_waits_for_it(
    limit: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    put = GatedPut(2)
    with puts_of() as puts:
        limit(0.01)
        puts.put(PART, put)
        limit(600.0)
        begin = puts._bulkheads["may"].begin

        def begin_as_the_other_ends(*call: Any, **named: Any) -> None:
            put.gates[0].set()
            wait_until(lambda: not puts.under_way() and not puts._bulkheads["may"].is_slow)
            begin(*call, **named)

        monkeypatch.setattr(puts._bulkheads["may"], "begin", begin_as_the_other_ends)
        waiting = begin_put(puts, put)
        wait_until(lambda: put.gates[0].is_set() and bool(puts.under_way()))
        waiting.join(0.1)
        require_waits_for(waiting, put.gates[1])


def test_threads_that_put_at_once_into_a_channel_in_time_pass_over_none(caplog: pytest.LogCaptureFixture) -> None:
    meeting, put_parts = threading.Barrier(4, timeout=60), []

    def put(name: str) -> Exception | None:
        meeting.wait()
        put_parts.append(name)
        return None

    with puts_of() as puts:
        threads = [threading.Thread(target=puts.put, args=(PART, put)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert len(put_parts) == 4 and not caplog.records


def test_a_part_for_which_no_thread_can_be_started_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    with puts_of() as puts, no_threads():
        puts.put(PART, lambda _: pytest.fail("it may hang"))
        assert not puts.under_way()
    assert "may did not get 2 events: the thread 'spillable-flow-put-may_0' can't start" in caplog.text


def test_an_interrupt_of_a_put_reaches_the_source() -> None:
    def put(_: str) -> Exception | None:
        raise KeyboardInterrupt

    with puts_of() as puts, pytest.raises(KeyboardInterrupt):
        puts.put(PART, put)


def test_an_end_does_not_wait_for_a_put_that_hangs_and_names_its_channel(
    caplog: pytest.LogCaptureFixture, limit: Callable[[float], None]
) -> None:
    put = GatedPut(1)
    with puts_of() as puts:
        limit(0.01)
        puts.put(PART, put)
        puts.close()
        assert "a1.r1: a put into the optional channel may has not ended" in caplog.text
        put.gates[0].set()


# ── a processor ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("producer", ["a1.r1", None])
@pytest.mark.parametrize("hangs_at", ["first", "later"])
def test_the_required_channels_get_all_batches_while_the_store_of_an_optional_one_hangs(
    tmp_path: Path, limit: Callable[[float], None], producer: str | None, hangs_at: str
) -> None:
    with Channel(tmp_path / "must") as must, Channel(tmp_path / "may") as channel:
        may: Any = Store(channel)
        numbers = iter(range(1, 100)) if producer else None

        def process(body: bytes) -> None:
            processor.process(batch_of(body), number=next(numbers) if numbers else None)

        with processor_of(must, may, producer) as processor:
            if hangs_at == "later":
                process(b"0")
            limit(0.01)
            may.is_there.clear()
            for i in range(1, 5):
                process(b"%d" % i)
            asked = may.asked
            limit(600.0)
            assert peek(must)[-4:] == [b"1", b"2", b"3", b"4"]
            may.is_there.set()
            wait_until(lambda: not processor.hanging())
            process(b"5")
            wait_until(lambda: not processor.hanging())
            process(b"6")
        assert peek(channel)[-3:] == [b"1", b"5", b"6"] and may.asked > asked
        assert peek(must)[-6:] == [b"%d" % i for i in range(1, 7)]


def test_an_optional_channel_that_somebody_else_has_or_that_fails_does_not_stop_the_source(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Channel(tmp_path / "must") as must, Channel(tmp_path / "may") as may:
        with ChannelProcessor({"may": may}, producer="p") as other:
            other.newest()
            with processor_of(must, may) as processor:
                assert processor.newest() is None
                processor.process(batch_of(b"x"), number=1)
            assert "the optional channel may did not get 1 event: the producer 'p'" in caplog.text
        with processor_of(must, may) as again:
            newest = again.newest()
            assert newest is not None and (newest.number, newest.complete) == (1, True)
            again.process(batch_of(b"y"), number=2)
        assert (peek(must), peek(may)) == ([b"x", b"y"], [b"y"])


def test_a_name_that_is_claimed_in_an_optional_channel_after_the_end_is_given_back(
    tmp_path: Path, limit: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Channel(tmp_path / "must") as must, Channel(tmp_path / "may") as may:
        claims, may_claim = threading.Event(), threading.Event()
        port = may.put_port()

        class Slow:
            def __getattr__(self, name: str) -> Any:
                return getattr(port, name)

            def claim_producer(self, producer_id: str) -> Any:
                claims.set()
                assert may_claim.wait(60)
                return port.claim_producer(producer_id)

        monkeypatch.setattr(may, "put_port", Slow)
        limit(0.01)
        processor = processor_of(must, may)
        processor.process(batch_of(b"x"), number=1)
        assert claims.wait(60)
        processor.close()
        may_claim.set()
        wait_until(lambda: not processor.hanging())
        monkeypatch.undo()
        with ChannelProcessor({"may": may}, producer="p") as other:
            assert other.newest() is None


def test_a_channel_that_must_have_the_events_of_some_values_is_asked_as_a_required_one(tmp_path: Path) -> None:
    with Channel(tmp_path / "must") as must, Channel(tmp_path / "both") as both:
        with ChannelProcessor({"must": must}, producer="p") as processor:
            processor.process(batch_of(b"x"), number=1)
        selector = Multiplexing("to", {"a": ["both"]}, default=["must"], optional={"b": ["both"]})
        with ChannelProcessor({"both": both}, producer="p") as other:
            other.newest()
            processor = ChannelProcessor({"must": must, "both": both}, selector=selector, producer="p")
            with processor, pytest.raises(ProducerBusyError):
                processor.newest()


def test_a_source_without_a_required_channel_continues_where_its_optional_ones_are(tmp_path: Path) -> None:
    with Channel(tmp_path / "may") as may:
        for number in (1, 2):
            with ChannelProcessor({"may": may}, selector=Replicating(optional=["may"]), producer="p") as processor:
                newest = processor.newest()
                assert (newest.number if newest is not None else 0) == number - 1
                processor.process(batch_of(b"%d" % number), number=number)
        assert peek(may) == [b"1", b"2"]


def test_a_channel_that_had_batches_before_its_source_got_other_channels_swallows_none_in_silence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    optional = Replicating(optional=["may"])
    with Channel(tmp_path / "must") as must, Channel(tmp_path / "may") as may:

        def process(selector: Replicating, *bodies: bytes) -> None:
            with ChannelProcessor({"must": must, "may": may}, selector=selector, producer="p") as processor:
                newest = processor.newest()
                for number, body in enumerate(bodies, 1 if newest is None else newest.number + 1):
                    processor.process(batch_of(body), number=number)

        with ChannelProcessor({"may": may}, producer="p") as before:
            for number in (1, 2):
                before.process(batch_of(b"%d" % number), number=number)
        process(optional, b"a")
        assert "the optional channel may did not get 1 event: it has batch 2 of p from before, and 0 was" in caplog.text
        process(Replicating(), b"b")  # as the log says
        process(optional, b"c")
        assert (peek(must), peek(may)) == ([b"a", b"b", b"c"], [b"1", b"2", b"b", b"c"])


def test_a_client_is_answered_while_the_store_of_an_optional_channel_hangs(
    tmp_path: Path, limit: Callable[[float], None]
) -> None:
    with Channel(tmp_path / "must") as must, Channel(tmp_path / "may") as channel:
        may: Any = Store(channel)
        with processor_of(must, may, None) as processor:
            numbers = ClientNumbers(processor)
            limit(0.01)
            may.is_there.clear()
            for number in (1, 2):
                numbers.store(batch_of(b"%d" % number), "client", number)
            assert peek(must) == [b"1", b"2"]
            may.is_there.set()
            wait_until(lambda: not processor.hanging())
        assert peek(channel) == [b"1"]


def test_an_agent_ends_while_the_store_of_an_optional_channel_hangs(
    tmp_path: Path, limit: Callable[[float], None], caplog: pytest.LogCaptureFixture
) -> None:
    must, channel = Channel(tmp_path / "must"), Channel(tmp_path / "may")
    may: Any = Store(channel)
    closing: list[threading.Thread] = []

    def close() -> None:
        closing.append(threading.current_thread())
        assert may.is_there.wait(60)
        channel.close()

    may.close = close
    processor = processor_of(must, may, "a1.r1")
    source = flow.Source(flow.Seq(total_events=3), processor, name="r1")
    agent = flow.Agent(sources=[source], name="a1", shutdown_timeout_seconds=0.01)
    agent._flow._owns_channels = True
    limit(0.01)
    may.is_there.clear()
    agent.start()
    wait_until(lambda: must.stats().channel_size == 3)
    began = time.monotonic()
    assert not agent.stop() and time.monotonic() - began < 30
    assert closing and closing[0] is not threading.main_thread()
    assert "the channel may could not be closed within 0.01 s" in caplog.text
    may.is_there.set()
    closing[0].join(60)
    with Channel(tmp_path / "must") as stored:
        assert stored.stats().channel_size == 3
