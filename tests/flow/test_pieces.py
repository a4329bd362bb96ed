"""Events that fit a channel one by one, and not together, are all stored: by every source, and by sinks that put."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream import Channel, Event, flow
from spillable_stream.channel.row_times import RowTimes
from spillable_stream.errors import ChannelFullError, PutTooLargeError
from spillable_stream.flow.pieces import put_in_pieces
from spillable_stream.flow.processor import ChannelProcessor
from spillable_stream.flow.selectors import Replicating
from spillable_stream.flow.sinks.channel import ChannelSink
from spillable_stream.flow.sinks.letter_box import LetterBox
from spillable_stream.flow.sinks.written import WrittenEvents
from spillable_stream.flow.sources.base import Status
from spillable_stream.flow.sources.seq import Seq
from spillable_stream.flow.sources.stress import Stress
from tests.support.events import peek, put, take
from tests.support.flow_batches import batch_of

A, B = b"a" * 500_000, b"b" * 500_000
SMALL = {"memory_capacity": 100, "overflow_capacity": 0, "byte_capacity": 1 << 20, "keep_alive": 0}
"""Has room for one of the two, and not for both."""


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Channel]:
    with Channel(tmp_path / "small", **SMALL) as channel:  # type: ignore[arg-type]
        yield channel


def test_two_such_events_fit_one_by_one_only(small: Channel) -> None:
    small.put_transaction().require_fit(batch_of(A))
    with pytest.raises(PutTooLargeError):
        small.put_transaction().require_fit(batch_of(A, B))


def test_pieces_are_put_in_order_each_as_large_as_it_may_be() -> None:
    found: list[tuple[list[bytes], int]] = []

    def put_two(batch: pa.RecordBatch, first: int) -> None:
        bodies = batch.column("body").to_pylist()
        if len(bodies) > 2 or b"5" in bodies:
            raise PutTooLargeError("too large")
        found.append((bodies, first))

    put_in_pieces(batch_of(b"0", b"1", b"2", b"3", b"4"), put_two)
    assert found == [([b"0", b"1"], 0), ([b"2"], 2), ([b"3", b"4"], 3)]
    with pytest.raises(PutTooLargeError):
        put_in_pieces(batch_of(b"4", b"5"), put_two)
    assert found[3:] == [([b"4"], 0)]


@pytest.mark.parametrize(
    "make", [lambda: Seq(batch_size=4, total_events=4), lambda: Stress(batch_size=4, max_successful_events=4)]
)
def test_a_source_of_numbers_puts_fewer_events_where_a_channel_cannot_hold_its_batch(
    tmp_path: Path, make: Callable[[], Seq | Stress]
) -> None:
    source, taken = make(), list[bytes]()
    with (
        Channel(tmp_path / "c", memory_capacity=2, overflow_capacity=0, keep_alive=0) as channel,
        ChannelProcessor({"c": channel}) as processor,
    ):
        while source.poll(processor) is Status.READY:
            taken += take(channel)
    assert len(taken) == 4 and source.counters.event_accepted_count == source.counters.event_received_count == 4


def test_a_source_of_tries_counts_one_that_is_divided_once(tmp_path: Path) -> None:
    source, taken = Stress(batch_size=4, max_total_events=4), list[bytes]()
    with (
        Channel(tmp_path / "c", memory_capacity=2, overflow_capacity=0, keep_alive=0) as channel,
        ChannelProcessor({"c": channel}) as processor,
    ):
        while source.poll(processor) is Status.READY:
            taken += take(channel)
    assert len(taken) == 4


@pytest.mark.parametrize("is_numbered", [True, False])
def test_an_optional_channel_gets_each_event_that_fits_though_they_came_together(
    tmp_path: Path, small: Channel, caplog: pytest.LogCaptureFixture, is_numbered: bool
) -> None:
    """With numbers the source puts them in smaller batches; without, the optional part alone is put in pieces."""
    with Channel(tmp_path / "must") as must:
        channels, selector = {"must": must, "may": small}, Replicating(optional=["may"])
        with ChannelProcessor(channels, selector=selector, producer="p" if is_numbered else None) as processor:
            if is_numbered:
                with pytest.raises(PutTooLargeError):
                    processor.process(batch_of(A, B), number=1)
                assert peek(must) == []
                processor.process(batch_of(A), number=1)
                assert take(small) == [A]
                processor.process(batch_of(B), number=2)
                assert (peek(must), take(small)) == ([A, B], [B])
            else:
                processor.process(batch_of(A, B))
                assert (peek(must), take(small)) == ([A, B], [A])
        if not is_numbered:  # nobody waits until there is room for the other one
            assert "the optional channel may did not get 1 event: it is full" in caplog.text


def test_one_event_that_an_optional_channel_can_never_hold_does_not_stop_a_numbered_source(
    tmp_path: Path, small: Channel, caplog: pytest.LogCaptureFixture
) -> None:
    with Channel(tmp_path / "must") as must:
        selector = Replicating(optional=["may"])
        with ChannelProcessor({"must": must, "may": small}, selector=selector, producer="p") as processor:
            processor.process(batch_of(A + B), number=1)
        assert peek(must) == [A + B] and "the optional channel may did not get 1 event" in caplog.text


def test_lines_of_a_file_are_all_in_a_small_optional_channel(tmp_path: Path, small: Channel) -> None:
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool" / "f").write_bytes(A + b"\n" + B + b"\nc\n")
    source = flow.SpoolDir(tmp_path / "spool", deserializer_max_line_length=1_000_000)
    source.name, found = "r1", list[bytes]()
    with Channel(tmp_path / "must") as must:
        selector = Replicating(optional=["may"])
        with ChannelProcessor({"must": must, "may": small}, selector=selector, producer="p") as processor:
            source.open(processor)
            while source.poll(processor) is not Status.BACKOFF:
                found += take(small)
            source.close()
        assert peek(must) == found == [A, B, b"c"]


def test_dead_letters_of_one_take_go_one_by_one_where_their_channel_cannot_hold_them_together(
    tmp_path: Path, small: Channel
) -> None:
    with Channel(tmp_path / "from") as channel:
        channel.consumer("another")  # so that the events stay
        put(channel, A, B)
        box = LetterBox(small, "a1.k1", channel, "g", WrittenEvents())
        ids = pa.array([1, 2], pa.int64())
        with pytest.raises(ChannelFullError) as full:
            box.put(batch_of(A, B), ids, "why", 5)
        assert not isinstance(full.value, PutTooLargeError)
        assert take(small) == [A]
        box.put(batch_of(B), ids.slice(1), "why", 5)
        assert take(small) == [B]


def test_a_sink_moves_events_one_by_one_into_a_channel_that_cannot_hold_them_together(
    tmp_path: Path, small: Channel, open_channel: Callable[..., Channel]
) -> None:
    channel, sink = open_channel(), ChannelSink(small.path)
    with channel.put_transaction() as tx:
        tx.put(Event(A), ttl="1h")
        tx.put(Event(B))
    sink.open(channel)
    with pytest.raises(ChannelFullError) as full:
        sink.process()
    assert not isinstance(full.value, PutTooLargeError)
    assert take(small) == [A]
    sink.process()  # the take comes again, and what was stored of it does not
    assert take(small) == [B] and channel.stats().channel_size == 0
    assert not sink.written
    sink.close()


def test_times_of_rows_are_cut_as_the_rows_are() -> None:
    times = RowTimes(7, pa.array([1, 2, 3], pa.int64()))
    assert times.slice(1, 2).ttl_us == 7 and times.slice(1, 2).due_ms.to_pylist() == [2, 3]  # type: ignore[union-attr]
