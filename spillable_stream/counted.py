"""Says a number with its noun, and with the verb that follows."""

from __future__ import annotations

__all__ = ["agreeing", "counted"]

_OF_ONE = {"are": "is", "were": "was", "have": "has", "do": "does"}


def counted(number: int, noun: str, verb: str = "") -> str:
    """Return a number with its noun: "1 event", "2 events", "1 event is", "2 events are".

    Args:
        number: how many there are.
        noun: of what, in the singular.
        verb: what follows, as it is said of many: "are", "were", "have" or "do".
    """
    plural = "es" if noun.endswith("ch") else "s"
    said = f"{number:,} {noun}{'' if number == 1 else plural}"
    return f"{said} {agreeing(number, verb)}" if verb else said


def agreeing(number: int, verb: str) -> str:
    """Return a verb as it is said of a number of things; it is given as it is said of many."""
    return _OF_ONE[verb] if number == 1 else verb
