"""What a channel remembers of its producers, so that a batch that is committed again is not stored again.

A producer numbers its batches. Several of them are committed at once and in any order, so the last
number does not tell which of those before it are there: it is ranges that are remembered (Kafka
keeps the last number and takes batches in order only).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from spillable_stream.channel.ranges import Range, RangeSet
from spillable_stream.errors import ProducerSequenceError

__all__ = ["NO_IDS", "PASSING", "ProducerState", "Producers"]

PASSING = "~"
"""How the ID of a producer begins that nobody will go on as: they never push out one that has a name."""

NO_IDS: Range = (0, -1)

_MAX_PRODUCERS = 1000
_MAX_RANGES = 64
_MAX_ANSWERS = 64


@dataclass(slots=True)
class ProducerState:
    """What one producer has committed.

    Args:
        committed: the sequence numbers.
        forgotten: of what is not in `committed` and not after this number, nobody knows.
        answers: the write-order IDs of the batches committed last, for an answer that was lost.
    """

    committed: RangeSet = field(default_factory=RangeSet)
    forgotten: int = 0
    answers: dict[int, Range] = field(default_factory=dict)

    @property
    def last(self) -> int:
        """The highest sequence number that was committed, 0 if none was."""
        return max(self.committed.last, self.forgotten)

    def answer(self, sequence: int) -> Range | None:
        """Return the first and last write-order ID of a batch, `NO_IDS` if only it is known, None if it is new.

        Raises:
            ProducerSequenceError: it is so old that nobody knows whether it was committed.
        """
        if sequence in self.committed:
            return self.answers.get(sequence, NO_IDS)
        if sequence <= self.forgotten:
            raise ProducerSequenceError(
                f"whether batch {sequence:,} was committed is not known any more: of batches up to {self.forgotten:,} "
                f"there were too many gaps. Nothing was stored; go on after the last one, {self.last:,}"
            )
        return None

    def note(self, taken: Range, ids: Range) -> None:
        """Note that a batch was committed.

        Args:
            taken: the first and the last number that it takes. Where an application numbers its batches by itself, in
                order and with gaps, each takes those before it that no other one can have any more.
            ids: the write-order IDs of its events.
        """
        self.committed.add(*taken)
        self.answers[taken[1]] = ids
        self._bound()

    def learn(self, image: Iterable[Any]) -> None:
        """Note what another source says, as an `image`."""
        committed, forgotten, answers = image
        for first, last in committed:
            self.committed.add(first, last)
        self.forgotten = max(self.forgotten, forgotten)
        for sequence, first, last in answers:
            self.answers.setdefault(sequence, (first, last))
        self._bound()

    def _bound(self) -> None:
        while len(self.committed) > _MAX_RANGES:
            first, last = next(iter(self.committed))
            self.committed.remove(first, last)
            self.forgotten = max(self.forgotten, last)  # what is learnt may bring back what was forgotten before
        while len(self.answers) > _MAX_ANSWERS:
            del self.answers[next(iter(self.answers))]

    def image(self) -> list[Any]:
        """Return it as plain values."""
        return [list(self.committed), self.forgotten, [[s, *ids] for s, ids in self.answers.items()]]


class Producers:
    """The producers of a channel, as many as committed last.

    Attributes:
        unsaid: those of which only the memory tier's log says everything.
    """

    def __init__(self, image: Mapping[str, Any] | None = None) -> None:
        image = image or {}
        self._states = {name: ProducerState() for name in image.get("states", ())}
        for name, state in self._states.items():
            state.learn(image["states"][name])
        self.unsaid = dict.fromkeys(image.get("unsaid", ()))

    def __iter__(self) -> Iterator[str]:
        return iter(self._states)

    def __bool__(self) -> bool:
        return bool(self._states)

    def last(self, name: str) -> int:
        """Return the highest sequence number that a producer committed, 0 if none is known."""
        state = self._states.get(name)
        return state.last if state else 0

    def answer(self, name: str, sequence: int) -> Range | None:
        """Return what `ProducerState.answer` returns; raises what it raises."""
        state = self._states.get(name)
        return state.answer(sequence) if state else None

    def note(self, name: str, taken: Range, ids: Range, *, in_memory: bool) -> None:
        """Note that a batch was committed; see `ProducerState.note`."""
        self._state(name).note(taken, ids)
        if in_memory:
            self.unsaid[name] = None

    def _state(self, name: str) -> ProducerState:
        """Return a producer's state, which is the latest one then."""
        state = self._states.pop(name, None)
        if state is None:
            state = ProducerState()
            self._make_room(name.startswith(PASSING))
        self._states[name] = state
        return state

    def _make_room(self, passing: bool) -> None:
        """Forget the oldest of a kind if there are too many: a bound for each, so that a name outlives the nameless."""
        alike = [name for name in self._states if name.startswith(PASSING) is passing]
        if len(alike) >= _MAX_PRODUCERS:
            del self._states[alike[0]]
            self.unsaid.pop(alike[0], None)

    def seen(self) -> dict[str, Any]:
        """Return what the disk tier's log has yet to say."""
        return {name: self._states[name].image() for name in self.unsaid if name in self._states}

    def learn(self, seen: Mapping[str, Any]) -> None:
        """Note what `seen` returned."""
        for name, image in seen.items():
            self._state(name).learn(image)

    def image(self) -> dict[str, Any]:
        """Return all of it as plain values; nothing of a channel that never had a producer."""
        if not self._states:
            return {}
        image: dict[str, Any] = {"states": {name: state.image() for name, state in self._states.items()}}
        if self.unsaid:
            image["unsaid"] = list(self.unsaid)
        return {"producers": image}
