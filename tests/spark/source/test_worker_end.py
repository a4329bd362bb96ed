"""How Spark's workers end, and that memory is on disk then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import spillable_stream as ss
from tests.support import pythons
from tests.support.damage import remove_memory_under
from tests.support.events import numbered, peek
from tests.support.spark import worker_like
from tests.support.spark.sessions import short_sessions


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with ss.Channel(tmp_path / "channel", minimum_required_space=0, memory_capacity=1000):
        pass
    return tmp_path / "channel"


@contextmanager
def worker(path: Path, how: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", worker_like.__name__, path, how]
    with pythons.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "READY\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_source_that_a_signal_ends_moves_memory_to_disk(path: Path, number: signal.Signals) -> None:
    with worker(path, "source") as process:
        process.send_signal(number)
        process.send_signal(number)
        assert process.wait(60) == 128 + number
    assert not os.path.lexists(path / "memory")
    with ss.Channel(path) as channel:
        assert channel.stats().drain_order == [-100]


def test_a_source_of_a_set_that_a_signal_ends_moves_the_memory_of_each_channel_to_disk(path: Path) -> None:
    with worker(path, "set") as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
    for channel in (path, path.with_name("channel-beside")):
        assert not os.path.lexists(channel / "memory")
        with ss.Channel(channel) as opened:
            assert opened.stats().drain_order == [-100]


def test_a_commit_under_way_ends_before_its_worker_does(path: Path) -> None:
    with worker(path, "commit") as process:
        assert process.stdin and process.stdout
        process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        assert process.poll() is None
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.wait(60) == 128 + signal.SIGTERM
        assert process.stdout.read().startswith("COMMITTED\n")
    assert not os.path.lexists(path / "memory")
    with ss.Channel(path) as channel:
        assert peek(channel, 1600) == numbered(0, 1600)


def test_a_worker_ends_though_a_close_fails(path: Path) -> None:
    with worker(path, "failing") as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
    assert not os.path.lexists(path / "memory")


def test_a_worker_ends_though_its_second_signal_interrupts_the_first(path: Path) -> None:
    with worker(path, "twice") as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
    assert not os.path.lexists(path / "memory")


def test_a_worker_that_can_have_no_thread_ends_as_if_it_was_killed(path: Path) -> None:
    with worker(path, "full") as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
    with ss.Channel(path) as channel:
        assert channel.stats().drain_order == [100]


def test_after_a_worker_was_killed_the_next_close_moves_memory_to_disk(path: Path) -> None:
    with worker(path, "source") as process:
        process.kill()
        process.wait(60)
    assert os.path.lexists(path / "memory")
    with ss.Channel(path) as channel:
        assert channel.stats().drain_order == [100]
    assert not os.path.lexists(path / "memory")


def test_a_program_that_is_not_a_worker_of_spark_decides_itself_about_signals(path: Path) -> None:
    with worker(path, "program") as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == -signal.SIGTERM
    assert os.path.lexists(path / "memory")


QUERIES = ["sink", "source", "move"]
PROGRAM = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
import spillable_stream as ss

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
for directory in map(Path, sys.argv[1:]):
    kind, path, other, checkpoint = directory.name, *(str(directory / n) for n in ("channel", "other", "checkpoint"))
    if kind == "sink":
        spark.range(500).selectExpr("CAST(id AS STRING) AS value").write.text(checkpoint + "-rows")
        lines = spark.readStream.format("text").load(checkpoint + "-rows")
        events = lines.selectExpr("CAST(value AS BINARY) AS body")
    else:
        with ss.Channel(path) as channel, channel.put_transaction() as tx:
            channel.consumer("slow")
            tx.put_many(ss.Event(b"%d" % i) for i in range(500))
        events = spark.readStream.format("spillable").option("maxEventsPerTrigger", 100).load(path)
    writer = events.writeStream.option("checkpointLocation", checkpoint)
    if kind == "source":
        writer = writer.format("noop")
    else:
        writer = writer.format("spillable").option("path", path if kind == "sink" else other)
    query = writer.start()
    query.processAllAvailable()
    query.stop()
spark.stop()
"""


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Run every query in one session, which is stopped, and return where their channels are."""
    directory = tmp_path_factory.mktemp("stopped")
    for query in QUERIES:
        for name in ("channel", "other"):
            with ss.Channel(directory / query / name, minimum_required_space=0, memory_capacity=1000):
                pass
    environment = short_sessions()
    command = [sys.executable, "-c", PROGRAM, *(str(directory / query) for query in QUERIES)]
    subprocess.run(command, check=True, timeout=600, env=environment, capture_output=True)
    yield directory
    remove_memory_under(directory)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("query", QUERIES)
def test_after_a_session_stopped_all_is_on_disk(stopped: Path, query: str) -> None:
    path, other = stopped / query / "channel", stopped / query / "other"
    deadline = time.monotonic() + 60
    while os.path.lexists(path / "memory") or os.path.lexists(other / "memory"):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    with ss.Channel(other if query == "move" else path) as channel:
        assert channel.stats().drain_order == [-500]
