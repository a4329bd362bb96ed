"""What a process knows of a channel in an object store, for another one of the same job, which need not read it again.

It is a state of the channel that was true. A handle that begins with it is like one that has slept since: it looks at
the log before it appends, and loads the state anew if it slept for too long.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field

from spillable_stream.block_value import block_value
from spillable_stream.engine.log_port import ChannelPath
from spillable_stream.objects.location import Location

__all__ = ["KnownState", "beginning_with", "known_state"]


@dataclass(frozen=True, slots=True)
class KnownState:
    """A channel as it was known. Picklable.

    Args:
        location: where it is.
        channel: its UUID.
        state: its state after some slot, as the bytes of a checkpoint.
        checkpoint: the slot of its newest checkpoint; 0 if none is known.
        is_newest: whether a listing has shown that this is its newest one.
    """

    location: Location
    channel: str
    state: bytes = field(repr=False)
    checkpoint: int
    is_newest: bool


_known: ContextVar[KnownState | None] = ContextVar("known", default=None)


def beginning_with(known: KnownState | None) -> AbstractContextManager[None]:
    """Return a block in which a handle that is opened begins with what another process knew, if that is of its channel.

    An open goes through many hands, and this is for one of them only: so it is said here rather than handed on by each.
    """
    return block_value(_known, known)


def known_state(path: ChannelPath) -> KnownState | None:
    """Return what the handle of a channel may begin with that is being opened; None: it asks the store."""
    known = _known.get()
    return known if known is not None and known.location == path else None
