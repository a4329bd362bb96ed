"""Offsets: ``{"channel": UUID, "writeOrderId": n}`` means every event up to n."""

from __future__ import annotations

from typing import Any

from spillable_stream.errors import CheckpointMismatchError

__all__ = ["event_id", "offset"]


def offset(channel: str, event_id: int) -> dict[str, Any]:
    """Return an offset; its keys are sorted, since Spark compares offsets as text."""
    return {"channel": channel, "writeOrderId": event_id}


def event_id(value: dict[str, Any], channel: str, path: str) -> int:
    """Return the write-order ID of an offset.

    Raises:
        CheckpointMismatchError: it is an offset of another channel.
    """
    if value.get("channel") != channel:
        raise CheckpointMismatchError(
            f"the Spark checkpoint belongs to the channel {value.get('channel')}, {path} is {channel}; "
            "use the checkpoint's own channel, or a new checkpointLocation"
        )
    return int(value["writeOrderId"])
