from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream import Channel, Event
from spillable_stream.flow.interceptors.headers import Static
from spillable_stream.flow.interceptors.regex_filter import RegexFilter
from spillable_stream.flow.processor import ChannelProcessor
from spillable_stream.flow.routed_batch import Processed, RoutedBatch
from spillable_stream.flow.selectors import Multiplexing, Replicating
from spillable_stream.flow.sources.base import SourceBase
from spillable_stream.flow.sources.event_columns import events_of
from spillable_stream.flow.sources.held import lose_unstored, put_held, put_unstored
from tests.support.broken_disk import SYNCS, broken_disk
from tests.support.events import put, take
from tests.support.failed_channels import failed_channel
from tests.support.flow_processors import KeptBatches, Routed

BATCH = events_of([b"x"], [{}])


def test_a_batch_is_held_until_it_is_stored() -> None:
    class FreeLater(KeptBatches):
        def deliver(self, routed: Routed) -> None:
            try:
                super().deliver(routed)
            finally:
                self.full = set()

    kept, source = FreeLater(), SourceBase()
    kept.full = {0}
    assert put_held(source, kept, BATCH, threading.Event())
    assert kept.bodies() == [b"x"]
    assert source.counters.channel_write_fail == 1


class Fails(KeptBatches):
    """Has an interceptor that fails with an error of its own, the first times."""

    failures = 2

    def route(self, events: pa.RecordBatch) -> Routed:
        self.failures -= 1
        if self.failures >= 0:
            raise ZeroDivisionError("of its own")
        return super().route(events)


def test_a_batch_at_which_an_interceptor_fails_is_held_too(caplog: pytest.LogCaptureFixture) -> None:
    kept, source = Fails(), SourceBase()
    assert put_held(source, kept, BATCH, threading.Event())
    assert kept.bodies() == [b"x"]
    assert (source.counters.channel_write_fail, source.counters.generic_processing_fail) == (0, 2)
    found = [r for r in caplog.records if "a batch waits, and nothing is read meanwhile" in r.getMessage()]
    assert ["ZeroDivisionError: of its own" in r.getMessage() for r in found] == [True, True]
    assert [r.exc_info is not None for r in found] == [True, False], "where it failed is said once"


def test_a_batch_at_which_an_interceptor_fails_as_the_source_is_stopped_is_named_as_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kept, source, stopping = Fails(), SourceBase(), threading.Event()
    stopping.set()
    assert not put_held(source, kept, BATCH, stopping)
    lose_unstored(source)
    assert list(source.missed) == ["1 event is not stored, and lost: ZeroDivisionError: of its own"]
    assert source.missed[0] in caplog.text


def test_a_batch_that_no_transaction_can_hold_is_put_in_pieces(tmp_path: Path) -> None:
    """Through a chain and a selector: pieces are slices of one batch."""
    with (
        Channel(tmp_path / "a", memory_capacity=100, overflow_capacity=0, transaction_capacity=40) as a,
        Channel(tmp_path / "b", transaction_capacity=7, minimum_required_space=0) as b,
    ):
        chain = [Static(key="s", value="x"), RegexFilter(regex="[1-9]")]
        processor = ChannelProcessor({"a": a, "b": b}, chain, Multiplexing("n", {"1": ["a"]}, default=["b"]))
        assert processor.most_events == 7
        events = events_of([b"%d" % i for i in range(60)], [{"n": str(i % 2)} for i in range(60)])
        assert put_held(SourceBase(), processor, events, threading.Event())
        for channel, first in ((a, 1), (b, 2)):
            found = []
            for _ in range(5):
                with channel.take_transaction() as transaction:
                    found += transaction.take_many(7)
            assert [e.body for e in found] == [b"%d" % i for i in range(first, 60, 2)]
            assert {(e.headers["n"], e.headers["s"]) for e in found} == {(str(first % 2), "x")}


def test_events_that_do_not_fit_a_channel_together_are_put_in_pieces_and_one_that_never_fits_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Channel(tmp_path / "c", memory_capacity=100, overflow_capacity=0, byte_capacity=1 << 20) as channel:

        class Drained(ChannelProcessor):
            def deliver(self, routed: RoutedBatch) -> Processed:
                done = super().deliver(routed)
                found.extend(take(channel))
                return done

        found: list[bytes] = []
        bodies = [bytes([65 + i]) * (900_000 if i == 2 else 300_000) for i in range(7)]
        source, events = SourceBase(), events_of(bodies, [{}] * 7)
        assert put_held(source, Drained({"c": channel}), events, threading.Event())
        assert found == bodies[:2] + bodies[3:]
        counters = source.counters.flume_counters()
        assert (counters["EventReceivedCount"], counters["EventAcceptedCount"], counters["EventReadFail"]) == (7, 6, 1)
    lost = [
        record.getMessage() for record in caplog.records if record.levelname == "ERROR" and "is lost" in record.message
    ]
    assert len(lost) == 1 and "Raise byte_capacity" in lost[0] and "deadLetter" in lost[0]
    (missed,) = source.missed
    assert missed.startswith("an event is lost, because it is too large for a channel: ")


def test_a_stop_tries_one_piece_and_names_all_that_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    kept, stopping, source = KeptBatches(most_events=2), threading.Event(), SourceBase()
    kept.full = {0}
    stopping.set()
    assert not put_held(source, kept, events_of([b"%d" % i for i in range(7)], [{}] * 7), stopping)
    lose_unstored(source)
    assert "7 events are not stored, and lost" in caplog.text
    (missed,) = source.missed
    assert missed.startswith("7 events are not stored, and lost: ")
    assert (source.counters.channel_write_fail, source.counters.event_received_count) == (1, 7)


def stopped(kept: KeptBatches, *bodies: bytes) -> SourceBase:
    """Return a source that was stopped while it held events, each in a batch of its own."""
    stopping, source = threading.Event(), SourceBase()
    stopping.set()
    kept.full, is_behind = {0}, False
    for body in bodies:
        assert not put_held(source, kept, events_of([body], [{}]), stopping, is_behind=is_behind)
        is_behind = True
    kept.full = set()
    return source


def test_what_a_stopped_source_held_is_put_in_order_by_the_one_in_its_place_and_counts_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kept, after = KeptBatches(), SourceBase()
    before = stopped(kept, b"1", b"2", b"3")
    assert before.counters.channel_write_fail == 1, "what is behind the first one is not tried"
    after.unstored = before.unstored
    assert put_unstored(after, kept, threading.Event())
    assert kept.bodies() == [b"1", b"2", b"3"]
    assert (after.counters.event_received_count, after.counters.event_accepted_count) == (3, 3)
    assert "3 events are stored now" in caplog.text and not after.missed
    assert after.unstored.events == 0


def test_what_is_put_again_and_refused_at_another_stop_is_kept_once_more_before_what_came_behind() -> None:
    kept, stopping = KeptBatches(), threading.Event()
    source = stopped(kept, b"1", b"2")
    kept.full = {0}
    stopping.set()
    assert not put_unstored(source, kept, stopping)
    assert not put_held(source, kept, events_of([b"3"], [{}]), stopping, is_behind=True)
    kept.full = set()
    assert put_unstored(source, kept, threading.Event())
    assert kept.bodies() == [b"1", b"2", b"3"]
    assert source.counters.event_received_count == 3, "each is counted once by one source"


def test_what_a_source_gives_up_after_the_last_one_has_ended_is_named_as_lost(caplog: pytest.LogCaptureFixture) -> None:
    kept, stopping, source = KeptBatches(), threading.Event(), SourceBase()
    lose_unstored(source)
    assert "lost" not in caplog.text
    kept.full = {0}
    stopping.set()
    assert not put_held(source, kept, BATCH, stopping)
    assert "1 event is not stored, and lost: a batch is not in c0" in caplog.text


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_batch_that_one_channel_has_is_put_into_the_other_one_only_and_not_where_that_is_gone(
    tmp_path: Path, is_gone: bool, caplog: pytest.LogCaptureFixture
) -> None:
    source, stopping = SourceBase(), threading.Event()
    stopping.set()
    with Channel(tmp_path / "a", minimum_required_space=0) as a, broken_disk(tmp_path / "b") as disk:
        with Channel(tmp_path / "b", minimum_required_space=0) as failed:
            put(failed, b"before")
            disk.breaks(calls=(*SYNCS, "open"))
            assert not put_held(source, ChannelProcessor({"a": a, "b": failed}), BATCH, stopping)
            disk.works()
        with Channel(tmp_path / "b", minimum_required_space=0) as b:
            processor = ChannelProcessor({"a": a} if is_gone else {"a": a, "b": b})
            assert put_unstored(source, processor, threading.Event())
            assert take(a) == [b"x"]
            assert is_gone or take(b)[-1:] == [b"x"]
    assert ("1 event is put again, and may come twice" in caplog.text) != is_gone
    assert ("1 event is stored now" in caplog.text) != is_gone
    lost = "1 event may be lost: a storage failure hit the channel, which the source has no more"
    assert [*source.missed] == ([lost] if is_gone else [])


def test_a_batch_that_only_a_channel_may_have_that_is_gone_is_put_where_the_source_puts_now(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It was said to be lost, to be put again, and to be stored, and was put nowhere."""
    source, stopping = SourceBase(), threading.Event()
    stopping.set()
    with Channel(tmp_path / "b", minimum_required_space=0) as b:
        failed = failed_while_it_puts(tmp_path / "failed", source, stopping)
        assert put_unstored(source, ChannelProcessor({"other": b}), threading.Event())
        assert take(b) == [b"x"]
        failed.close()
    assert "1 event is put again, and may come twice" in caplog.text and "1 event is stored now" in caplog.text
    assert not source.missed


def test_a_batch_does_not_wait_for_a_channel_that_became_optional(tmp_path: Path) -> None:
    """Its source stood still, though somebody had made the channel optional for that."""
    source, stopping = SourceBase(), threading.Event()
    stopping.set()
    with Channel(tmp_path / "a", minimum_required_space=0) as a:
        failed = failed_while_it_puts(tmp_path / "b", source, stopping, {"a": a})
        channels = {"a": a, "b": failed}
        with ChannelProcessor(channels, selector=Replicating(optional=["b"])) as processor:
            assert put_unstored(source, processor, stopping)
            assert processor.left_out.events == 1
        assert take(a) == [b"x"]
        failed.close()
    assert not source.missed


def failed_while_it_puts(
    path: Path, source: SourceBase, stopping: threading.Event, others: Mapping[str, Channel] = {}
) -> Channel:
    """Return a channel whose storage failed as the source put, so that the source holds a batch in doubt.

    Args:
        path: where the channel is.
        source: the source.
        stopping: is set.
        others: the channels of the source that work.
    """
    with broken_disk(path) as disk:
        failed = Channel(path, minimum_required_space=0)
        put(failed, b"before")
        disk.breaks(calls=(*SYNCS, "open"))
        assert not put_held(source, ChannelProcessor({**others, "b": failed}), BATCH, stopping)
    return failed


def test_events_that_wait_are_put_in_pieces_where_a_capacity_is_lowered_meanwhile(tmp_path: Path) -> None:
    with Channel(tmp_path / "c", overflow_capacity=10, keep_alive=0, minimum_required_space=0) as channel:
        with channel.put_transaction() as transaction:
            transaction.put_many([Event(b"before")] * 8)
        stopping = LoweredAtTheFirstWait(channel)
        source = SourceBase()
        assert put_held(
            source, ChannelProcessor({"c": channel}), events_of([b"1", b"2", b"3", b"4"], [{}] * 4), stopping
        )
        assert stopping.taken + take(channel) == [b"before"] * 8 + [b"1", b"2", b"3", b"4"]
        assert source.counters.pauses.flume_counters()["Paused"] == 0


class LoweredAtTheFirstWait(threading.Event):
    """Lowers the channel's capacity below one batch when a source begins to wait, and empties the channel each time."""

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._channel = channel
        self.taken: list[bytes] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.taken += take(self._channel)
        Channel(self._channel.path, overflow_capacity=3).close()
        return False


def test_a_batch_that_comes_when_its_channel_has_failed_is_held_and_a_stop_names_all_of_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Stopped(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waiting.append(source.counters.pauses.flume_counters()["Paused"])
            self.set()
            return True

    waiting: list[float] = []
    failed, source = failed_channel(tmp_path / "failed"), SourceBase()
    with Channel(tmp_path / "works", minimum_required_space=0) as works:
        processor = ChannelProcessor({"failed": failed, "works": works})
        events = events_of([b"%d" % i for i in range(7)], [{}] * 7)
        assert not put_held(source, processor, events, Stopped())
        lose_unstored(source)
        assert waiting == [1] and source.counters.channel_write_fail == 2
        assert "7 events are not stored, and lost: " in caplog.text
        assert take(works) == []
    failed.close()
