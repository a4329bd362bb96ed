"""How many tasks a cluster runs at once, and how a worker of Spark's learns it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.errors import PySparkNotImplementedError

import spillable_stream as ss
from spillable_stream.engine.port import PARALLELISM
from spillable_stream.spark.cluster_size import tasks_at_once, tell_workers
from tests.support.object_channels import URL, stores_in_memory
from tests.support.spark.sessions import short_sessions
from tests.support.spark.versions import needs


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, None),
        ({"default.parallelism": "7"}, 7),
        ({"default.parallelism": "7", "executor.instances": "3", "executor.cores": "4"}, 7),
        ({"executor.instances": "3", "executor.cores": "4"}, 12),
        ({"executor.instances": "3", "executor.cores": "4", "task.cpus": "2"}, 6),
        ({"executor.instances": "3"}, None),
        ({"cores.max": "20"}, 20),
        ({"dynamicAllocation.enabled": "true", "executor.instances": "1", "executor.cores": "4"}, None),
        ({"dynamicAllocation.enabled": "true", "dynamicAllocation.maxExecutors": "9", "executor.cores": "4"}, 36),
        ({"default.parallelism": "2147483647"}, 100_000),
        ({"default.parallelism": "many"}, None),
    ],
)  # fmt: skip
def test_the_configuration_says_it_or_nothing_does(settings: dict[str, str], expected: int | None) -> None:
    assert tasks_at_once({f"spark.{name}": value for name, value in settings.items()}.get) == expected


def test_workers_are_told_once() -> None:
    context = SimpleNamespace(environment={}, getConf=lambda: {"spark.default.parallelism": "7"})
    spark = SimpleNamespace(sparkContext=context)
    assert [tell_workers(spark), tell_workers(spark)] == [True, False]
    assert context.environment == {PARALLELISM: "7"}


def test_a_session_of_spark_connect_knows_nothing() -> None:
    class Connected:
        @property
        def sparkContext(self) -> object:
            raise PySparkNotImplementedError(errorClass="NOT_IMPLEMENTED", messageParameters={"feature": "x"})

    assert not tell_workers(Connected())


@pytest.mark.parametrize(("told", "expected"), [("", 64), ("7", 7), ("0", 64), ("many", 64)])
def test_a_read_of_a_store_is_split_for_what_it_is_told(
    told: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PARALLELISM, told)
    with stores_in_memory(), ss.Channel(URL) as channel:
        assert channel.port().tasks_at_once() == expected


_PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from pyspark.sql import SparkSession
import spillable_stream as ss

builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = builder.config("spark.default.parallelism", "3").getOrCreate()
ss.register(spark)
place = "object+file://" + sys.argv[2]
with ss.Channel(place, commit_interval=0) as channel, channel.put_transaction() as tx:
    tx.put_many([ss.Event(bytes(1 << 20))] * 20)
print("batch", spark.read.format("spillable").load(place).rdd.getNumPartitions())
stream = spark.readStream.format("spillable").load(place)
each = lambda df, _: print("stream", df.rdd.getNumPartitions())
stream.writeStream.foreachBatch(each).trigger(availableNow=True).start().awaitTermination()
spark.stop()
"""


@needs(4, 1, "a source that is registered in place of the one that the session found by itself")
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_batch_read_and_a_stream_have_as_many_tasks_as_the_configuration_says(tmp_path: Path) -> None:
    package = Path(ss.__file__).parents[1]
    environment = short_sessions()
    command = [sys.executable, "-c", _PROGRAM, str(package), str(tmp_path / "orders")]
    ran = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert ran.stdout.split("\n")[:2] == ["batch 3", "stream 3"], ran.stderr[-2000:]
