"""A process that starts while the store is down: it puts to a spool that is there, and ships when the store is back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spillable_stream import Channel, NotAChannelError, SchemaError, StorageError
from spillable_stream.channel.stored_options import store_options, stored_together
from tests.support.events import numbered, put, take
from tests.support.faulty_store import Fault, FaultyStore, Request
from tests.support.memory_store import MemoryStore
from tests.support.object_channels import URL, stores_in_memory
from tests.support.spools import kill_with_spool, open_spooled, spool_of, without_threads
from tests.support.store_limits import SetLimits

Open = Callable[..., Channel]
TYPED = pa.schema([("name", pa.string())])


class Weather:
    """Whether the stores answer.

    Attributes:
        fault: what they do instead; None: they answer.
        stores: the stores.
    """

    def __init__(self) -> None:
        self.fault: Fault | None = None
        self.stores: dict[str, MemoryStore] = {}

    def __call__(self, request: Request) -> Fault | None:
        return self.fault if request.kind in ("create", "get", "get_range", "list") else None


@pytest.fixture
def weather(monkeypatch: pytest.MonkeyPatch, set_limits: SetLimits) -> Iterator[Weather]:
    without_threads(monkeypatch)
    set_limits(answer_seconds=0)
    weather = Weather()
    with stores_in_memory(lambda store: FaultyStore(store, weather)) as stores:
        weather.stores = stores
        yield weather


@pytest.fixture
def opened(weather: Weather, tmp_path: Path) -> Iterator[Open]:
    """Open handles with a spool, of which nothing is shipped but by a flush or a close."""
    with ExitStack() as stack:

        def open_one(url: str = URL, **options: Any) -> Channel:
            channel = open_spooled(options.pop("spool", tmp_path / "spool"), url, **options)
            stack.callback(channel.close)
            return channel

        yield open_one
        weather.fault = None


@pytest.mark.parametrize("durability", ["local", "memory"])
def test_it_puts_and_ships_in_order_when_the_store_is_back(opened: Open, weather: Weather, durability: str) -> None:
    channel = opened(durability=durability)
    put(channel, *numbered(0, 3))
    channel.flush()
    put(channel, *numbered(3, 3))
    channel.close(flush=False)
    weather.fault = Fault.UNAVAILABLE
    channel = opened(durability=durability)
    put(channel, *numbered(6, 3))
    stats = channel.stats()
    assert stats.spool is not None and stats.spool.events == 6
    for call in (channel.flush, lambda: take(channel), channel.engine().follow):
        with pytest.raises(StorageError):
            call()  # type: ignore[operator]
    weather.fault = None
    assert channel.flush() == 6
    assert take(channel) == numbered(0, 9)


def test_what_others_did_meanwhile_is_followed(opened: Open, weather: Weather, tmp_path: Path) -> None:
    opened().close()
    with Channel(URL, commit_interval=0) as other:
        put(other, b"another's")
        weather.fault = Fault.UNAVAILABLE
        channel = opened()
        put(channel, b"mine")
        weather.fault = None
        assert take(other) == [b"another's"]
        for _ in range(3):
            put(other, b"x")
            take(other)
        channel.flush()
        assert take(other) == [b"mine"]


def test_a_typed_channel_keeps_its_columns(opened: Open, weather: Weather) -> None:
    opened(schema=TYPED).close()
    weather.fault = Fault.UNAVAILABLE
    channel = opened(schema=TYPED)
    with channel.put_transaction() as tx:
        tx.put_batch(pa.record_batch({"name": ["a"]}, TYPED))
    with pytest.raises(StorageError):
        opened(schema=TYPED.append(pa.field("count", pa.int64())))
    with pytest.raises(SchemaError):
        opened(schema=pa.schema([("name", pa.int64())]))
    weather.fault = None
    assert channel.flush() == 1


def in_a_block(opened: Open) -> None:
    with stored_together():
        opened(transaction_capacity=70)


def when_it_resumes(opened: Open) -> None:
    channel = opened(transaction_capacity=50)
    channel.park()
    assert channel.resume(transaction_capacity=70)


@pytest.mark.parametrize("change", [in_a_block, when_it_resumes])
def test_it_begins_with_the_options_that_a_handle_stored_after_its_open(
    opened: Open, weather: Weather, change: Callable[[Open], None]
) -> None:
    opened(transaction_capacity=50).close()
    change(opened)
    weather.fault = Fault.UNAVAILABLE
    channel = opened(transaction_capacity=70)
    put(channel, b"x")
    weather.fault = None
    assert channel.flush() == 1


def test_it_begins_with_the_old_options_where_new_ones_were_taken_back(
    opened: Open, weather: Weather, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(request: object) -> None:
        raise StorageError("the disk is gone")

    opened(transaction_capacity=50).close()
    other = Channel(tmp_path / "other", keep_alive=2.0)
    with monkeypatch.context() as failing, pytest.raises(StorageError, match="disk is gone"), stored_together():
        opened(transaction_capacity=70)
        failing.setattr(other.engine(), "commit", refuse)
        store_options(other.engine(), {"keep_alive": 3.0})
    other.close()
    weather.fault = Fault.UNAVAILABLE
    put(opened(transaction_capacity=50), b"x")


def test_it_begins_with_the_columns_that_a_handle_added_after_its_open(opened: Open, weather: Weather) -> None:
    more = TYPED.append(pa.field("count", pa.int64()))
    opened(schema=TYPED).evolve(more)
    weather.fault = Fault.UNAVAILABLE
    channel = opened(schema=more)
    with channel.put_transaction() as tx:
        tx.put_batch(pa.record_batch({"name": ["a"], "count": [1]}, more))
    weather.fault = None
    assert channel.flush() == 1


def test_a_spool_that_is_new_cannot_begin_without_the_store(opened: Open, weather: Weather, tmp_path: Path) -> None:
    opened().close()
    weather.fault = Fault.UNAVAILABLE
    with pytest.raises(StorageError):
        opened(spool=tmp_path / "new")
    assert not (tmp_path / "new").exists()
    with pytest.raises(StorageError):
        opened("s3://bucket/others")
    with pytest.raises(StorageError):
        Channel(URL)


def test_a_store_that_refuses_for_good_is_an_error_at_once(opened: Open, weather: Weather) -> None:
    opened().close()
    weather.fault = Fault.REFUSED
    with pytest.raises(StorageError):
        opened()


def test_a_channel_that_was_removed_meanwhile_is_said_and_nothing_is_lost(opened: Open, weather: Weather) -> None:
    opened().close()
    weather.fault = Fault.UNAVAILABLE
    channel = opened()
    put(channel, b"waits")
    weather.fault = None
    whole = dict(weather.stores[URL].objects)
    weather.stores[URL].objects.clear()
    with pytest.raises(NotAChannelError, match="no longer at s3://bucket/orders"):
        channel.flush()
    weather.stores[URL].objects |= whole
    channel.close()
    assert opened().stats().spool.events in (0, 1)  # type: ignore[union-attr]


def test_a_process_that_was_killed_does_not_keep_the_next_one_from_beginning(opened: Open, weather: Weather) -> None:
    channel = opened()
    put(channel, b"1")
    kill_with_spool(channel)
    weather.fault = Fault.UNAVAILABLE
    channel = opened()
    put(channel, b"2")
    weather.fault = None
    channel.flush()
    assert take(channel) == [b"1", b"2"]


def test_threads_that_put_while_the_store_comes_and_goes_lose_nothing(opened: Open, weather: Weather) -> None:
    opened().close()
    weather.fault = Fault.UNAVAILABLE
    channel = opened()
    threads = [threading.Thread(target=put, args=(channel, b"%d" % i)) for i in range(8)]
    for thread in threads:
        thread.start()
    for fault in (None, Fault.UNAVAILABLE, None):
        weather.fault = fault
        spool_of(channel).run_once()
    for thread in threads:
        thread.join()
    channel.flush()
    assert sorted(take(channel)) == sorted(b"%d" % i for i in range(8))
