"""An agent is killed again and again, while its input grows and is rotated: each line is once in each output.

The flow is taildir → two required channels → a file sink each. The second channel is small, so it is full most of the
time. Logs are rotated by a new file and by copytruncate, and the configuration changes now and then. What each dead
agent left is counted, so that a run says what it has met: ``pytest -s`` prints the figures.
"""

from __future__ import annotations

import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from spillable_stream import Channel
from spillable_stream.cli import app
from spillable_stream.errors import SpillableError
from spillable_stream.flow.sinks.written import Note, NoteFile, uncommitted
from tests.lab.children import Child
from tests.lab.size import sized

CONFIGURATION = """
a1.sources = r1
a1.channels = c1 c2
a1.sinks = k1 k2
a1.sources.r1.type = TAILDIR
a1.sources.r1.filegroups = g
a1.sources.r1.filegroups.g = {dir}/logs/app.*
a1.sources.r1.positionFile = {dir}/positions.json
a1.sources.r1.batchSize = {source_batch}
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
a1.sinks.k1.sink.batchSize = {sink_batch}
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
        self.rotations: Counter[str] = Counter()
        self.lines = 0

    def grow(self) -> None:
        with self._path.open("a") as f:
            for _ in range(self._chance.randrange(1, 25)):
                f.write(f"line {self.lines}\n")
                self.lines += 1

    def rotate(self) -> None:
        old = self._path.with_name(f"app.log.{self.rotations.total() + 1}")
        if self._chance.random() < 0.5:
            self._path.rename(old)
            self.rotations["new files"] += 1
        else:
            shutil.copyfile(self._path, old)
            os.truncate(self._path, 0)
            self.rotations["copytruncate"] += 1


def configure(place: Path, chance: random.Random) -> None:
    """Change the configuration, as a whole: a source, a sink of files, or the sink of the full channel."""
    given = {"source_batch": [5, 7], "sink_batch": [3, 11], "roll_count": [10, 25]}
    text = CONFIGURATION.format(dir=place, **{name: chance.choice(values) for name, values in given.items()})
    (place / "new.conf").write_text(text)
    (place / "new.conf").replace(place / "flume.conf")


def words(place: Path) -> list[str]:
    return ["agent", "-n", "a1", "-f", str(place / "flume.conf")]


def agent(place: Path) -> Child:
    """Return an agent that runs: a fork, which has imported everything, so that 500 start in minutes."""

    def be() -> None:
        logging.disable(logging.NOTSET)
        logging.getLogger().handlers.clear()
        app(words(place), standalone_mode=False)

    return Child(be, place / "agent.log", seconds=3600)


def left(place: Path) -> set[str]:
    """Return in which states a dead agent left its channels and files; it looks, and changes nothing."""
    found = set()
    try:
        with Channel(place / "c1", readonly=True) as c1, Channel(place / "c2", readonly=True) as c2:
            if c1.last_batch("a1.r1").sequence != c2.last_batch("a1.r1").sequence:
                found.add("a batch in one channel only")
            if c2.stats().channel_size > 20 - 7:
                found.add("the second channel full")
            for sink, out, channel in (("a1.k1", "out1", c1), ("a1.k2", "out2", c2)):
                note = noted(place / out, sink, channel)
                if any(os.path.exists(p) and os.path.getsize(p) > length for p, length in note.files.items()):
                    found.add("bytes that no note has")
                if uncommitted(channel, "default", note.ranges, note.token):
                    found.add("events written and not committed")
                if note.files:
                    found.add("an open file")
    except SpillableError:
        found.add("channels that it had not made")
    return found


def noted(directory: Path, sink: str, channel: Channel) -> Note:
    """Return a sink's note; a copy is read, since a read of the note itself replaces it."""
    with tempfile.TemporaryDirectory() as copy:
        for path in directory.glob(f".spillable-{sink}.note"):
            shutil.copy(path, copy)
        return NoteFile(copy, sink).read(channel) or Note(channel.uuid)


def noted_left(place: Path) -> set[str]:
    """Return what `left` does, found by a fork, so that this process has no thread that a fork would miss."""
    with Child(lambda: (place / "left").write_text("\n".join(left(place))), place / "agent.log") as child:
        assert child.wait() == 0, (place / "agent.log").read_text()[-5000:]
    return set((place / "left").read_text().splitlines())


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
    log, met = Log(tmp_path, chance), Counter[str]()
    for _ in range(sized(ci=6, full=500)):
        configure(tmp_path, chance)
        process = agent(tmp_path)
        try:
            before, left_seconds = last_write(tmp_path / "c1"), chance.uniform(0.1, 2.0)
            dies_young, at_work = chance.random() < 0.2, False
            end = time.monotonic() + (left_seconds if dies_young else 60.0)
            while time.monotonic() < end and process.alive():
                if not at_work and last_write(tmp_path / "c1") > before:
                    at_work, end = True, time.monotonic() + left_seconds
                if chance.random() < (0.4 if at_work else 0.05):
                    log.grow()
                    if chance.random() < 0.2:
                        log.rotate()
                if chance.random() < 0.1:
                    configure(tmp_path, chance)
                    if at_work:  # before, the signal would end it
                        os.kill(process.pid, signal.SIGHUP)
                time.sleep(chance.uniform(0.0, 0.05))
        finally:
            assert process.kill(), f"it ended before: {(tmp_path / 'agent.log').read_text()[-5000:]}"
        met.update({"kills", "kills at work" if at_work else "kills at the start"} | noted_left(tmp_path))
    text = (tmp_path / "agent.log").read_text()
    met["reloads"] = text.count("the configuration of the agent a1 has changed")
    print(f"\n{log.lines} lines; rotations: {dict(log.rotations)}; {dict(met)}")
    with (tmp_path / "agent.log").open("ab") as f:
        command = [sys.executable, "-m", "spillable_stream", *words(tmp_path), "--once"]
        done = subprocess.run(command, stdout=f, stderr=f, timeout=2400)
    assert done.returncode == 0, (tmp_path / "agent.log").read_text()[-5000:]
    expected = Counter(f"line {i}" for i in range(log.lines))
    for out in ("out1", "out2"):
        found = written(tmp_path, out)
        assert not found - expected, f"{out} has lines more than once: {found - expected}"
        assert not expected - found, f"{out} lacks lines: {expected - found}"
    assert not list((tmp_path / "out2").rglob("*.tmp"))
