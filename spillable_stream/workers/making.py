"""Makes workers: everything that is wrong with one is said before anything is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spillable_stream.errors import OptionError
from spillable_stream.names import check_group
from spillable_stream.workers.config import WorkerConfig
from spillable_stream.workers.handle import ChannelHandle
from spillable_stream.workers.letters import not_for_letters
from spillable_stream.workers.worker import Worker

__all__ = ["make_worker", "require_another"]


def make_worker(
    channel: ChannelHandle,
    group: str,
    function: Callable[[Any], object],
    config: WorkerConfig,
    open_letters: Callable[[], tuple[ChannelHandle, bool]] | None,
) -> Worker:
    """Return a worker, as `Channel.worker` explains it; raises what that raises.

    Args:
        channel: the channel.
        group: the group.
        function: what to call.
        config: how.
        open_letters: returns the dead-letter channel, and whether it was opened for this; None without one.
    """
    check_group(group)
    engine = channel.engine()
    if channel.readonly:
        engine.refuse_to_write("a worker")
    config.check_channel(engine.is_typed(), engine.follow().options.transaction_capacity, channel.path)
    if open_letters is None:
        return Worker(channel, group, function, config, None)
    letters, is_opened = open_letters()
    try:
        require_another(channel, letters, "dead_letter")
        if letters.readonly:
            letters.engine().refuse_to_write("a dead letter")
        if letters.engine().is_typed():
            raise not_for_letters(letters.path)
        return Worker(channel, group, function, config, letters, owns_dead_letter=is_opened)
    except BaseException:
        if is_opened:
            letters.close()
        raise


def require_another(channel: ChannelHandle, other: ChannelHandle, name: str) -> None:
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
