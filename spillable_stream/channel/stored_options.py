"""Options that an open gives to a channel that exists: some are fixed, the others are stored if they differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spillable_stream.engine.engine import Engine
from spillable_stream.engine.readonly_view import refuse_to_write
from spillable_stream.engine.requests import Control
from spillable_stream.errors import OptionError
from spillable_stream.format.frame import FrameType
from spillable_stream.log.layout import Layout
from spillable_stream.option_types import ChannelOptions

__all__ = ["check_capacities", "store_options"]


def check_capacities(options: ChannelOptions) -> None:
    """Refuse options with which a channel could hold nothing.

    Raises:
        OptionError: both tiers have no room.
    """
    if not options.memory_capacity and not options.overflow_capacity:
        raise OptionError("memoryCapacity and overflowCapacity are both 0: the channel could hold nothing; raise one")


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
    changed = {
        name: value for name, value in _without_fixed(engine.layout, given).items() if getattr(stored, name) != value
    }
    if not changed:
        return
    if engine.log.is_view:
        refuse_to_write(engine.layout, f"another value of {', '.join(changed)}")
    check_capacities(stored.changed(changed))
    engine.commit(Control(FrameType.OPTIONS, changed))
    engine.log.obey(engine.state)


def _without_fixed(layout: Layout, given: dict[str, Any]) -> dict[str, Any]:
    """Return the options that can be changed, after a check that the others are as the channel has them."""
    fixed: dict[str, object] = {
        "mode": f"{layout.mode:04o}",
        "data_dirs": list(layout.data_dirs),
        "checkpoint_dir": layout.checkpoint_dir,
        "backup_checkpoint_dir": layout.backup_checkpoint_dir,
    }
    for name, value in fixed.items():
        wanted = given.get(name)
        if wanted is not None and name != "mode":
            wanted = [Path(v).absolute() for v in wanted] if isinstance(wanted, list) else Path(wanted).absolute()
        if wanted not in (None, value):
            raise OptionError(f"{name} is fixed when a channel is created; {layout.path} has {value}, not {wanted}")
    return {name: value for name, value in given.items() if name not in fixed}
