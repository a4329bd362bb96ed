"""Exactly once from channel to channel, shown by killing the Spark driver again and again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import spillable_stream as ss

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

KILLS = 10
ROOT = Path(__file__).parent.parent.parent


def start_driver(tmp_path: Path) -> subprocess.Popen[str]:
    """Start a driver in a process group of its own: JVM, planner workers and executors die with it.

    It waits for `begin`.
    """
    arguments = [str(tmp_path / name) for name in ("a", "b", "checkpoint")]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.spark.driver", *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=(tmp_path / "driver.log").open("a"),
        text=True,
        start_new_session=True,
    )


def begin(driver: subprocess.Popen[str], until: str) -> None:
    """Let a driver begin its query."""
    assert driver.stdin is not None
    driver.stdin.write(until + "\n")
    driver.stdin.close()


def wait_for(driver: subprocess.Popen[str], word: str, log: Path) -> None:
    assert driver.stdout is not None
    for line in driver.stdout:
        if line.strip() == word:
            return
    raise AssertionError(f"the driver ended without {word}:\n{log.read_text()[-3000:]}")


def stored(path: Path) -> list[bytes]:
    """Return every body in the channel, in order."""
    with ss.Channel(path, transaction_capacity=1_000_000) as channel:
        tx = channel.take_transaction("check")
        tx.begin()
        found = [row["body"] for row in tx.take_many(1_000_000)]
        tx.rollback()
        tx.close()
        return found


def committed_batches(path: Path) -> int:
    """Return how many micro-batches the channel at ``path`` holds."""
    if not (path / "channel.json").exists():
        return 0
    with ss.Channel(path, create=False, checkpoint_on_close=False) as channel:
        return max(channel.stats().sinks.values(), default=-1) + 1


def test_every_event_is_stored_once_though_the_driver_is_killed(tmp_path: Path) -> None:
    rng = random.Random(20261121)
    put: list[bytes] = []
    batches = [0]

    with ss.Channel(tmp_path / "a", minimum_required_space=0) as channel:

        def put_for(seconds: float) -> None:
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                bodies = [b"%08d" % i for i in range(len(put), len(put) + rng.randint(1, 300))]
                with channel.put_transaction() as tx:
                    tx.put_many(ss.Event(b) for b in bodies)
                put.extend(bodies)
                time.sleep(0.1)

        following = start_driver(tmp_path)
        for kill in range(KILLS):
            driver, following = following, start_driver(tmp_path)
            begin(driver, "forever")
            wait_for(driver, "STARTED", tmp_path / "driver.log")
            put_for(rng.uniform(0.1, 3.0))
            while kill % 2 and committed_batches(tmp_path / "b") <= batches[-1]:
                put_for(0.2)  # every second kill comes while batches go through
            put_for(rng.uniform(0.0, 1.0) if kill % 2 else 0.0)
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
            batches.append(committed_batches(tmp_path / "b"))
        begin(following, "drain")
        wait_for(following, "DONE", tmp_path / "driver.log")
        following.wait(60)

    assert stored(tmp_path / "b") == put
    assert len(set(batches)) > KILLS // 2
