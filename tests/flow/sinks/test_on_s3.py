"""The sinks hdfs and parquet on an S3: each event once in closed files, though the sink dies."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from demo.cluster.moto import S3_ENVIRONMENT, make_bucket, moto_server
from spillable_stream import Channel, Event
from spillable_stream.channel.consumer import Consumer
from spillable_stream.errors import StorageError
from spillable_stream.flow.sinks.bucket_sink import BucketSink
from spillable_stream.flow.sinks.hdfs import Hdfs
from spillable_stream.flow.sinks.parquet import Parquet
from spillable_stream.flow.sources.base import Status

pytestmark = pytest.mark.slow

EVENTS = range(30)


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an S3."""
    with moto_server(tmp_path_factory.mktemp("moto")) as url:
        make_bucket(url, "bucket")
        yield url


@pytest.fixture
def store(moto: str, monkeypatch: pytest.MonkeyPatch) -> fs.FileSystem:
    for name, value in (S3_ENVIRONMENT | {"AWS_ENDPOINT_URL": moto}).items():
        monkeypatch.setenv(name, value)
    host = moto.partition("://")[2]
    return fs.S3FileSystem(
        access_key=S3_ENVIRONMENT["AWS_ACCESS_KEY_ID"],
        secret_key=S3_ENVIRONMENT["AWS_SECRET_ACCESS_KEY"],
        region=S3_ENVIRONMENT["AWS_REGION"],
        endpoint_override=host,
        scheme="http",
    )


def text_sink(path: str) -> BucketSink:
    return Hdfs(path, file_type="DataStream", roll_count=4, roll_size=0, roll_interval=0, batch_size=3)


def table_sink(path: str) -> BucketSink:
    return Parquet(path, roll_count=4, roll_size=0, roll_interval=0, batch_size=3)


def bodies(store: fs.FileSystem, directory: str) -> list[int]:
    found: list[int] = []
    for info in store.get_file_info(fs.FileSelector(directory, recursive=True, allow_not_found=True)):
        if not info.is_file:
            continue
        with store.open_input_file(info.path) as file:
            lines = pq.read_table(file).column("body").to_pylist() if ".parquet" in info.path else file.read().split()
        assert 1 <= len(lines) <= 4
        found += map(int, lines)
    return sorted(found)


@pytest.mark.parametrize("make", [text_sink, table_sink])
def test_each_event_is_once_in_an_object_though_the_sink_dies(
    make: Callable[[str], BucketSink],
    open_channel: Callable[..., Channel],
    store: fs.FileSystem,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def die(*_: object) -> None:
        raise StorageError("it dies")

    channel = open_channel(checkpoint_on_close=False)
    with channel.put_transaction() as tx:
        tx.put_many([Event(b"%d" % i, {"app": "ab"[i % 2]}) for i in EVENTS])
    for dies in (True, False):
        sink = make(f"s3a://bucket/{make.__name__}/%{{app}}")
        sink.name, sink.system = "a1.k1", {"spillable.data.dir": str(tmp_path / "notes")}
        sink.open(channel)
        with monkeypatch.context() as patched:
            if dies:  # an object is there, and its events are not committed
                patched.setattr(Consumer, "commit", die)
                with pytest.raises(StorageError, match="it dies"):
                    while sink.process() is Status.READY:
                        pass
        if dies:
            assert bodies(store, f"bucket/{make.__name__}")
            del sink
            gc.collect()  # which completes the objects that were open, as the end of a process may
            channel.close()
            channel = open_channel(checkpoint_on_close=False)
    while sink.process() is Status.READY:
        pass
    sink.close()
    assert bodies(store, f"bucket/{make.__name__}") == list(EVENTS)
    assert channel.stats().channel_size == 0
