"""The terminal's size as the environment says it, which rich believes: it lays out every cell of a line."""

from __future__ import annotations

from collections.abc import MutableMapping

__all__ = ["bound_terminal_size"]

_VARIABLES = ("COLUMNS", "LINES", "TERMINAL_WIDTH")
_MOST_CELLS = 10_000  # more than a terminal has; a hundred million would take a minute to draw


def bound_terminal_size(environment: MutableMapping[str, str]) -> None:
    """Bound the sizes that an environment says, and remove what is not one: the terminal's own counts then."""
    for name in _VARIABLES:
        text = environment.get(name)
        if text is None:
            continue
        digits = text.lstrip("0")
        if not (digits.isascii() and digits.isdigit()):
            del environment[name]
        elif len(digits) > len(str(_MOST_CELLS)) or int(digits) > _MOST_CELLS:
            environment[name] = str(_MOST_CELLS)
