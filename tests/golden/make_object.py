"""Makes the golden channel of an object store: python -m tests.golden.make_object DIRECTORY

Run once for each format version of such channels, kept forever, and never run again for an old one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from spillable_stream import Channel, Event
from spillable_stream.engine import deliveries
from tests.golden.dump import CLOCK_MS, dump
from tests.golden.make import put, take
from tests.support.delays import Clock, deliver_all, deliveries_of
from tests.support.object_channels import kill
from tests.support.store_limits import set_limits

NAME = "orders"
_CENTURY_SECONDS = 100 * 365 * 86_400


def url_of(path: Path) -> str:
    """Return the address of a channel whose store is a directory."""
    return f"object+file://{path}"


def orders_channel(path: Path) -> None:
    """A channel with slots, a segment, a merged object, delayed objects, two checkpoints, and groups in every state."""
    options: dict[str, Any] = {"commit_interval": 0, "gc_delay": 0, "max_inline_bytes": 3000}
    with mock.patch.object(deliveries, "wall_clock_ms", lambda: CLOCK_MS), pytest.MonkeyPatch.context() as patch:
        channel = Channel(url_of(path), **options)
        clock = deliveries_of(channel).clock_ms = Clock(CLOCK_MS)
        set_limits(patch, many_slots=4, quiet_seconds=0)
        for i in range(6):
            put(channel, Event(b"small %d" % i, {"n": str(i)}), Event("größer".encode(), {"ключ": "значение"}))
        channel.checkpoint()  # the small slots are merged
        slow, gone = channel.consumer("slow"), channel.consumer("gone")
        gone.commit(gone.claim(1))
        gone.close()
        channel.drop_group("gone")
        held, ahead = slow.claim(2), slow.claim(3)
        slow.commit(ahead)  # taken ahead of what is held
        slow.prepare(held)  # and in flight to the end
        put(channel, *(Event(b"staged" * 500) for _ in range(3)))
        with channel.put_transaction() as tx:
            for seconds in (200, 100, 86_400):
                tx.put(Event(b"in %d s" % seconds), deliver_after=seconds)
            tx.put(Event(b"soon, with a ttl"), deliver_after=100, ttl=_CENTURY_SECONDS)
        clock.pass_by(100)
        deliver_all(channel)
        take(channel, "fast", 4)
        channel.checkpoint()
        with channel.put_transaction() as tx:
            tx.put(Event(b"expired"), ttl=1e-6)
            tx.put(Event(b"last"), ttl=_CENTURY_SECONDS)
        kill(channel)


def main(directory: Path) -> None:
    """Make the channel, and write down what it holds."""
    orders_channel(directory / NAME)
    expected = json.dumps(dump(directory / NAME, url_of), indent=1, ensure_ascii=False, default=str)
    (directory / f"{NAME}.json").write_text(expected + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
