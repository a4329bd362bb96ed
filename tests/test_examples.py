"""The examples do what they say."""

from __future__ import annotations

import os
import random
import runpy
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import spillable_stream as ss
from spillable_stream import Channel
from spillable_stream.errors import SendFailedError
from tests.lab.children import wait_until
from tests.support.events import peek

TAIL = Path(__file__).parent.parent / "examples" / "tail" / "tail.py"


def start(*arguments: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, TAIL, *map(str, arguments)])


def stored(path: Path) -> int:
    if not (path / "channel.json").exists():
        return 0
    with Channel(path, create=False) as channel:
        return channel.stats().channel_size


def test_a_log_that_grows_and_rotates_is_tailed_once_however_often_the_tail_is_killed(tmp_path: Path) -> None:
    log, channel, rng = tmp_path / "app.log", tmp_path / "channel", random.Random(5)
    wanted: list[bytes] = []

    def all_stored() -> bool:
        return stored(channel) == len(wanted)

    log.touch()
    for turn in range(4):
        child = start(log, channel)
        for _ in range(20):
            lines = [b"line %d %s" % (len(wanted) + i, b"x" * rng.randrange(50)) for i in range(rng.randrange(60))]
            wanted.extend(lines)
            with log.open("ab") as file:
                for line in lines:
                    file.write(line[:3])
                    file.flush()
                    file.write(line[3:] + b"\n")
            time.sleep(0.01)
        if turn == 1:  # a tail that runs finishes the old file, and goes on with the new one
            assert wait_until(all_stored)
            os.rename(log, tmp_path / "app.log.1")
            log.touch()
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert start(log, channel, "--once").wait(60) == 0
    with Channel(channel) as found:
        assert peek(found) == wanted


def test_a_line_that_is_still_being_written_waits_for_its_end(tmp_path: Path) -> None:
    log, channel = tmp_path / "app.log", tmp_path / "channel"
    for more, wanted in [(b"one\ntw", [b"one"]), (b"o\n\n", [b"one", b"two", b""]), (b"", [b"one", b"two", b""])]:
        with log.open("ab") as file:
            file.write(more)
        assert start(log, channel, "--once").wait(60) == 0
        with Channel(channel) as found:
            assert peek(found) == wanted


def test_a_tail_that_is_terminated_sends_what_it_read(tmp_path: Path) -> None:
    log, channel = tmp_path / "app.log", tmp_path / "channel"
    log.write_bytes(b"one\n" * 2_500)
    child = start(log, channel)
    assert wait_until(lambda: stored(channel) > 0)
    child.terminate()
    assert child.wait(60) == 128 + signal.SIGTERM
    assert stored(channel) == 2_500


def test_a_tail_whose_lines_the_channel_refuses_fails_and_continues_there_once_it_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, path = tmp_path / "app.log", tmp_path / "channel"
    log.write_bytes(b"".join(b"line %d\n" % i for i in range(2_500)))
    tail: Any = runpy.run_path(str(TAIL))["tail"]
    with Channel(path, overflow_capacity=1_500, transaction_capacity=1_000, keep_alive=0) as channel:
        with monkeypatch.context() as impatient, pytest.raises(SendFailedError, match="ChannelFullError"):
            impatient.setattr(ss, "Producer", partial(ss.Producer, retries=0))
            tail(log, channel, follow=False)
        assert stored(path) == 1_000
    with Channel(path, overflow_capacity=10_000, transaction_capacity=10_000) as channel:
        tail(log, channel, follow=False)
        assert peek(channel) == log.read_bytes().splitlines()
