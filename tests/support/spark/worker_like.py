"""A process that takes itself for one of Spark's workers, for tests of its end.

``python worker_like.py CHANNEL HOW``: puts 100 events into memory, says READY, and waits to be ended. HOW says with
what: "source" has begun to read them, "program" likewise, but is no worker of Spark's, "commit" is inside of a
commit, whose sync lasts until a line comes in, and "failing" also has something to close that fails.
"""

from __future__ import annotations

import sys
import types
from pathlib import Path
from unittest import mock

import spillable_stream as ss
from spillable_stream.spark.worker_end import at_end
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
        commit_slowly(channel)
        sys.stdin.read()
        return
    if how == "failing":
        at_end(fail)
    source = reader(path)
    source.latestOffset(source.initialOffset(), source.getDefaultReadLimit())
    channel.close(flush=False)
    print("READY", flush=True)
    sys.stdin.read()


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
    print("COMMITTED", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
