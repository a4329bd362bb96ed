"""Makes workers: everything that is wrong with one is said before anything is done."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from spillable_stream.errors import OptionError
from spillable_stream.names import check_group
from spillable_stream.workers.config import WorkerConfig
from spillable_stream.workers.letters import not_for_letters
from spillable_stream.workers.worker import Worker

if TYPE_CHECKING:
    from spillable_stream.channel.channel import Channel

__all__ = ["make_worker", "require_another"]


def make_worker(
    channel: Channel,
    group: str,
    function: Callable[[Any], object],
    config: WorkerConfig,
    dead_letter: Channel | str | os.PathLike[str] | None,
) -> Worker:
    """Return a worker, as `Channel.worker` explains it; raises what that raises."""
    check_group(group)
    if channel.readonly:
        channel.engine().refuse_to_write("a worker")
    config.check_channel(channel.typed, channel.options["transaction_capacity"], channel.path)
    if dead_letter is None:
        return Worker(channel, group, function, config, None)
    letters, is_opened = _opened(dead_letter)
    try:
        require_another(channel, letters, "dead_letter")
        if letters.readonly:
            letters.engine().refuse_to_write("a dead letter")
        if letters.typed:
            raise not_for_letters(letters.path)
        return Worker(channel, group, function, config, letters, owns_dead_letter=is_opened)
    except BaseException:
        if is_opened:
            letters.close()
        raise


def _opened(channel: Channel | str | os.PathLike[str]) -> tuple[Channel, bool]:
    """Return a channel, and whether it was opened for this."""
    from spillable_stream.channel.channel import Channel

    return (channel, False) if isinstance(channel, Channel) else (Channel(channel), True)


def require_another(channel: Channel, other: Channel, name: str) -> None:
    """Refuse a channel where another one is needed.

    Args:
        channel: the channel.
        other: what should be another one.
        name: what the user calls that.

    Raises:
        OptionError: it is the same one, by whatever path it was opened.
    """
    if channel.port().place() == other.port().place():
        raise OptionError(f"{name} is {channel.path} itself; use another channel")
