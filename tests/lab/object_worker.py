"""A process that puts into a channel of objects, takes from it or collects in it, until it is killed.

Between a plan and its request it is stopped now and then, as a host is that is paused: the harness wakes it.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from spillable_stream import Channel, CommitOutcomeUnknownError, GroupOwnedError
from spillable_stream.format.frame import Payload
from spillable_stream.objects.slots import Slots
from tests.lab.delaying import put_late
from tests.lab.ledger import Ledger, LedgerFile
from tests.lab.worker import put_something, take_something
from tests.support.store_limits import AT_ONCE, set_limits

__all__ = ["OPTIONS", "ROLES", "at_once", "open_channel", "work_on_objects"]

OPTIONS: dict[str, Any] = {
    "commit_interval": 0,
    "gc_delay": 0,
    "max_inline_bytes": 4_000,
    "checkpoint_on_close": False,
}
_ANSWER_SECONDS = 0.1  # the owners of groups look every second: most are taken over while they live
_STOPS = 0.08  # of all requests that would create a slot
_REOPENS = 0.03  # of all transactions
_DELAYS = 0.3  # of all puts
_LONGEST_DELAY_SECONDS = 0.5


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    """Let the channels of this process merge, trim and collect all that they may, and wait for no owner."""
    with pytest.MonkeyPatch.context() as patch:
        set_limits(patch, **{**AT_ONCE, "answer_seconds": _ANSWER_SECONDS})
        yield


def open_channel(url: str, **options: Any) -> Channel:
    """Open a channel; within `at_once`."""
    return Channel(url, **{**OPTIONS, **options})


def _put(channel: Channel, ledger: Ledger, name: str, rng: random.Random, number: int, broken: str) -> None:
    if not broken and rng.random() < _DELAYS:
        put_late(channel, ledger, name, rng, number, rng.uniform(0.001, _LONGEST_DELAY_SECONDS))
    else:
        put_something(channel, ledger, name, rng, number, broken)


def _take(channel: Channel, ledger: Ledger, name: str, rng: random.Random, number: int, broken: str) -> None:
    take_something(channel, ledger, rng, broken)


def _collect(channel: Channel, ledger: Ledger, name: str, rng: random.Random, number: int, broken: str) -> None:
    channel.checkpoint()
    time.sleep(rng.choice([0, 0, 0.02]))


ROLES: dict[str, Callable[[Channel, Ledger, str, random.Random, int, str], None]] = {
    "put": _put,
    "take": _take,
    "collect": _collect,
}
"""What each process does, again and again."""


def work_on_objects(what: str, url: str, ledger_path: Path, name: str, seed: int, broken: str) -> None:
    """Work until killed.

    Args:
        what: one of `ROLES`.
        url: the channel.
        ledger_path: where to write down what is done.
        name: the producer's.
        seed: chooses what is done; no other worker of the channel has it.
        broken: what the program does wrong, so that somebody notices.
    """
    rng, ledger = random.Random(seed), LedgerFile(ledger_path)
    with at_once(), mock.patch.object(Slots, "create", _stopping(Slots.create, random.Random(seed))):
        channel, number = open_channel(url), seed * 1_000_000
        while True:
            number += 1
            try:
                ROLES[what](channel, ledger, name, rng, number, broken)
                must_reopen = rng.random() < _REOPENS
            except (CommitOutcomeUnknownError, GroupOwnedError):  # its place was collected; another one took the group
                must_reopen = rng.random() < 0.5 or what == "take"
            if must_reopen:
                with contextlib.suppress(CommitOutcomeUnknownError):
                    channel.close()
                channel = open_channel(url)


def _stopping(create: Callable[..., bool], rng: random.Random) -> Callable[..., bool]:
    """Return a way to create slots that stops this process before it, now and then."""

    def stop_and_create(self: Slots, number: int, data: Payload) -> bool:
        if rng.random() < _STOPS:
            os.kill(os.getpid(), signal.SIGSTOP)
        return create(self, number, data)

    return stop_and_create
