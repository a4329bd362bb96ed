"""What a query's first batch waits for in the Python process that Spark starts for each source: counted, not timed."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import spillable_stream as ss

MOST_MODULES = 260
"""Of this package, that a source of a channel on this host may import: about half a millisecond each."""

WORKER = """
import sys
from collections import Counter

from pyspark.sql.streaming import python_streaming_source_runner
from pyspark.sql.types import LongType, StructField, StructType

opened = Counter()
sys.addaudithook(lambda event, args: opened.update([str(args[0])]) if event == "open" else None)

from spillable_stream.spark.datasource import SpillableDataSource

source = SpillableDataSource({"path": sys.argv[1], "group": "g", "maxEventsPerTrigger": "1000"})
reader = source.streamReader(StructType([StructField("id", LongType())]))
limit, first = reader.getDefaultReadLimit(), reader.initialOffset()
end = reader.latestOffset(first, limit)
reader.reportLatestOffset()
assert reader.partitions(reader.initialOffset(), end)
print(*(name for name in sys.modules if name.startswith("spillable_stream")))
print(*(count for path, count in opened.items() if path.endswith("/channel.json")))
"""


@pytest.fixture(scope="module")
def first_batch(tmp_path_factory: pytest.TempPathFactory) -> tuple[set[str], list[int]]:
    """Return the modules of this package, and how often the channel was opened, once a first batch is planned."""
    path: Path = tmp_path_factory.mktemp("start") / "c"
    with (
        ss.Channel(path, schema=pa.schema([("id", pa.int64())]), minimum_required_space=0) as channel,
        channel.put_transaction() as tx,
    ):
        tx.put_batch(pa.record_batch({"id": list(range(10))}))
    command = [sys.executable, "-c", WORKER, str(path)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.splitlines()
    return set(found[0].split()), [int(count) for count in found[1].split()]


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
