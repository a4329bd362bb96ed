"""Channels in a store whose waiting events are copied together."""

from __future__ import annotations

from typing import Any

from spillable_stream import Channel, Event
from spillable_stream.engine.store.object_delay_merging import DelayMerging
from spillable_stream.state.delays import DelayedFile
from tests.support.delays import Clock, clock_of
from tests.support.object_channels import URL

__all__ = ["files", "open_with_clock", "put_two"]


def open_with_clock(**options: Any) -> tuple[Channel, Clock, DelayMerging]:
    """Return a channel in a store, its clock, and what copies its objects together."""
    channel = Channel(URL, commit_interval=0, gc_delay=0, checkpoint_on_close=False, **options)
    merging = channel.engine().checkpointing.delay_merging  # type: ignore[attr-defined]
    assert isinstance(merging, DelayMerging)
    return channel, clock_of(channel), merging


def files(channel: Channel) -> list[DelayedFile]:
    """Return the side objects of a channel."""
    return list(channel.engine().follow().delays.files.values())


def put_two(channel: Channel, number: int) -> None:
    """Put two events, which are due at times that are far from each other."""
    with channel.put_transaction() as tx:
        for seconds in (1_000 + number, 1_000_000 + number):
            tx.put(Event(b"%d" % seconds, {"k": "v"}), deliver_after=seconds, ttl=(number % 2) * 60 or None)
