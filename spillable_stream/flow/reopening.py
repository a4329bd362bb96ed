"""The tries to open failed channels of an agent again, with all that uses them: in threads, since a disk may hang.

There is one try at a time, since each is for what the agent runs as it begins. But one that hangs holds up no other.
"""

from __future__ import annotations

from collections.abc import Callable

from spillable_stream.flow.assembling import Assembling
from spillable_stream.flow.assembly import Begins
from spillable_stream.flow.wired import Wired

__all__ = ["Reopenings"]


class Reopenings:
    """The tries of an agent that are under way, or over and not looked at; one of a channel at most."""

    def __init__(self) -> None:
        self._tries: dict[str, Assembling] = {}

    @property
    def channels(self) -> frozenset[str]:
        """The names of the channels."""
        return frozenset(self._tries)

    def may_begin(self) -> bool:
        """Tell whether there may be another try: where all that are under way hang."""
        return all([attempt.hangs() for attempt in self._tries.values()])

    def begin(self, channel: str, before: Wired, assemble: Callable[[Begins], Wired]) -> None:
        """Begin one; the arguments are those of `Assembling`, as is what it raises."""
        under_way = f"the channel {channel} is still being opened again"
        self._tries[channel] = Assembling(channel, under_way, before, assemble)

    def take_over(self) -> Assembling | None:
        """Return one that is over, and know it no more; None if there is none."""
        over = next((name for name, attempt in self._tries.items() if attempt.is_over), None)
        return None if over is None else self._tries.pop(over)

    def drop(self) -> bool:
        """Close what they have opened or will open, and tell whether all of it is closed."""
        return all([attempt.drop() for attempt in self._tries.values()])
