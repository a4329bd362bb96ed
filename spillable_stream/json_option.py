"""Whether a call of the command line asks for a JSON object, as its arguments say before anything is imported."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

__all__ = ["wants_object"]

_OF_LINES = ("take", "tail")  # the verbs whose ``--json`` prints lines


def wants_object(arguments: Sequence[str]) -> bool:
    """Tell whether a call of a verb asks for an object.

    Args:
        arguments: those of the call, its verb first.
    """
    return "--json" in takewhile(lambda argument: argument != "--", arguments) and arguments[0] not in _OF_LINES
