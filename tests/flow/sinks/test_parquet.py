from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest

from spillable_stream import Channel, Event
from spillable_stream.flow.sinks.destinations import ArrowFiles, Resolved
from spillable_stream.flow.sinks.parquet import Parquet
from spillable_stream.flow.sources.base import Status


@pytest.fixture
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("channel") / "channel"


def drain(sink: Parquet) -> None:
    while sink.process() is Status.READY:
        pass


def test_events_are_rows_and_are_committed_when_the_file_is_closed(
    open_channel: Callable[..., Channel], tmp_path: Path
) -> None:
    channel = open_channel()
    with channel.put_transaction() as tx:
        tx.put_many([Event(b"%d" % i, {"a": str(i % 2)}) for i in range(10)])
    sink = Parquet(f"{tmp_path}/%{{a}}", batch_size=3, roll_count=4, roll_size=0, row_group_events=2)
    sink.open(channel)
    drain(sink)
    assert sink.held_events() == 2
    assert channel.stats().groups["default"].lag == 2
    sink.close()
    assert channel.stats().groups["default"].lag == 0
    files = sorted(tmp_path.rglob("*.parquet"))
    assert [pq.read_metadata(f).num_rows for f in files] == [4, 1, 4, 1]
    rows = [row for f in files for row in pq.read_table(f).to_pylist()]
    assert sorted(int(row["body"]) for row in rows) == list(range(10))
    assert pq.read_metadata(files[0]).num_row_groups == 2
    assert pq.read_table(files[0]).column("headers")[0].as_py() == [("a", "0")]


def test_a_typed_channel_is_written_in_its_own_columns(open_channel: Callable[..., Channel], tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64()), ("s", pa.string())])
    channel = open_channel(schema=schema)
    with channel.put_transaction() as tx:
        tx.put_many([{"n": i, "s": str(i)} for i in range(5)])
    sink = Parquet(f"{tmp_path}/%Y", roll_count=0, roll_size=0, compression="snappy")
    sink.open(channel)
    drain(sink)
    sink.close()
    (file,) = tmp_path.rglob("*.parquet")
    assert pq.read_table(file).to_pylist() == [{"n": i, "s": str(i)} for i in range(5)]


@pytest.mark.parametrize("is_store", [True, False])
def test_a_store_needs_no_other_name_for_an_open_file(
    open_channel: Callable[..., Channel], tmp_path: Path, is_store: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel()
    with channel.put_transaction() as tx:
        tx.put_many([Event(b"x")] * 5)
    sink = Parquet("s3://bucket/x", roll_count=0, roll_size=0)
    sink.system = {"spillable.data.dir": str(tmp_path / "notes")}
    files = ArrowFiles(pa.fs.LocalFileSystem(), is_store=is_store)
    monkeypatch.setattr(sink, "resolve", lambda: Resolved(f"{tmp_path}/out", files, False))
    (tmp_path / "out").mkdir()
    sink.open(channel)
    drain(sink)
    (name,) = (p.name for p in (tmp_path / "out").iterdir())
    assert name.endswith(".parquet" if is_store else ".parquet.tmp")
    sink.close()
    (file,) = (tmp_path / "out").iterdir()
    assert pq.read_metadata(file).num_rows == 5
    assert channel.stats().groups["default"].lag == 0
    assert (tmp_path / "notes").is_dir()


def test_an_object_that_the_end_of_a_process_completed_is_removed_at_the_next_start(
    open_channel: Callable[..., Channel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, out = open_channel(), tmp_path / "out"
    out.mkdir()
    with channel.put_transaction() as tx:
        tx.put_many([Event(b"x")] * 5)
    for _ in range(2):
        sink = Parquet("s3://bucket/x", roll_count=0, roll_size=0, now=lambda: 1.0)
        sink.system = {"spillable.data.dir": str(tmp_path / "notes")}
        files = ArrowFiles(pa.fs.LocalFileSystem(), is_store=True)
        monkeypatch.setattr(sink, "resolve", lambda files=files: Resolved(str(out), files, False))
        sink.open(channel)
        assert list(out.iterdir()) == []
        drain(sink)
        channel.close()  # the process ends, and its open object stays
        channel = open_channel()
        assert len(list(out.iterdir())) == 1
