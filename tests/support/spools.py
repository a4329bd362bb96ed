"""Spools in front of channels in a store, whose movers ship when a test says so, and die as processes do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spillable_stream import Channel
from spillable_stream.channel import spool
from spillable_stream.engine.store import object_owners
from spillable_stream.objects.backoff import Backoff
from tests.support.events import put, take
from tests.support.faulty_store import Fault
from tests.support.object_channels import URL, kill, store_of

__all__ = [
    "ByHand",
    "close",
    "fail_store",
    "in_store",
    "kill_with_spool",
    "lose_what_was_shipped",
    "mend_store",
    "open_spooled",
    "spool_of",
    "without_threads",
]


class ByHand:
    """Stands for a thread that does something from time to time: it never does."""

    def __init__(self, *_: object) -> None:
        pass

    def ensure(self) -> None:
        pass

    def end(self, within_seconds: float | None = None) -> bool:
        return True


def without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing be shipped, and no claim be answered, but by a test."""
    monkeypatch.setattr(spool, "PeriodicThread", ByHand)
    monkeypatch.setattr(object_owners, "PeriodicThread", ByHand)


def open_spooled(directory: Path, url: str = URL, **options: Any) -> Channel:
    """Open a channel with a spool that waits for nobody: for no free space, and for no store that is down."""
    given = {"durability": "local", "commit_interval": 0, "minimum_required_space": 0, **options}
    channel = Channel(url, spool=directory, **given)
    channel.engine().log._appending.backoff = Backoff(0)  # type: ignore[attr-defined]
    return channel


def spool_of(channel: Channel) -> spool.Spool:
    """Return the spool of a handle that has one."""
    assert channel._open.spool is not None
    return channel._open.spool


def kill_with_spool(channel: Channel) -> None:
    """Let go of a handle and its spool as a process does that is killed: nothing is written."""
    found = spool_of(channel)
    found.after_fork()
    found._local._engine.close(forked=True)
    found._local.is_closed = found._local._left = True
    kill(channel)


def close(channel: Channel) -> None:
    """Close a handle whose store may be down."""
    if not channel._open.is_closed:
        mend_store(channel)
        channel.close()


def fail_store(channel: Channel, fault: Fault) -> None:
    """Let the store of a handle fail, until it is mended."""
    store_of(channel).schedule = lambda request: fault if request.kind in ("create", "get") else None


def mend_store(channel: Channel) -> None:
    """Let the store of a handle work."""
    store_of(channel).schedule = None


def lose_what_was_shipped(channel: Channel) -> None:
    """Put the bucket back to before an event that was shipped, and let another handle continue the log there."""
    channel.flush()
    with store_of(channel).inner.put_back():  # type: ignore[attr-defined]
        put(channel, b"lost")
        channel.flush()
    with Channel(URL, commit_interval=0) as other:
        put(other, b"another's", b"x")
        put(other, b"another's, too")


def in_store() -> list[bytes]:
    """Take what is in the store."""
    with Channel(URL, create=False) as channel:
        return take(channel)
