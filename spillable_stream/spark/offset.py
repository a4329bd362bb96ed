"""Offsets: ``{"channel": UUID, "writeOrderId": n}`` means every event up to n.

The end of a query's first batch says where that began, too: ``{"channel": …, "start": m, "writeOrderId": n}``.
Spark keeps ends, and asks for the beginning of the first batch again when it repeats it.

What the options say of positions is resolved here, too: an ID names an event, an offset the place
after one.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from spillable_stream.channel.channel import Channel
from spillable_stream.engine.timestamp_index import first_id_since
from spillable_stream.errors import CheckpointMismatchError, OptionError

__all__ = ["ending_id", "event_id", "offset", "starting_id"]

_log = logging.getLogger(__name__)


def offset(channel: str, event_id: int, start: int | None = None) -> dict[str, Any]:
    """Return an offset; its keys are sorted, since Spark compares offsets as text.

    Args:
        channel: the channel's UUID.
        event_id: every event up to this one.
        start: of the end of a query's first batch, its beginning.
    """
    return {"channel": channel, **({} if start is None else {"start": start}), "writeOrderId": event_id}


def event_id(value: Any, channel: str, path: str) -> int:
    """Return the write-order ID of an offset.

    Args:
        value: the offset, which may be another source's: Spark does not keep whose a checkpoint is.
        channel: the channel's UUID.
        path: its directory.

    Raises:
        CheckpointMismatchError: it is an offset of another channel, or of another source.
    """
    match value:
        case {"channel": str(owner), "writeOrderId": int(last)} if owner == channel:
            return last
        case {"channel": str(owner), "writeOrderId": int()}:
            whose = f"the channel {owner}"
        case _:
            whose = f"another source (its offset is {value!r})"
    raise CheckpointMismatchError(
        f"the Spark checkpoint belongs to {whose}, {path} is {channel}; "
        "use the checkpoint's own source, or a new checkpointLocation"
    )


def starting_id(channel: Channel, options: dict[str, Any]) -> str:
    """Return what ``startingOffsets`` or ``startingTimestamp`` says: earliest, latest, or an event's ID.

    Raises:
        OptionError: both were given, or an offset of another channel.
    """
    starting: str = options["starting_offsets"]
    if options["starting_timestamp"] is not None:
        if starting != "earliest":
            raise OptionError("startingOffsets and startingTimestamp exclude each other; give one of them")
        return str(first_id_since(channel.engine(), options["starting_timestamp"]))
    if starting in ("earliest", "latest"):
        return starting
    wanted = _of_option("startingOffsets", starting, channel) + 1 if starting.startswith("{") else int(starting)
    beginning = channel.engine().follow().beginning()
    if 0 < wanted < beginning and not options["fail_on_data_loss"]:
        _log.warning(
            "%s begins with the event %d; the read continues without the events from %d on",
            channel.path,
            beginning,
            wanted,
        )
        return str(beginning)
    return str(wanted)


def ending_id(channel: Channel, options: dict[str, Any]) -> int:
    """Return the last event that ``endingOffsets`` or ``endingTimestamp`` lets a batch read have.

    Raises:
        OptionError: both were given, or it is beyond the last event in use, or an offset of another channel.
    """
    ending: str = options["ending_offsets"]
    last: int = channel.engine().follow().last_id
    if options["ending_timestamp"] is not None:
        if ending != "latest":
            raise OptionError("endingOffsets and endingTimestamp exclude each other; give one of them")
        return first_id_since(channel.engine(), options["ending_timestamp"]) - 1
    if ending == "latest":
        return last
    wanted = _of_option("endingOffsets", ending, channel) if ending.startswith("{") else int(ending)
    if wanted > last:
        raise OptionError(f"endingOffsets {wanted} is beyond the last event's ID in {channel.path}, {last}")
    return wanted


def _of_option(name: str, text: str, channel: Channel) -> int:
    value = json.loads(text)
    if value.get("channel", channel.uuid) != channel.uuid:
        raise OptionError(f"{name} is an offset of the channel {value['channel']}; {channel.path} is {channel.uuid}")
    return int(value["writeOrderId"])
