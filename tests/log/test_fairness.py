"""Who gets the channel's lock when several processes want it all the time."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from spillable_stream import Channel
from tests.support import pythons

COMMITTER = """
import os, sys, time
from typing import Any
from spillable_stream import Channel, Event
from spillable_stream.storage.file import File
from spillable_stream.storage.filesystem import FileSystem

class SlowFile(File):
    def sync(self):
        time.sleep(float(sys.argv[2]))
        super().sync()

class SlowFileSystem(FileSystem):
    def open(self, path, **how):
        file = super().open(path, **how)
        slow = SlowFile(path, os.dup(file.fileno()))
        file.close()
        return slow

channel = Channel(sys.argv[1], fs=SlowFileSystem())
print("ready", flush=True)
sys.stdin.readline()
end = time.monotonic() + float(sys.argv[3])
while time.monotonic() < end:
    with channel.put_transaction() as tx:
        tx.put(Event(b"x"))
    print(tx.committed.first_id, flush=True)
channel.close(checkpoint=False, flush=False)
"""


def commits_of(path: Path, processes: int, sync_seconds: float, seconds: float) -> list[list[int]]:
    """Return the IDs that each of some processes gets that commit one event all the time."""
    arguments = [sys.executable, "-c", COMMITTER, str(path), str(sync_seconds), str(seconds)]
    started = [
        pythons.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(processes)
    ]
    for process in started:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    found = [[*map(int, process.communicate(timeout=60)[0].split())] for process in started]
    assert [process.returncode for process in started] == [0] * processes
    return found


@pytest.mark.parametrize(("sync_seconds", "seconds"), [pytest.param(0.25, 5.0, marks=pytest.mark.slow), (0.02, 2.0)])
def test_each_of_some_processes_has_its_share_of_the_lock(path: Path, sync_seconds: float, seconds: float) -> None:
    """At least half of what it would have if all had the same: mostly, since a busy machine may let one stand still."""
    Channel(path, lock_timeout=60, minimum_required_space=0).close()
    found = commits_of(path, 3, sync_seconds, seconds)
    assert min(map(len, found)) > 2, found
    turns = [median(later - earlier for earlier, later in pairwise(ids)) for ids in found]
    assert max(turns) <= 2 * 3, "so many commits of all are to one of its own"
