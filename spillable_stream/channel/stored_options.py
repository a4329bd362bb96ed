"""Options that an open gives to a channel that exists: some are fixed, the others are stored if they differ."""

from __future__ import annotations

from typing import Any

from spillable_stream.engine.engine import Engine
from spillable_stream.engine.requests import Control
from spillable_stream.errors import OptionError
from spillable_stream.format.frame import FrameType
from spillable_stream.option_names import named
from spillable_stream.option_types import ChannelOptions

__all__ = ["check_capacities", "store_options"]


def check_capacities(options: ChannelOptions) -> None:
    """Refuse options with which a channel could hold nothing.

    Raises:
        OptionError: both tiers have no room.
    """
    if not options.memory_capacity and not options.overflow_capacity:
        memory, disk = named("memoryCapacity"), named("overflowCapacity")
        raise OptionError(f"{memory} and {disk} are both 0: the channel could hold nothing; raise one")


def store_options(engine: Engine, given: dict[str, Any]) -> None:
    """Store the options that differ from the channel's; the handle obeys them at once.

    Args:
        engine: the channel.
        given: the options that were given, by keyword name, with values as `parse_options` returns them.

    Raises:
        OptionError: one that is fixed differs, or the channel could hold nothing.
        ReadonlyChannelError: one differs, and the handle only looks.
        StorageError: the disk refused.
    """
    stored = engine.state.options
    changed = {name: value for name, value in engine.without_fixed(given).items() if getattr(stored, name) != value}
    if not changed:
        return
    if engine.log.is_view:
        engine.refuse_to_write(f"another value of {', '.join(map(named, changed))}")
    check_capacities(stored.changed(changed))
    engine.commit(Control(FrameType.OPTIONS, changed))
    engine.log.obey(engine.state)
