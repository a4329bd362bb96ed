"""What a worker says of itself, and what another process makes of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from spillable_stream import Channel
from spillable_stream.channel.stats import WorkerStats
from spillable_stream.channel.worker_status import (
    decode_status,
    encode_status,
    seen_workers,
    worker_text,
)
from spillable_stream.engine.worker_statuses import SILENT_SECONDS
from spillable_stream.storage.lock import process_note
from tests.support.events import put
from tests.support.object_channels import URL, stores_in_memory

WORKER = WorkerStats("g", "running", True, 12_204, 0, 1, 3, 0, 2, 0, last_error="ValueError: no amount")


def said(worker: WorkerStats = WORKER, **others: object) -> bytes:
    return json.dumps({**json.loads(encode_status(worker)), **others}).encode()


def dead_process() -> str:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return f"pid {process.pid} on {os.uname().nodename}"


def test_a_living_worker_is_seen_as_it_is_with_its_process() -> None:
    assert decode_status(encode_status(WORKER)) == replace(WORKER, process=process_note())


def test_a_worker_whose_process_is_gone_died() -> None:
    found = decode_status(said(process=dead_process()))
    assert found is not None and (found.state, found.is_healthy, found.is_troubled) == ("died", False, True)
    assert found.trouble.startswith("its process, pid ") and found.trouble.endswith(" is gone")


def test_a_worker_that_says_nothing_for_long_is_silent() -> None:
    found = decode_status(said(at=time.time() - SILENT_SECONDS - 1, process="pid 1 on elsewhere"))
    assert found is not None and (found.state, found.is_healthy) == ("silent", False)
    assert "pid 1 on elsewhere, has said nothing for 31 s" in found.trouble


@pytest.mark.parametrize("state", ["ended", "failed"])
def test_what_ended_stays_as_it_was_whatever_became_of_its_process(state: str) -> None:
    found = decode_status(said(replace(WORKER, state=state, is_healthy=False), process=dead_process(), at=0.0))
    assert found is not None and found.state == state and found.is_troubled == (state == "failed")


@pytest.mark.parametrize(
    "status",
    [b"", b"{", b"[]", b"null", b'{"at": 1}', b"\xff", said(at="soon"), b"[" * 200_000],
    ids=lambda status: str(status[:12]),
)
def test_what_another_version_said_otherwise_is_left_out(status: bytes) -> None:
    assert decode_status(status) is None
    assert seen_workers({"g": said(), "h": status}, "gh") == (decode_status(said()),)


def test_what_a_later_version_adds_is_passed_over() -> None:
    assert decode_status(said(colour="blue")) is not None


def test_a_worker_is_told_in_one_line() -> None:
    assert worker_text(WORKER) == "12,204 done · 3 failed calls · 1 dead-lettered · last error: ValueError: no amount"
    troubled = replace(WORKER, failed_calls=1, dead_letter_events=0, waiting_events=2, trouble="the disk is full")
    assert worker_text(troubled) == "12,204 done · 1 failed call · 2 waiting to be tried again · the disk is full"


def test_the_worker_of_a_group_that_was_dropped_is_not_shown(tmp_path: Path) -> None:
    for path in (str(tmp_path / "c"), URL):
        with stores_in_memory(), Channel(path) as channel:
            put(channel, b"a")
            channel.worker("g", lambda event: None).run(until_empty=True)
            with Channel(path, readonly=True) as reader:
                assert [worker.group for worker in reader.stats().workers] == ["g"]
            channel.drop_group("g")
            with Channel(path, readonly=True) as reader:
                assert reader.stats().workers == ()


def test_what_a_function_raised_commands_no_terminal() -> None:
    assert worker_text(replace(WORKER, last_error="E: \x1b[2J")).endswith("last error: E: \\x1b[2J")
