"""The options of a channel on a disk that are fixed when it is created: its directories and its mode."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spillable_stream.errors import OptionError
from spillable_stream.log.layout import Layout
from spillable_stream.option_names import named

__all__ = ["fixed_options", "without_fixed"]


def fixed_options(layout: Layout) -> dict[str, object]:
    """Return the mode and the directories of a layout, by keyword name."""
    return {
        "mode": f"{layout.mode:04o}",
        "data_dirs": list(layout.data_dirs),
        "checkpoint_dir": layout.checkpoint_dir,
        "backup_checkpoint_dir": layout.backup_checkpoint_dir,
    }


def without_fixed(layout: Layout, given: Mapping[str, Any], *, is_there: bool = True) -> dict[str, Any]:
    """Return those options that can be changed.

    Args:
        layout: the channel's files.
        given: options that were given, by keyword name.
        is_there: whether the channel exists, for the message.

    Raises:
        OptionError: one that is fixed differs.
    """
    fixed = fixed_options(layout)
    for name, value in fixed.items():
        wanted = given.get(name)
        if wanted is not None and name != "mode":
            wanted = [Path(v).absolute() for v in wanted] if isinstance(wanted, list) else Path(wanted).absolute()
        if wanted not in (None, value):
            has = f"{layout.path} {'has' if is_there else 'would have'} {_shown(value)}, not {_shown(wanted)}"
            raise OptionError(f"{named(name)} is fixed when a channel is created; {has}")
    return {name: value for name, value in given.items() if name not in fixed}


def _shown(value: object) -> str:
    """Return a mode, a directory or several as a message has them."""
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
