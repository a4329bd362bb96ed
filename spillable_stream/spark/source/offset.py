"""Offsets: ``{"channel": UUID, "writeOrderId": n}`` means every event up to n.

The end of a query's first batch says where that began, too: ``{"channel": …, "start": m, "writeOrderId": n}``.
Spark keeps ends, and asks for the beginning of the first batch again when it repeats it.

Six more keys, each only where it is needed: ``group`` is the name of the position that a stream without the option
`group` created for itself, the end of its first batch says with ``made`` when (`first_batch`), ``reset`` names what a
stream with `resetGroup` does once (`group_reset`), ``restore`` and ``recovery`` name the restore and the recovery
of the channel after which the event was put, and ``put`` says of the end of a batch in an object store when that was
(`checkpoint_check`).

What the options say of positions is resolved here, too: an ID names an event, an offset the place
after one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spillable_stream.engine.port import HighWater
from spillable_stream.errors import CheckpointMismatchError, OptionError
from spillable_stream.log_records import fields, log_of
from spillable_stream.names import is_name
from spillable_stream.shown_value import shown
from spillable_stream.spark.source.read_options import BatchOptions, ReadOptions
from spillable_stream.state.ranges import events_in

if TYPE_CHECKING:
    from spillable_stream.channel.channel import Channel

__all__ = ["Offset", "OffsetJson", "ending_id", "starting_id", "starting_option"]

_log = log_of(__name__)

OffsetJson = dict[str, Any]
"""What Spark passes and keeps as JSON: an offset of this source or, after a mistake, of any other."""


@dataclass(frozen=True, slots=True)
class Offset:
    """A place in a channel's log.

    Args:
        channel: the channel's UUID.
        event_id: every event up to this one.
        start_id: of the end of a query's first batch, the event after which that began; None of any other.
        group: the group that a stream created for itself; None if the option `group` names it.
        reset: of the beginning and the end of a query's first batch, the reset of the group that it begins with.
        made_at: of the end of a query's first batch, how far the channel was when it created its group, if it did.
        restore: the token of the channel's last restore before the event was put; "" without one.
        recovery: the token of the channel's last recovery before that; "" if it is not known.
        put_us: when the event was put, in microseconds since 1970; 0 if it is not known.
    """

    channel: str
    event_id: int
    start_id: int | None = None
    group: str | None = None
    reset: str | None = None
    made_at: HighWater | None = None
    restore: str = ""
    recovery: str = ""
    put_us: int = 0

    @classmethod
    def of(cls, value: object) -> Offset | None:
        """Return the offset that a JSON value is, or None if it is none of this source's."""
        match value:
            case {"channel": str(channel), "writeOrderId": int(event_id), **more}:
                marks = more.get("restore", ""), more.get("recovery", "")
                match more.get("start"), more.get("group"), more.get("reset"), *marks:
                    case (int() | None as start, str() | None as group, str() | None as reset, str(first), str(second)):
                        if group is None or is_name(group):
                            made_at = _high_water(more.get("made"))
                            put_us = more.get("put", 0)
                            put_us = put_us if isinstance(put_us, int) else 0
                            return cls(channel, event_id, start, group, reset, made_at, first, second, put_us)
        return None

    @classmethod
    def parse(cls, value: object, channel: str, path: str) -> Offset:
        """Return an offset that Spark passes.

        Args:
            value: the offset as JSON, which may be another source's: Spark does not keep whose a checkpoint is.
            channel: the UUID of the channel that is read.
            path: its directory.

        Raises:
            CheckpointMismatchError: it is an offset of another channel, or of another source.
        """
        found = cls.of(value)
        if found is not None and found.channel == channel:
            return found
        if found is not None:
            whose = f"the channel {found.channel}"
        elif isinstance(value, dict) and isinstance(value.get("channels"), dict):
            whose = "a set of channels"
        else:
            whose = f"another source (its offset is {shown(value)})"
        raise CheckpointMismatchError(
            f"the Spark checkpoint belongs to {whose}, and {path} is the channel {channel}; use the checkpoint's own "
            "source, or a new checkpointLocation"
        )

    def to_json(self) -> OffsetJson:
        """Return the offset for Spark; the keys are sorted, since Spark compares offsets as text."""
        return {key: value for key, value in self._values().items() if value is not None}

    def _values(self) -> OffsetJson:
        return {
            "channel": self.channel,
            "group": self.group,
            "made": None if self.made_at is None else list(self.made_at),
            "put": self.put_us or None,
            "recovery": self.recovery or None,
            "reset": self.reset,
            "restore": self.restore or None,
            "start": self.start_id,
            "writeOrderId": self.event_id,
        }

    @classmethod
    def has_keys(cls, value: OffsetJson) -> bool:
        """Tell whether a JSON object has the keys of an offset and none besides, as other sources may have."""
        return {"channel", "writeOrderId"} <= value.keys() <= cls("", 0)._values().keys()


def _high_water(value: object) -> HighWater | None:
    match value:
        case [int(last_id), int(transaction)]:
            return last_id, transaction
    return None


def starting_id(channel: Channel, options: ReadOptions) -> str:
    """Return what ``startingOffsets`` or ``startingTimestamp`` says, as in `ChannelPort.starting_position`.

    Events may leave before that is used: only an event that the user named must be there still.

    Raises:
        OptionError: both were given, or an offset of another channel.
    """
    starting = options.starting_offsets
    if options.starting_timestamp is not None:
        if starting != "earliest":
            raise OptionError("startingOffsets and startingTimestamp exclude each other; give one of them")
        return f"{channel.port().first_id_since(options.starting_timestamp)}+"
    if starting in ("earliest", "latest"):
        return starting
    wanted = _of_option("startingOffsets", starting, channel) + 1 if starting.startswith("{") else int(starting)
    with channel.port().snapshot() as state:
        beginning = state.beginning()
    if options.fail_on_data_loss:
        return str(wanted)
    if 0 < wanted < beginning:
        _log.warning(
            "%s begins with the event %d; the read continues without %s",
            channel.path,
            beginning,
            events_in([(wanted, beginning - 1)]),
            extra=fields(channel.path, first_id=wanted, last_id=beginning - 1),
        )
    return f"{wanted}+"


def starting_option(event_id: int, *, of_set: bool) -> str:
    """Return the option that lets a new query begin at an event, or before it, as messages say it.

    Args:
        event_id: the event.
        of_set: whether the query reads a set of channels: each has IDs of its own.
    """
    return "a startingTimestamp for all channels of the set" if of_set else f"startingOffsets={event_id}"


def ending_id(channel: Channel, options: BatchOptions) -> int:
    """Return the last event that ``endingOffsets`` or ``endingTimestamp`` lets a batch read have.

    Raises:
        OptionError: both were given, or it is beyond the last event in use, or an offset of another channel.
    """
    ending = options.ending_offsets
    with channel.port().snapshot() as state:
        last = state.last_id
    if options.ending_timestamp is not None:
        if ending != "latest":
            raise OptionError("endingOffsets and endingTimestamp exclude each other; give one of them")
        return channel.port().first_id_since(options.ending_timestamp) - 1
    if ending == "latest":
        return last
    wanted = _of_option("endingOffsets", ending, channel) if ending.startswith("{") else int(ending)
    if wanted > last:
        raise OptionError(f"endingOffsets {wanted} is beyond the last event's ID in {channel.path}, {last}")
    return wanted


def _of_option(name: str, text: str, channel: Channel) -> int:
    """Return the event of an option's offset, in which the channel may be left out."""
    value = json.loads(text)
    if value.get("channel", channel.uuid) != channel.uuid:
        raise OptionError(f"{name} is an offset of the channel {value['channel']}; {channel.path} is {channel.uuid}")
    event_id = int(value["writeOrderId"])
    with channel.port().snapshot() as state:
        marks = value.get("restore", ""), value.get("recovery", "")
        if "channel" in value and not state.may_have(event_id, *marks):
            now = f"the event {event_id} there now is another one"
            if event_id > state.last_id:
                now = f"there is no event {event_id} now, and the next one of that ID is another"
            raise OptionError(
                f"{name} is an offset of {channel.path} before or after a restore, or of another copy: {now}. Give the "
                "ID of an event"
            )
    return event_id
