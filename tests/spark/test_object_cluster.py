"""Channels in an object store, under executors on another host that shares nothing with the driver but the store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest

import spillable_stream as ss
from demo.cluster.moto import S3_ENVIRONMENT, make_bucket, moto_server
from tests.support.spark.cluster import CONFIGURATION, Driver, JobFailedError, driver, missing, other_host, standalone

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]

THERE = "other-host"
SCHEMA = pa.schema([("id", pa.int64()), ("writer", pa.string()), ("body", pa.string())])
ROWS = 1_000
SMALL, LARGE = 10, 2_000  # bytes of a row: a task's rows travel through the driver, or are staged in an object


class Cluster(NamedTuple):
    """A driver here, with one executor on another host.

    Args:
        driver: the driver.
        directory: the driver's, for checkpoints.
    """

    driver: Driver
    directory: Path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if why := missing():
        pytest.skip(why)
    directory = tmp_path_factory.mktemp("objects")
    hidden, foreign, instead = (directory / name for name in ("hidden", "foreign", "instead"))
    for path in (hidden, foreign, instead):
        path.mkdir()
    with (
        pytest.MonkeyPatch.context() as patch,
        other_host(THERE, [hidden], (foreign, instead)) as (near, there),
        moto_server(directory, near.address) as url,
    ):
        make_bucket(url, "bucket")
        make_bucket(url, "unknown-there")
        for name, value in {**S3_ENVIRONMENT, "AWS_ENDPOINT_URL": url, "AWS_ALLOW_HTTP": "true"}.items():
            patch.setenv(name, value)  # what starts now inherits it, here and there
        with (
            standalone(directory, near, [there]) as (master, _),
            driver(directory, {**CONFIGURATION, "spark.master": master}, near.address) as started,
        ):
            yield Cluster(started, hidden)


@pytest.mark.parametrize("body_bytes", [SMALL, LARGE], ids=["small", "large"])
def test_another_host_writes_moves_and_reads_every_row_once_and_in_order(cluster: Cluster, body_bytes: int) -> None:
    source, target = f"s3://bucket/source-{body_bytes}", f"s3://bucket/target-{body_bytes}"
    cluster.driver.do("write", path=source, rows=ROWS, body_bytes=body_bytes)
    checkpoint = cluster.directory / f"checkpoint-{body_bytes}"
    assert cluster.driver.do("stream", source=source, target=target, checkpoint=checkpoint) == 1

    there = [f"{THERE} 0"]
    found = cluster.driver.do("read", path=target)
    assert found == {"ids": list(range(ROWS)), "writer": there, "mover": there, "reader": there}
    with ss.Channel(target, create=False) as channel:
        assert bool(channel.stats().segments) == (body_bytes == LARGE)


def test_a_channel_of_this_host_moves_into_the_store_and_back(cluster: Cluster, tmp_path: Path) -> None:
    """The local channel is on the driver's host: what another host reads of it is refused, what it writes is not."""
    there = "s3://bucket/there"
    cluster.driver.do("write", path=there, rows=ROWS, body_bytes=SMALL)
    local = tmp_path / "local"
    assert cluster.driver.do("stream", source=there, target=local, checkpoint=tmp_path / "down") == 1
    back = "s3://bucket/back"
    assert cluster.driver.do("stream", source=local, target=back, checkpoint=tmp_path / "up") == 1
    assert cluster.driver.do("read", path=back)["ids"] == list(range(ROWS))


def test_a_bucket_that_is_not_there_is_one_clear_sentence(cluster: Cluster) -> None:
    with pytest.raises(JobFailedError) as e:
        cluster.driver.do("read", path="s3://nowhere/orders")
    assert "the bucket 'nowhere' does not exist: create it, or correct the name" in str(e.value)
    for secret in (os.environ.get("AWS_SECRET_ACCESS_KEY", "test-secret"), "test-secret"):
        assert secret not in str(e.value)
