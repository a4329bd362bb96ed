"""A process that takes itself for one of Spark's workers, for tests of its end.

``python worker_like.py CHANNEL HOW``: puts 100 events into memory, says READY, and waits to be ended. HOW says with
what: "source" has begun to read them, "set" too, and those of a channel beside it, "program" likewise, but is no worker
of Spark's, "commit" is inside of a commit, whose sync lasts until a line comes in, and ends when it has said COMMITTED,
and "failing" also has something to close that fails. "twice" has seen children end to which a second signal came at any
step of what the first one starts. "full" can have no more threads.
"""

from __future__ import annotations

import itertools
import os
import select
import signal
import sys
import threading
import time
import types
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

from pyspark.sql.types import StructType

import spillable_stream as ss
from spillable_stream.channel.channel_set import ChannelSet
from spillable_stream.spark.source.read_options import StreamOptions
from spillable_stream.spark.source.set_reader import SpillableSetReader
from spillable_stream.spark.source.worker_end import at_end
from tests.support.events import numbered, put
from tests.support.spark.reader_process import reader


def main(path: str, how: str) -> None:
    """Wait to be ended."""
    if how != "program":
        sys.modules["__main__"].__spec__ = types.SimpleNamespace(name="pyspark.daemon")  # type: ignore[assignment]
    channel = ss.Channel(Path(path), create=False)
    put(channel, *numbered(0, 100))
    if how == "commit":
        at_end(channel.close)
        said = threading.Event()
        at_end(lambda: said.wait(60))  # else the end might come between the commit and what is said of it
        commit_slowly(channel)
        print("COMMITTED", flush=True)
        said.set()
        sys.stdin.read()
        return
    if how == "failing":
        at_end(fail)
    if how == "set":
        read_beside(path)
    else:
        source = reader(path)
        source.latestOffset(source.initialOffset())
    channel.close(flush=False)
    if how == "twice":
        for step in range(1, 10):
            require_end_though_signalled_again(step)
    if how == "full":
        threading.Thread.start = refuse  # type: ignore[method-assign]
    print("READY", flush=True)
    while not select.select([sys.stdin], [], [], 0.05)[0]:  # a signal just before an endless wait would not end it
        pass


def read_beside(path: str) -> None:
    """Put as many events into another channel's memory, and read both as one."""
    with ss.Channel(f"{path}-beside", minimum_required_space=0, memory_capacity=1000) as beside:
        put(beside, *numbered(0, 100))
        both = ChannelSet([path, f"{path}-beside"])
        source = SpillableSetReader(both, StreamOptions.of({"group": "default"}), StructType())
        source.latestOffset(source.initialOffset())


def require_end_though_signalled_again(step: int) -> None:
    """Let a child of this process have a SIGTERM, and another one before a line that runs because of the first."""
    if child := os.fork():
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 128 + signal.SIGTERM, step
        return
    signal.alarm(20)  # ends one that hangs
    lines = itertools.count(1)

    def trace(_: FrameType, event: str, __: Any) -> Any:
        if event == "line" and next(lines) == step:
            signal.raise_signal(signal.SIGTERM)
        return trace

    sys.settrace(trace)
    signal.raise_signal(signal.SIGTERM)
    time.sleep(60)


def refuse(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def fail() -> None:
    raise RuntimeError("nobody expects that")


def commit_slowly(channel: ss.Channel) -> None:
    """Commit more than memory has room for; the sync waits for a line."""
    log = channel.engine().log.tiers.disk
    sync = log._sync

    def slow(*args: object) -> None:
        print("READY", flush=True)
        sys.stdin.readline()
        sync(*args)  # type: ignore[arg-type]

    with mock.patch.object(log, "_sync", slow):
        put(channel, *numbered(100, 1500))


if __name__ == "__main__":
    main(*sys.argv[1:])
