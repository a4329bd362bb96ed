"""An agent is killed again and again, while its input grows and is rotated: each line is once in each output.

The flow is taildir → two required channels → a file sink each. The second channel is small, so it is full most of the
time. Logs are rotated by a new file and by copytruncate, and the configuration changes now and then.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from tests.lab.size import sized

CONFIGURATION = """
a1.sources = r1
a1.channels = c1 c2
a1.sinks = k1 k2
a1.sources.r1.type = TAILDIR
a1.sources.r1.filegroups = g
a1.sources.r1.filegroups.g = {dir}/logs/app.*
a1.sources.r1.positionFile = {dir}/positions.json
a1.sources.r1.batchSize = 7
a1.sources.r1.writePosInterval = 20
a1.sources.r1.maxBackoffSleep = 10
a1.sources.r1.channels = c1 c2
a1.channels.c1.type = file
a1.channels.c1.checkpointDir = {dir}/c1
a1.channels.c1.minimumRequiredSpace = 0
a1.channels.c2.type = file
a1.channels.c2.checkpointDir = {dir}/c2
a1.channels.c2.minimumRequiredSpace = 0
a1.channels.c2.capacity = 20
a1.channels.c2.transactionCapacity = 20
a1.channels.c2.keep-alive = 0
a1.sinks.k1.type = file_roll
a1.sinks.k1.sink.directory = {dir}/out1
a1.sinks.k1.sink.batchSize = 11
a1.sinks.k1.channel = c1
a1.sinks.k2.type = hdfs
a1.sinks.k2.hdfs.path = {dir}/out2
a1.sinks.k2.hdfs.fileType = DataStream
a1.sinks.k2.hdfs.rollCount = {roll_count}
a1.sinks.k2.hdfs.batchSize = 3
a1.sinks.k2.channel = c2
"""


class Log:
    """A log that grows and is rotated."""

    def __init__(self, place: Path, chance: random.Random) -> None:
        self._path = place / "logs" / "app.log"
        self._chance = chance
        self._rotations = 0
        self.lines = 0

    def grow(self) -> None:
        with self._path.open("a") as f:
            for _ in range(self._chance.randrange(1, 25)):
                f.write(f"line {self.lines}\n")
                self.lines += 1

    def rotate(self) -> None:
        self._rotations += 1
        old = self._path.with_name(f"app.log.{self._rotations}")
        if self._chance.random() < 0.5:
            self._path.rename(old)
        else:
            shutil.copyfile(self._path, old)
            os.truncate(self._path, 0)


def agent(place: Path, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "spillable_stream", "agent", "-n", "a1", "-f", str(place / "flume.conf"), *more]
    with (place / "agent.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log)


def written(place: Path, out: str) -> Counter[str]:
    files = [p for p in (place / out).rglob("*") if p.is_file() and not p.name.startswith(".")]
    return Counter(line for p in files for line in p.read_text().splitlines())


def last_write(place: Path) -> int:
    """Return when a file of a directory was written last."""
    times = [0]
    for path in place.rglob("*"):
        with suppress(FileNotFoundError):  # the agent has removed it
            times.append(path.stat().st_mtime_ns)
    return max(times)


@pytest.mark.crash
@pytest.mark.timeout(3600)
def test_an_agent_that_is_killed_at_any_moment_writes_each_line_once(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    chance = random.Random(4711)
    log = Log(tmp_path, chance)
    for _ in range(sized(ci=6, full=500)):
        roll_count = chance.choice([10, 25])
        (tmp_path / "flume.conf").write_text(CONFIGURATION.format(dir=tmp_path, roll_count=roll_count))
        process = agent(tmp_path)
        try:
            before, left_seconds = last_write(tmp_path / "c1"), chance.uniform(0.1, 2.0)
            dies_young, at_work = chance.random() < 0.2, False
            end = time.monotonic() + (left_seconds if dies_young else 60.0)
            while time.monotonic() < end and process.poll() is None:
                if not at_work and last_write(tmp_path / "c1") > before:
                    at_work, end = True, time.monotonic() + left_seconds
                if chance.random() < (0.4 if at_work else 0.05):
                    log.grow()
                    if chance.random() < 0.2:
                        log.rotate()
                if chance.random() < 0.1:
                    text = CONFIGURATION.format(dir=tmp_path, roll_count=35 - roll_count)
                    (tmp_path / "flume.conf").write_text(text)
                    if at_work:  # before, the signal would end it
                        process.send_signal(signal.SIGHUP)
                time.sleep(chance.uniform(0.0, 0.05))
        finally:
            process.kill()
            process.wait()
    done = agent(tmp_path, "--once")
    assert done.wait(2400) == 0, (tmp_path / "agent.log").read_text()[-5000:]
    expected = Counter(f"line {i}" for i in range(log.lines))
    for out in ("out1", "out2"):
        found = written(tmp_path, out)
        assert not found - expected, f"{out} has lines more than once: {found - expected}"
        assert not expected - found, f"{out} lacks lines: {expected - found}"
    assert not list((tmp_path / "out2").rglob("*.tmp"))
