"""What workers ask of a channel's handle: they know no more of one, for it is the handle that makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from spillable_stream.engine.engine import Engine
from spillable_stream.engine.log_port import ChannelPath
from spillable_stream.engine.port import ChannelPort

if TYPE_CHECKING:
    from spillable_stream.channel.put_transaction import PutTransaction

__all__ = ["ChannelHandle"]


class ChannelHandle(Protocol):
    """A channel's handle. `Channel` implements it.

    Attributes:
        path: the channel.
        readonly: whether the handle only looks.
    """

    path: ChannelPath
    readonly: bool

    def engine(self) -> Engine:
        """Return the open engine: in a child that was forked since, its own.

        Raises:
            ChannelClosedError: the channel was closed.
        """

    def port(self) -> ChannelPort:
        """Return what Spark and producers ask through; raises what `engine` raises."""

    def put_port(self) -> ChannelPort:
        """Return the port of the channel that puts go to, which may be a spool; raises what `engine` raises."""

    def put_transaction(self) -> PutTransaction:
        """Return a new put transaction; raises what `engine` raises, and an error if nothing can be put."""

    def close(self) -> None:
        """Close the handle; raises what `Channel.close` raises."""
