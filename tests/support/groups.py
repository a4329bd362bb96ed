"""Automatic groups as a stream creates them, owners that come and go, and time that passes."""

from __future__ import annotations

from spillable_stream import Channel
from spillable_stream.engine.automatic_groups import AutomaticGroups
from spillable_stream.engine.requests import Control
from spillable_stream.format.frame import FrameType
from spillable_stream.format.record import GroupRecord

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
LOOK_MS = 300_000  # less than what counts as a machine's sleep


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


def look_after(channel: Channel) -> AutomaticGroups:
    """Return what looks after the groups of a channel, beside the channel's own thread, which takes a second."""
    channel.engine().upkeep.stop()
    engine = channel.engine()
    return AutomaticGroups(engine.log, engine.follower, engine.appender, engine.owners)


def pass_time(groups: AutomaticGroups, ms: int) -> None:
    """Let time pass, in looks that are not too far apart."""
    groups.look(0)
    for _ in range(ms // LOOK_MS):
        groups.look(LOOK_MS)
    groups.look(ms % LOOK_MS)


def names(channel: Channel) -> set[str]:
    """Return the groups of a channel."""
    return set(channel.engine().follow().groups)
