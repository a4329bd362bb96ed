from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import Channel, Event, flow
from spillable_stream.errors import GroupOwnedError, StorageError
from spillable_stream.flow.late_channel import ChannelAwayError
from spillable_stream.flow.sinks.base import BatchSink, Sink, Taken
from spillable_stream.flow.sinks.bucket_sink import BucketSink
from spillable_stream.flow.sinks.written import WrittenEvents
from spillable_stream.flow.sources.base import Status


class Kept(BatchSink):
    def __init__(self) -> None:
        super().__init__(3)
        self.bodies: list[bytes] = []
        self.fails = False

    def write(self, taken: Taken) -> None:
        if self.fails:
            raise StorageError("no")
        self.bodies += taken.batch.column(1).to_pylist()


def filled(channel: Channel) -> Channel:
    with channel.put_transaction() as tx:
        tx.put_many([Event(b"%d" % i) for i in range(1, 6)])
    return channel


def test_events_that_are_written_already_are_skipped_and_committed(open_channel: Callable[..., Channel]) -> None:
    channel, sink, written = filled(open_channel()), Kept(), WrittenEvents()
    written.add([(1, 4)])
    sink.open(channel, written)
    while sink.process() is Status.READY:
        pass
    assert sink.bodies == [b"5"]
    assert not written
    assert channel.stats().channel_size == 0


def test_a_batch_that_fails_is_back_in_the_channel(open_channel: Callable[..., Channel]) -> None:
    channel, sink = filled(open_channel()), Kept()
    sink.open(channel)
    sink.fails = True
    with pytest.raises(StorageError):
        sink.process()
    sink.fails = False
    while sink.process() is Status.READY:
        pass
    assert sink.bodies == [b"1", b"2", b"3", b"4", b"5"]


def test_it_can_wait_for_events_and_takes_none(open_channel: Callable[..., Channel]) -> None:
    channel, sink = open_channel(), Kept()
    sink.open(channel)
    assert not sink.wait(0.001)
    filled(channel)
    assert sink.wait(30)
    sink.process()
    assert sink.bodies == [b"1", b"2", b"3"]


SINKS: list[Callable[[Path], Sink]] = [
    lambda path: flow.ChannelSink(path / "to"),
    flow.FileRoll,
    lambda path: flow.Hdfs(str(path)),
    lambda path: flow.Hdfs("s3://bucket/path"),
    lambda path: flow.HttpSink("http://127.0.0.1:9/"),
    lambda path: flow.Logger(),
    lambda path: flow.Null(),
    lambda path: flow.Parquet(str(path)),
]


@pytest.mark.parametrize("make", SINKS)
def test_a_sink_that_was_never_opened_can_be_closed_and_so_can_one_twice(
    make: Callable[[Path], Sink], open_channel: Callable[..., Channel], tmp_path: Path
) -> None:
    sink = make(tmp_path / "out")
    sink.close()
    assert not (tmp_path / "out").exists()
    if "s3" not in str(getattr(sink, "_path", "")):
        sink.open(open_channel())
        sink.close()
        sink.close()


@pytest.mark.parametrize("make", SINKS)
def test_a_sink_of_a_group_that_is_not_open_yet_says_so_when_it_is_asked(
    make: Callable[[Path], Sink], tmp_path: Path
) -> None:
    with pytest.raises(ChannelAwayError, match="is not open yet, as its channel c2 was away"):
        sink = make(tmp_path / "out")
        sink.channel_name = "c2"
        sink.process()


@pytest.mark.parametrize(
    "make",
    [
        lambda out: flow.FileRoll(out),
        lambda out: flow.Hdfs(f"{out}/d", file_type="DataStream", roll_count=0, roll_size=0),
        lambda out: flow.Hdfs(f"{out}/d", file_type="CompressedStream", codec="gzip", roll_count=0, roll_size=0),
        lambda out: flow.Parquet(f"{out}/d"),
    ],
    ids=["file_roll", "stream", "compressed", "parquet"],
)
def test_a_sink_touches_no_file_of_one_that_takes_from_its_channel_in_another_agent(
    tmp_path: Path, make: Callable[[Path], BucketSink | flow.FileRoll]
) -> None:
    """The agent was started twice. The first one has written events that its note does not name yet."""

    def files() -> dict[Path, bytes]:
        return {p: p.read_bytes() for p in (tmp_path / "out").rglob("*") if p.is_file()}

    path = tmp_path / "c"
    with Channel(path, minimum_required_space=0) as channel, Channel(path, minimum_required_space=0) as other:
        first, second = make(tmp_path / "out"), make(tmp_path / "out")
        first.open(channel)
        with channel.put_transaction() as transaction:
            transaction.put(Event(b"1"))
        first.process()
        for file in (tmp_path / "out").rglob("*"):
            if file.is_file() and not file.name.endswith(".note"):
                file.write_bytes(file.read_bytes() + b"not noted")
        before = files()
        with pytest.raises(GroupOwnedError):
            second.open(other)
        assert files() == before
