"""What a query's first batch waits for in the Python processes that Spark starts for it: counted, not timed."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import spillable_stream as ss

MOST_MODULES = 260
"""Of this package, that a source of a channel on this host may import: about half a millisecond each."""

MOST_MODULES_OF_A_TASK = 150
"""Likewise, that a task may import which reads some of it."""

WORKER = """
import sys
from collections import Counter

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming import python_streaming_source_runner
from pyspark.sql.types import LongType, StructField, StructType

opened = Counter()
sys.addaudithook(lambda event, args: opened.update([str(args[0])]) if event == "open" else None)

from spillable_stream.spark.datasource import SpillableDataSource

source = SpillableDataSource({"path": sys.argv[1], "group": "g", "maxEventsPerTrigger": "1000"})
reader = source.streamReader(StructType([StructField("id", LongType())]))
if hasattr(DataSourceStreamReader, "getDefaultReadLimit"):
    limit = reader.getDefaultReadLimit()
    end = reader.latestOffset(reader.initialOffset(), limit)
    reader.reportLatestOffset()
else:  # before Spark 4.2
    reader.initialOffset()
    end = reader.latestOffset()
assert reader.partitions(reader.initialOffset(), end)
print(*(name for name in sys.modules if name.startswith("spillable_stream")))
print(*(count for path, count in opened.items() if path.endswith("/channel.json")))
"""

PLANNER = """
import pickle
import sys

from pyspark.sql.types import LongType, StructField, StructType

from spillable_stream.spark.datasource import SpillableDataSource

columns = StructType([StructField("id", LongType())])
one, several = (SpillableDataSource({"path": path}) for path in (sys.argv[1], sys.argv[1] + "*"))
sent = [(source, reader, reader.partitions()) for source in (one, several) for reader in [source.reader(columns)]]
for source in one, several:
    reader = source.streamReader(columns)
    first = reader.initialOffset()
    sent.append((source, reader, reader.partitions(first, reader.latestOffset(first))))
with open(sys.argv[2], "wb") as file:
    pickle.dump(sent, file)
"""

TASK = """
import pickle
import sys

from pyspark import worker
from pyspark.sql.worker import plan_data_source_read

with open(sys.argv[2], "rb") as file:
    sent = pickle.load(file)
for _, reader, partitions in sent:
    assert sum(batch.num_rows for partition in partitions for batch in reader.read(partition)) == 10
print(*(name for name in sys.modules if name.startswith("spillable_stream")))
"""


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of a channel of ten events."""
    path: Path = tmp_path_factory.mktemp("start") / "c"
    with (
        ss.Channel(path, schema=pa.schema([("id", pa.int64())]), minimum_required_space=0) as channel,
        channel.put_transaction() as tx,
    ):
        tx.put_batch(pa.record_batch({"id": list(range(10))}))
    return path


@pytest.fixture(scope="module")
def first_batch(filled: Path) -> tuple[set[str], list[int]]:
    """Return the modules of this package, and how often the channel was opened, once a first batch is planned."""
    found = said_by(WORKER, filled)
    return set(found[0].split()), [int(count) for count in found[1].split()]


@pytest.fixture(scope="module")
def of_a_task(filled: Path, tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Return the modules of this package, once a task has read what every kind of source has planned."""
    sent = tmp_path_factory.mktemp("sent") / "sent"
    said_by(PLANNER, filled, sent)
    return set(said_by(TASK, filled, sent)[0].split())


def said_by(program: str, *arguments: Path | str) -> list[str]:
    """Run a program in a Python of its own, and return the lines that it prints."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.splitlines()


def test_a_source_of_a_directory_imports_nothing_of_stores(first_batch: tuple[set[str], list[int]]) -> None:
    of_stores = {
        name
        for name in first_batch[0]
        if name.startswith(("spillable_stream.objects.", "spillable_stream.engine.store"))
    }
    allowed = {"spillable_stream.objects." + name for name in ("disk_cache", "location", "store")}
    assert of_stores <= allowed


def test_a_source_imports_no_sink_and_no_command(first_batch: tuple[set[str], list[int]]) -> None:
    others = tuple(
        f"spillable_stream.{room}" for room in ("cli", "flow", "integrity", "observe", "producer", "spark.sink", "ui")
    )
    assert not [name for name in first_batch[0] if name.startswith(others)]


def test_a_source_imports_few_modules(first_batch: tuple[set[str], list[int]]) -> None:
    assert "spillable_stream.spark.source.stream_reader" in first_batch[0]
    assert len(first_batch[0]) <= MOST_MODULES


def test_a_first_batch_opens_the_channel_once(first_batch: tuple[set[str], list[int]]) -> None:
    assert first_batch[1] == [1]


def test_a_task_imports_nothing_that_opens_a_channel_or_plans_a_batch(of_a_task: set[str]) -> None:
    of_others = ("channel.channel", "engine.engine", "engine.open_engine", "spark.channel_pool", "spark.sink")
    readers = ("batch_reader", "set_batch_reader", "set_reader", "stream_reader", "stream_query")
    assert not of_a_task & {f"spillable_stream.{name}" for name in of_others}
    assert not of_a_task & {f"spillable_stream.spark.source.{name}" for name in readers}


def test_a_task_imports_few_modules(of_a_task: set[str]) -> None:
    assert "spillable_stream.spark.source.task_reader" in of_a_task
    assert len(of_a_task) <= MOST_MODULES_OF_A_TASK
