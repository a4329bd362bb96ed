"""Automatic groups as a stream makes them, and owners that come and go."""

from __future__ import annotations

from spillable_stream import Channel
from spillable_stream.engine.requests import Control
from spillable_stream.format.frame import FrameType
from spillable_stream.format.record import GroupRecord


def make_automatic(channel: Channel, name: str, *, planned: int = 1, owned: bool = False) -> None:
    """Make an automatic group that has read ``planned`` events, and leave it with an owner or without."""
    record: GroupRecord = {"group": name, "position": 0, "auto": True}
    channel.engine().commit(Control(FrameType.GROUP, record))
    consumer = channel.consumer(name)
    if planned:
        consumer.commit([(1, planned)], consumer.prepare([(1, planned)]))
    if not owned:
        give_up(channel, name)


def give_up(channel: Channel, name: str) -> None:
    """Leave a group that this handle owns without an owner."""
    channel._open.owned.consumers.pop(name).close()
