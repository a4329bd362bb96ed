"""Spark Connect: a server of its own process, and a client that has no Spark but a connection to it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import spillable_stream as ss
from tests.support.spark.cluster import Driver, JobFailedError, connect_server, driver
from tests.support.spark.versions import needs

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(600)]

ROWS = 1_000
SMALL, LARGE = 10, 2_000  # bytes of a row: a task's rows travel through the driver, or are staged in a file


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    if importlib.util.find_spec("grpc") is None:
        pytest.skip("pyspark[connect] is not installed")
    directory = tmp_path_factory.mktemp("connect")
    with (
        connect_server(directory) as url,
        driver(directory, {"spark.remote": url}) as started,
    ):
        assert started.do("register") == "pyspark.sql.connect.session"
        yield started


@pytest.mark.parametrize("body_bytes", [SMALL, LARGE], ids=["small", "large"])
def test_a_client_writes_moves_and_reads_every_row_once_and_in_order(
    client: Driver, tmp_path: Path, body_bytes: int
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    client.do("write", path=source, rows=ROWS, body_bytes=body_bytes)
    assert client.do("stream", source=source, target=target, checkpoint=tmp_path / "checkpoint") == 1
    assert client.do("read", path=target)["ids"] == list(range(ROWS))


@needs(4, 2, "a source that says to its query's progress what a listener must know")
def test_a_clients_listener_commits_the_last_batch(client: Driver, tmp_path: Path) -> None:
    source = tmp_path / "source"
    client.do("write", path=source, rows=ROWS, body_bytes=SMALL)
    places = {"source": source, "target": tmp_path / "target", "checkpoint": tmp_path / "checkpoint"}
    with ss.Channel(source) as channel:
        ((group, last_id, lag_events),) = client.do("stream_heard", **places)
        assert (list(channel.stats().groups), last_id, lag_events) == ([group], ROWS, 0)
        assert channel.stats().channel_size == 0


def test_a_client_may_register_again(client: Driver) -> None:
    assert client.do("register") == "pyspark.sql.connect.session"


def test_a_client_sees_what_is_wrong(client: Driver, tmp_path: Path) -> None:
    with pytest.raises(JobFailedError, match=f"NotAChannelError: {tmp_path}/none is not a channel: it is missing") as e:
        client.do("read", path=tmp_path / "none")
    assert e.value.explained.startswith(f"{tmp_path}/none is not a channel: it is missing. ")
    assert "\n" not in e.value.explained
    client.do("write", path=tmp_path / "channel", rows=1, body_bytes=SMALL)
    with pytest.raises(JobFailedError, match=r"OptionError: .*maxEventsPerTrigger"):
        client.do("read", path=tmp_path / "channel", maxEventsPerTriger="1")


def test_a_query_of_a_client_fails_with_the_reason(client: Driver, tmp_path: Path) -> None:
    path = tmp_path / "source"
    client.do("write", path=path, rows=ROWS, body_bytes=SMALL)
    job = {"source": path, "target": tmp_path / "target", "checkpoint": tmp_path / "checkpoint"}
    client.do("stream", **job)
    client.do("write", path=tmp_path / "another", rows=1, body_bytes=SMALL)
    with pytest.raises(
        JobFailedError, match="CheckpointMismatchError: the Spark checkpoint belongs to the channel"
    ) as e:
        client.do("stream", **{**job, "source": tmp_path / "another"})
    assert e.value.explained.startswith("the Spark checkpoint belongs to the channel ")
    assert "\n" not in e.value.explained


def test_the_source_needs_no_connect_client() -> None:
    program = """
import sys
sys.modules["grpc"] = None  # as if it were not installed
import spillable_stream.spark.datasource
assert not [name for name in sys.modules if name.startswith("pyspark.sql.connect")]
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
