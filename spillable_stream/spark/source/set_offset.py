"""Offsets in a set of channels: ``{"channels": {UUID: {"path": …, "writeOrderId": n, …}, …}}``.

Of each channel it is what `spillable_stream.spark.source.offset` says, under its UUID, and where the channel was: so
that one that disappears can be named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spillable_stream.errors import CheckpointMismatchError
from spillable_stream.shown_value import shown
from spillable_stream.spark.source.offset import Offset, OffsetJson

__all__ = ["MemberOffset", "SetOffset"]


@dataclass(frozen=True, slots=True)
class MemberOffset:
    """An offset in one channel of a set.

    Args:
        path: where the channel was.
        offset: the offset in it, as Spark would have it of this channel alone.
    """

    path: str
    offset: OffsetJson


@dataclass(frozen=True, slots=True)
class SetOffset:
    """An offset in each channel of a set.

    Args:
        offsets: by the channel's UUID.
    """

    offsets: Mapping[str, MemberOffset]

    @classmethod
    def parse(cls, value: object, whole: str) -> SetOffset:
        """Return an offset that Spark passes.

        Args:
            value: the offset as JSON, which may be another source's.
            whole: the set, for the message.

        Raises:
            CheckpointMismatchError: it belongs to a single channel, or to another source.
        """
        match value:
            case {"channels": dict(channels)}:
                try:
                    return cls({uuid: _parsed(uuid, found) for uuid, found in channels.items()})
                except ValueError:
                    pass
        single = Offset.of(value)
        whose = f"the channel {single.channel} alone" if single else f"another source (its offset is {shown(value)})"
        raise CheckpointMismatchError(
            f"the Spark checkpoint belongs to {whose}, and {whole} is read as a set of channels, even if of one; use "
            "the checkpoint's own source, or a new checkpointLocation"
        )

    def to_json(self) -> OffsetJson:
        """Return the offset for Spark; all keys are sorted, since Spark compares offsets as text."""
        return {"channels": {uuid: _json(at) for uuid, at in sorted(self.offsets.items())}}


def _parsed(uuid: str, found: object) -> MemberOffset:
    if isinstance(found, dict) and isinstance(path := found.get("path"), str):
        offset = {"channel": uuid, **{key: value for key, value in found.items() if key != "path"}}
        if Offset.of(offset) is not None:
            return MemberOffset(path, offset)
    raise ValueError


def _json(at: MemberOffset) -> OffsetJson:
    values = {**at.offset, "path": at.path}
    return {key: values[key] for key in sorted(values) if key != "channel"}
