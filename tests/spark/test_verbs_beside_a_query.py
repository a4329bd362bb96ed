"""Each verb of the command line beside a Spark query: it works, or refuses in one sentence; each row is stored once.

The query is in a process of its own. It is killed with its tasks under way, and started again from its checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

import spillable_stream as ss
from spillable_stream.cli import app
from tests.support.events import numbered, put
from tests.support.marked import processes_with
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]

BATCH = 20
LONG_SECONDS = 300.0
PROGRAM = """
import os, sys
from tests.spark.conftest import made_session

path, target, checkpoint = sys.argv[1:]
os.environ["PYSPARK_PYTHON"] = sys.executable
spark = made_session()
rows = spark.readStream.format("spillable").option("group", "q").option("maxEventsPerTrigger", 60).load(path)
write = rows.select("body").writeStream.format("spillable").option("checkpointLocation", checkpoint)
query = write.option("minimumRequiredSpace", "0").trigger(processingTime="100 milliseconds").start(target)
query.awaitTermination()
"""


class Query:
    """A process with a session whose query reads as the group ``q``, and writes to another channel."""

    def __init__(self, source: Path, target: Path, checkpoint: Path) -> None:
        self._arguments = [str(source), str(target), str(checkpoint)]
        self._mark = f"query-of-{source}"
        self._log = checkpoint.with_suffix(".log")
        self.start()

    def start(self) -> None:
        path = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *self._arguments],
            env={**os.environ, "PYTHONPATH": path, "QUERY_MARK": self._mark},
            stdout=subprocess.DEVNULL,
            stderr=self._log.open("wb"),
            start_new_session=True,
        )

    def require_alive(self) -> None:
        assert self._process.poll() is None

    def refusal(self) -> str:
        """Return what the query says as it ends by itself."""
        wait_until(lambda: self._process.poll() is not None, LONG_SECONDS)
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        """Kill the driver, its JVM and its tasks' processes at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        processes_with(self._mark).wait_until_gone()


def run(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(a) for a in arguments])
    return done.exit_code, done.stdout + done.stderr


def works(*arguments: object) -> None:
    status, said = run(*arguments)
    assert status == 0, said


def refuses(why: str, *arguments: object) -> None:
    status, said = run(*arguments)
    assert status in (1, 2) and why in said and len(said.strip().splitlines()) == 1, said


def stored(target: Path) -> list[bytes]:
    try:
        with ss.Channel(target, create=False, readonly=True) as channel:
            return [body for batch in channel.read() for body in batch.column("body").to_pylist()]
    except ss.NotAChannelError:
        return []


def lag(source: Path, group: str) -> int:
    with ss.Channel(source, create=False, readonly=True) as channel:
        return channel.stats().groups[group].lag


def test_verbs_beside_a_query_and_beside_its_kill_lose_no_row_and_store_none_twice(tmp_path: Path) -> None:
    source, target, expected = tmp_path / "source", tmp_path / "target", list[bytes]()
    ss.Channel(source, minimum_required_space=0, memory_capacity=30, retention_bytes=10**9).close()
    query = Query(source, target, tmp_path / "checkpoint")

    def more() -> None:
        """Put rows, so that the query is at work during the next verb."""
        with ss.Channel(source, create=False) as channel:
            found = numbered(len(expected), BATCH)
            put(channel, *found)
            expected.extend(found)

    def until(what: Callable[[], object]) -> None:
        wait_until(lambda: query.require_alive() or what(), LONG_SECONDS)

    try:
        more()
        until(lambda: stored(target))
        for verb in (
            lambda: works("verify", source),
            lambda: works("verify", target),
            lambda: works("stats", source),
            lambda: works("describe", source, "--json"),
            lambda: works("groups", "list", source),
            lambda: works("groups", "create", source, "other"),
            lambda: works("groups", "seek", source, "other", "latest", "--yes"),
            lambda: works("groups", "drop", source, "other", "--yes"),
            lambda: refuses("is owned by", "groups", "seek", source, "q", "earliest"),
            lambda: refuses("is owned by", "groups", "seek", source, "q", "latest", "--yes"),
            lambda: refuses("is owned by", "groups", "drop", source, "q", "--yes"),
            lambda: refuses("close it everywhere", "repair", source, "--yes"),
            lambda: works("alter", source, "-o", "keepAlive=5"),
            lambda: works("backup", source, tmp_path / "copy"),
            lambda: refuses("two channels of one identity", "restore", tmp_path / "copy", tmp_path / "second"),
            lambda: works("restore", tmp_path / "copy", tmp_path / "second", "--new-identity"),
            lambda: works("export", source, tmp_path / "out.parquet"),
            lambda: works("top", "--once", "--interval", "0.1", source, target),
        ):
            more()
            verb()
            query.require_alive()
        until(lambda: len(stored(target)) >= len(expected) // 2)
        more()
        query.kill()
        works("verify", source)
        works("backup", source, tmp_path / "copy")
        works("repair", source, "--yes")
        works("repair", target, "--yes")
        works("groups", "list", source)
        query.start()
        more()
        until(lambda: len(stored(target)) >= len(expected))
    finally:
        query.kill()
    assert sorted(stored(target)) == sorted(expected)
    works("verify", source)
    works("verify", target)


def test_a_query_whose_group_was_moved_while_it_was_dead_is_refused_until_it_is_moved_back(tmp_path: Path) -> None:
    source, target, expected = tmp_path / "source", tmp_path / "target", numbered(0, BATCH)
    with ss.Channel(source, minimum_required_space=0, retention_bytes=10**9) as channel:
        put(channel, *expected)
    query = Query(source, target, tmp_path / "checkpoint")

    def until(what: Callable[[], object]) -> None:
        wait_until(lambda: query.require_alive() or what(), LONG_SECONDS)

    try:
        until(lambda: len(stored(target)) == len(expected) and lag(source, "q") == 0)
        query.kill()
        status, said = run("groups", "seek", source, "q", "earliest")
        assert status == 0 and "takes the event 1 next" in said, said
        back = re.search(r"a Spark query reads as 'q', .* seek back to (\w+), or", said)
        assert back, said
        query.start()
        assert "was moved by a seek to the event 1, but the Spark checkpoint has" in query.refusal()
        assert stored(target) == expected
        works("groups", "seek", source, "q", back[1], "--yes")
        query.start()
        with ss.Channel(source, create=False) as channel:
            put(channel, *numbered(BATCH, BATCH))
        expected += numbered(BATCH, BATCH)
        until(lambda: len(stored(target)) >= len(expected))
        query.kill()
        assert stored(target) == expected
    finally:
        query.kill()
    works("verify", source)
