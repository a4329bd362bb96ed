"""Parts of a batch are put at once, and wait for room as long as their channels say."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, nullcontext
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import Channel, Event, UnsafeStoreError
from spillable_stream.channel.put_transaction import PutTransaction
from spillable_stream.errors import ChannelFullError, DeliveryError
from spillable_stream.flow.part_puts import PartPuts
from spillable_stream.flow.processor import ChannelProcessor
from spillable_stream.flow.selectors import Replicating
from tests.support.events import peek, take
from tests.support.faulty_store import FaultyStore
from tests.support.flow_batches import batch_of
from tests.support.no_threads import no_threads
from tests.support.object_channels import URL, log_of, stores_in_memory
from tests.support.spools import open_spooled, without_threads


def test_puts_into_several_channels_run_at_the_same_time_and_say_which_failed() -> None:
    meeting = threading.Barrier(3, timeout=30)

    def put(name: str) -> Exception | None:
        meeting.wait()
        return ChannelFullError("it is full") if name == "c2" else None

    with closing(PartPuts(dict.fromkeys(("c1", "c2", "c3")))) as puts:  # type: ignore[arg-type]
        assert [(name, str(error)) for name, error in puts.at_once(["c1", "c2", "c3"], put).items()] == [
            ("c2", "it is full")
        ]


def test_a_put_waits_for_room_until_what_feeds_it_is_stopped(tmp_path: Path) -> None:
    full: dict[str, Any] = {"memory_capacity": 0, "overflow_capacity": 1, "keep_alive": 600}
    with (
        Channel(tmp_path / "c1", minimum_required_space=0, **full) as channel,
        ChannelProcessor({"c1": channel}) as processor,
        ThreadPoolExecutor(1) as pool,
    ):
        processor.process(batch_of(b"1"))
        second = pool.submit(processor.process, batch_of(b"2"))
        assert not second.done()
        assert take(channel) == [b"1"]
        assert second.result(60).stored == {"c1": 1}
        third = pool.submit(processor.process, batch_of(b"3"))
        processor.puts.end_waiting(0)
        with pytest.raises(DeliveryError, match="is not in c1"):
            third.result(60)


@pytest.mark.parametrize("is_spooled", [False, True])
def test_a_part_is_put_also_into_an_optional_channel_that_tells_a_loss_of_earlier_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_spooled: bool
) -> None:
    without_threads(monkeypatch)
    with (
        stores_in_memory(FaultyStore),
        Channel(tmp_path / "must") as must,
        open_spooled(tmp_path / "spool") if is_spooled else Channel(URL, commit_interval=0) as may,
    ):
        with ChannelProcessor({"must": must, "may": may}, selector=Replicating(optional=["may"])) as processor:
            with log_of(may).untold_loss.block():
                raise UnsafeStoreError("lost")
            processor.process(batch_of(b"1"))
        may.flush()
        assert peek(may) == [b"1"]


def test_a_loss_that_a_put_itself_meets_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be in the log or not."""

    def lose(self: PutTransaction) -> None:
        raise UnsafeStoreError("lost")

    monkeypatch.setattr(PutTransaction, "_commit", lose)
    with (
        Channel(tmp_path / "c") as channel,
        ChannelProcessor({"c": channel}) as processor,
        pytest.raises(DeliveryError, match="lost"),
    ):
        processor.process(batch_of(b"1"))


def test_an_optional_channel_that_is_full_is_passed_over_without_waiting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Channel(tmp_path / "must") as must, Channel(tmp_path / "may", overflow_capacity=1, keep_alive=600) as may:
        with ChannelProcessor({"must": must, "may": may}, selector=Replicating(optional=["may"])) as processor:
            for body in (b"1", b"2"):
                processor.process(batch_of(body))
        assert (peek(must), peek(may)) == ([b"1", b"2"], [b"1"])
    assert "the optional channel may did not get 1 event: it is full" in caplog.text


def test_a_source_behind_a_sink_that_holds_its_batch_continues_to_disk_after_one_wait(
    open_channel: Callable[..., Channel],
) -> None:
    tiers = {"memory_capacity": 10, "overflow_capacity": 1000}
    channel = open_channel(overflow_timeout=0, **tiers)
    processor = ChannelProcessor({"c": channel})
    processor.process([Event(b"x")] * 10)
    with channel.take_transaction() as sink:
        assert len(sink.take_many(6)) == 6
        processor.process([Event(b"x")] * 5)
        assert channel.stats().drain_order == [10, -5]
        open_channel(overflow_timeout=86_400)  # so another wait would not end
        for _ in range(3):
            processor.process([Event(b"x")] * 5)
        assert channel.stats().drain_order == [10, -20]
        sink.rollback()
    assert len(take(channel)) == 30


@pytest.mark.parametrize("there", [0, 1])
def test_a_batch_is_put_once_into_each_channel_where_no_thread_can_be_started(tmp_path: Path, there: int) -> None:
    """Though a pool of Python's keeps a put for which it found no thread, and makes it later."""
    with ExitStack() as stack:
        channels = {name: stack.enter_context(Channel(tmp_path / name)) for name in ("c1", "c2", "c3")}
        with ChannelProcessor(channels) as processor:
            with no_threads() if not there else nullcontext():
                processor.process(batch_of(b"1"))
            with no_threads():
                processor.process(batch_of(b"2"))
            processor.process(batch_of(b"3"))
        assert [take(channel) for channel in channels.values()] == [[b"1", b"2", b"3"]] * 3
