"""Dead letters, which workers and producers put aside: how to put them back."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import ExitStack

import pyarrow as pa

from spillable_stream.channel.channel import Channel
from spillable_stream.channel.consumer import Consumer
from spillable_stream.channel.event_columns import batch_from_events
from spillable_stream.channel.taken_events import events_from_batch
from spillable_stream.errors import PutTooLargeError, SchemaError
from spillable_stream.log.event_reader import ReadBatch
from spillable_stream.names import check_group
from spillable_stream.state.ranges import count_of
from spillable_stream.workers.letters import event_of, not_for_letters, table_of
from spillable_stream.workers.making import require_another
from spillable_stream.workers.transfer import Transfer, transfer_name

__all__ = ["replay"]

_EVENTS = 1000


def replay(
    dead: Channel | str | os.PathLike[str], to: Channel | str | os.PathLike[str], *, group: str = "default"
) -> int:
    """Put all dead letters back into a channel, each once, in order, without the headers that were added to them.

    All are those that are there now; what is put aside meanwhile is for the next call.

    It takes them as a group of the dead-letter channel. A call that is interrupted, or killed, leaves no event
    duplicated and none lost: the next call with the same channels and group continues. Events that are put back get
    new write-order IDs.

    Args:
        dead: the dead-letter channel, which nobody else reads as the group meanwhile.
        to: the channel to put them into: an event channel for events, a typed channel for rows.
        group: as which group to take them.

    Returns:
        How many were put back.

    Raises:
        ChannelFullError: ``to`` has no room. As with all other errors, the dead letters before stay put back.
        GroupOwnedError: a live consumer reads the dead letters as the group.
        NotAChannelError: there is no channel at one of the paths.
        OptionError: both are the same channel, or the group's name is not allowed.
        SchemaError: a dead letter does not fit ``to``; it is the next one of the group.
        StorageError: a disk or a store refused.
    """
    check_group(group)
    with ExitStack() as stack:
        source, target = (
            c if isinstance(c, Channel) else stack.enter_context(Channel(c, create=False)) for c in (dead, to)
        )
        return _replay(source, target, group)


def _replay(dead: Channel, to: Channel, group: str) -> int:
    require_another(dead, to, "the channel to put dead letters into")
    for channel in (dead, to):
        if channel.readonly:
            channel.engine().refuse_to_write("a replay")
    if dead.typed:
        raise not_for_letters(dead.path)
    consumer, replayed = Consumer(dead.engine(), group, resume=True), 0
    try:
        transfer = Transfer(consumer, to, transfer_name("replay", dead.uuid, group))
        with dead.engine().snapshot() as state:
            last_id = state.last_id  # a worker may put aside again, at once, what is put back
        limit = min(_EVENTS, to.options["transaction_capacity"])
        while (ranges := consumer.claim(limit)) and ranges[0][0] <= last_id:
            count = count_of(ranges)
            try:
                prepared = transfer.store(ranges, _as_they_were(consumer.read(ranges), to))
            except (PutTooLargeError, SchemaError):
                if count == 1:
                    raise
                consumer.release(ranges)
                limit = count // 2  # those before the one that does not fit go back
                continue
            consumer.commit(ranges, prepared)
            replayed += count
    finally:
        consumer.close()
    return replayed


def _as_they_were(found: Iterable[ReadBatch], to: Channel) -> pa.RecordBatch | pa.Table:
    """Return what dead letters were, for a channel; raises a SchemaError where one does not fit."""
    letters = [event for read in found for event in events_from_batch(read)]
    return table_of(letters, to.schema) if to.typed else batch_from_events([event_of(letter) for letter in letters])
