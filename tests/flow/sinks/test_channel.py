from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream import Channel, Event
from spillable_stream.errors import NotAChannelError, OptionError, StorageError
from spillable_stream.flow.sinks.channel import ChannelSink
from tests.support.broken_disk import SYNCS, broken_disk
from tests.support.events import peek, put
from tests.support.expiry import WallClock


@pytest.mark.parametrize("where", ["", "object+file://"])
def test_events_are_put_into_the_other_channel_as_they_are(
    open_channel: Callable[..., Channel], tmp_path: Path, where: str
) -> None:
    channel, path = open_channel(), f"{where}{tmp_path}/other"
    sink = ChannelSink(path)
    with channel.put_transaction() as tx:
        tx.put_many([Event(b"1", {"a": "x"}), Event(b"2")])
    sink.open(channel)
    sink.process()
    sink.close()
    with Channel(path, create=False) as other, other.take_transaction() as tx:
        assert [(e.body, dict(e.headers)) for e in tx.take_many(10)] == [(b"1", {"a": "x"}), (b"2", {})]
    assert channel.stats().channel_size == 0


def test_a_typed_channel_makes_one_of_its_own_schema(open_channel: Callable[..., Channel], tmp_path: Path) -> None:
    channel, sink = open_channel(schema=pa.schema([("n", pa.int64())])), ChannelSink(str(tmp_path / "other"))
    with channel.put_transaction() as tx:
        tx.put({"n": 7})
    sink.open(channel)
    sink.process()
    sink.close()
    with Channel(tmp_path / "other") as other, other.take_transaction() as tx:
        assert tx.take() == {"n": 7}


@pytest.mark.parametrize("where", ["", "object+file://"])
def test_events_have_what_is_left_of_their_ttl_in_the_other_channel(
    open_channel: Callable[..., Channel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    clock, channel = WallClock(monkeypatch), open_channel()
    with channel.put_transaction() as tx:
        tx.put(Event(b"short"), ttl=30)
        tx.put(Event(b"forever"))
        tx.put_many([Event(b"long"), Event(b"long too")], ttl=90)
    sink = ChannelSink(f"{where}{tmp_path}/other")
    sink.open(channel)
    clock.pass_by(20)
    sink.process()
    sink.close()
    clock.pass_by(11)
    with Channel(f"{where}{tmp_path}/other", create=False) as other:
        with other.take_transaction() as tx:
            assert [e.body for e in tx.take_many(10)] == [b"forever", b"long", b"long too"]
            tx.rollback()
        clock.pass_by(60)
        with other.take_transaction() as tx:
            assert [e.body for e in tx.take_many(10)] == [b"forever"]


@pytest.mark.parametrize("where", ["", "object+file://"])
def test_a_sink_into_the_channel_that_it_takes_from_is_refused(tmp_path: Path, where: str) -> None:
    path = f"{where}{tmp_path}/same"
    with Channel(path) as channel:
        with channel.put_transaction() as tx:
            tx.put(Event(b"1"))
        with pytest.raises(OptionError, match="takes from the channel that it puts into"):
            ChannelSink(path).open(channel)
        assert channel.stats().channel_size == 1


def test_a_sink_into_the_channel_whose_spool_is_in_front_of_its_own_is_refused(tmp_path: Path) -> None:
    path = f"object+file://{tmp_path}/same"
    refused = pytest.raises(OptionError, match="takes from the channel that it puts into")
    with Channel(path, durability="local", spool=tmp_path / "spool") as channel, refused:
        ChannelSink(path).open(channel)


def test_a_path_may_begin_with_the_users_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with Channel(tmp_path / "from") as channel:
        sink = ChannelSink("~/to")
        sink.open(channel)
        sink.close()
    assert (tmp_path / "to" / "channel.json").exists()


def test_the_other_channel_is_opened_again_after_a_storage_failure_but_no_other_one_in_its_place(
    open_channel: Callable[..., Channel], tmp_path: Path
) -> None:
    channel, place, sink = open_channel(), tmp_path / "other", ChannelSink(tmp_path / "other")
    Channel(place, minimum_required_space=0).close()
    put(channel, b"1")
    with broken_disk(place) as disk:
        sink.open(channel)
        sink.process()
        put(channel, b"2")
        disk.breaks(calls=(*SYNCS, "open"))
        for _ in range(2):
            with pytest.raises(StorageError):
                sink.process()
        disk.works()
        place.rename(tmp_path / "away")
        with pytest.raises(NotAChannelError, match="and nothing is there now: mount its disk"):
            sink.process()
        assert not place.exists()
        (tmp_path / "away").rename(place)
        sink.process()
        sink.close()
    with Channel(place, create=False) as other:
        assert peek(other) == [b"1", b"2"]
