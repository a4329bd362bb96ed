"""The batches that a channel remembers of each producer, so that a resent batch is not stored again.

A producer that numbers its own batches commits several at once, in any order. The last number does not
show which earlier ones are stored, so the history keeps ranges of numbers. (Kafka keeps the last number
and accepts batches only in order.)

An application that chooses the numbers sends its batches in order, and may resend any of them after a
restart. It may also send other events under an old number. The history therefore keeps a fingerprint of the
events of the latest batches. A batch counts as stored only if its number and fingerprint match one of these;
any other batch that is not new is refused. A number alone is never enough to acknowledge a batch.

A batch may bring a note, which the producer finds again with its last number, such as how far it has read its input. It
belongs to that number: a batch with a higher one replaces it, with its own note or with none; one with a lower number,
which comes late, does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from spillable_stream.errors import ProducerSequenceError
from spillable_stream.format.numbered_batch import BY_PRODUCER, Numbers, ProducerImage, ProducerNote, StoredBatch
from spillable_stream.state.image import HistoryImage, ProducersImage
from spillable_stream.state.ranges import Range, RangeSet, listed

__all__ = ["NOT_KNOWN", "PASSING", "Answer", "ProducerHistory", "ProducerState"]

PASSING = "~"
"""Prefix of generated producer IDs, which no producer resumes. They never evict a producer with a chosen ID."""

_MAX_PRODUCERS = 1000
_MAX_RANGES = 64
_MAX_ANSWERS = 64


class Answer(NamedTuple):
    """The answer to a resent batch: where its events are stored.

    Args:
        first_id: the write-order ID of its first event; 0 if it is no longer known.
        last_id: the write-order ID of its last event; -1 if it is no longer known.
        fingerprint: the fingerprint of its events, like that of `Numbers`.
    """

    first_id: int
    last_id: int
    fingerprint: int | None = None

    def to(self, producer: str, numbers: Numbers) -> Answer:
        """Return this answer, once it is certain that a batch with the stored one's number is the same batch.

        Args:
            producer: the producer's ID, for messages.
            numbers: the sequence numbers of the resent batch.

        Raises:
            ProducerSequenceError: the batch has other events; or the application chose the number of one of them,
                and the producer chose that of the other.
        """
        stored, sent = self.fingerprint, numbers.fingerprint
        if stored is not None and sent is not None and stored != sent:
            if BY_PRODUCER in (stored, sent):
                raise _of_other_kind(producer, numbers, stored)
            ids = "ID" if self.first_id == self.last_id else "IDs"
            raise ProducerSequenceError(
                f"batch {numbers.last} of the producer {producer!r} is stored with other events, as the write-order "
                f"{ids} {listed([(self.first_id, self.last_id)])}. Nothing was stored again; a batch that is sent "
                "again must have the same events under the same number"
            )
        return self


NOT_KNOWN = Answer(0, -1)
"""The answer to a batch that is stored, but whose write-order IDs are no longer known."""


@dataclass(slots=True)
class ProducerState:
    """The batches that one producer has committed.

    Args:
        committed: the sequence numbers known to be committed.
        forgotten: up to this number, a number that is not in `committed` may have been committed or not.
        answers: the answers for the latest batches, by sequence number, in case the original answer was lost.
        noted: the number of the batch that brought the newest note, and the note; None without one.
    """

    committed: RangeSet = field(default_factory=RangeSet)
    forgotten: int = 0
    answers: dict[int, Answer] = field(default_factory=dict)
    noted: ProducerNote | None = None

    @property
    def last(self) -> int:
        """The highest sequence number that was committed; 0 if none was."""
        return max(self.committed.last, self.forgotten)

    @property
    def note(self) -> bytes:
        """The note that came with the last number; b"" if none did."""
        return self.noted[1] if self.noted is not None and self.noted[0] == self.last else b""

    @property
    def fingerprint(self) -> int | None:
        """The fingerprint of some batch, which shows who chooses the numbers; None while that is unknown."""
        return next((a.fingerprint for a in self.answers.values() if a.fingerprint is not None), None)

    def answer(self, producer: str, numbers: Numbers) -> Answer | None:
        """Return the answer for a stored batch; None if the batch is new.

        Args:
            producer: the producer's ID, for messages.
            numbers: the batch's sequence numbers.

        Raises:
            ProducerSequenceError: the batch is too old to tell whether it was committed; or the application chose its
                number, and it is neither new nor one of the latest; or the application numbered this batch and the
                producer numbered the stored ones, or vice versa.
        """
        sequence, chosen_by, sent = numbers.last, self.fingerprint, numbers.fingerprint
        if None not in (chosen_by, sent) and (chosen_by == BY_PRODUCER) is not (sent == BY_PRODUCER):
            raise _of_other_kind(producer, numbers, chosen_by)
        if (found := self.answers.get(sequence)) is not None:
            return found.to(producer, numbers)
        if sent is not None and sent != BY_PRODUCER:
            if sequence <= self.last:
                raise self._not_in_order(producer, sequence)
            return None
        if sequence in self.committed:
            return NOT_KNOWN
        if sequence <= self.forgotten:
            raise ProducerSequenceError(
                f"whether batch {sequence} of the producer {producer!r} was committed is no longer known: of "
                f"batches up to {self.forgotten} there were too many gaps. Nothing was stored; continue after the "
                f"last one, {self.last}"
            )
        return None

    def was_skipped(self, sequence: int) -> bool:
        """Tell whether a batch is known not to be there, though a later one used its number up; see `record`."""
        answers = self.answers
        if sequence in answers or sequence > max(answers, default=0):
            return False
        return len(answers) < _MAX_ANSWERS or sequence > min(answers)

    def _not_in_order(self, producer: str, sequence: int) -> ProducerSequenceError:
        return ProducerSequenceError(
            f"batch {sequence} of the producer {producer!r} comes after batch {self.last} and is not one of the "
            f"latest {len(self.answers)} that are stored. Nothing was stored: numbers must grow, and a program that "
            "sends batches again must divide its input as before. Continue after last_sequence() with a new producer"
        )

    def record(self, numbers: Numbers, ids: Range, note: bytes = b"") -> None:
        """Record that a batch was committed.

        Args:
            numbers: the sequence numbers that it uses up. An application numbers its batches in order, possibly with
                gaps; its batch also uses up the skipped numbers before its own.
            ids: the write-order IDs of its events.
            note: what the producer wants to find again with its last number.
        """
        self.committed.add(numbers.first, numbers.last)
        self.answers[numbers.last] = Answer(*ids, numbers.fingerprint)
        self._bound()
        self.merge_note((numbers.last, note) if note else None)

    def merge(self, image: ProducerImage) -> None:
        """Merge an `image` of the same producer."""
        committed, forgotten, answers = image
        for first, last in committed:
            self.committed.add(first, last)
        self.forgotten = max(self.forgotten, forgotten)
        for sequence, *answer in answers:
            self.answers.setdefault(sequence, Answer(*answer))
        self._bound()

    def merge_note(self, noted: ProducerNote | None) -> None:
        """Merge a note, once its number is known; only that of the last number is kept."""
        found = [n for n in (self.noted, noted) if n is not None and n[0] == self.last]
        self.noted = found[-1] if found else None

    def _bound(self) -> None:
        while len(self.committed) > _MAX_RANGES:
            first, last = next(iter(self.committed))
            self.committed.remove(first, last)
            self.forgotten = max(self.forgotten, last)  # a merge may add numbers below those already forgotten
        while len(self.answers) > _MAX_ANSWERS:
            del self.answers[next(iter(self.answers))]

    def image(self) -> ProducerImage:
        """Return the state as plain values: the committed ranges, the last forgotten number, and the answers."""
        answers: list[StoredBatch] = [
            (sequence, first, last) if fingerprint is None else (sequence, first, last, fingerprint)
            for sequence, (first, last, fingerprint) in self.answers.items()
        ]
        return list(self.committed), self.forgotten, answers


def _of_other_kind(producer: str, numbers: Numbers, chosen_by: int | None) -> ProducerSequenceError:
    here, now = "the application", "the producer itself"
    if chosen_by == BY_PRODUCER:
        here, now = now, here
    return ProducerSequenceError(
        f"the batches of the producer {producer!r} are numbered by {here} in this channel, and {now} numbered batch "
        f"{numbers.last}. Nothing was stored: give every send a sequence, or none, or use another producer_id"
    )


class ProducerHistory:
    """The producers of a channel: those that committed last, up to a limit.

    Args:
        image: the ``"producers"`` of what `image` returned; None for no producers.

    Attributes:
        memory_only: the names of producers with batches that only the memory tier's log has recorded.
    """

    def __init__(self, image: HistoryImage | None = None) -> None:
        self._states: dict[str, ProducerState] = {}
        for name, said in image["states"].items() if image else ():
            self._states[name] = ProducerState()
            self._states[name].merge(said)
        self._merge_notes(image.get("notes", {}) if image else {})
        self.memory_only: dict[str, None] = dict.fromkeys(image.get("unsaid", ()) if image else ())

    def __iter__(self) -> Iterator[str]:
        return iter(self._states)

    def __bool__(self) -> bool:
        return bool(self._states)

    def last(self, name: str) -> int:
        """Return the highest sequence number that a producer committed; 0 for an unknown producer."""
        state = self._states.get(name)
        return state.last if state else 0

    def note(self, name: str) -> bytes:
        """Return the note that came with a producer's last number; b"" if none did."""
        state = self._states.get(name)
        return state.note if state else b""

    def was_skipped(self, name: str, sequence: int) -> bool:
        """Tell whether a batch of a producer is known not to be there; see `ProducerState.was_skipped`."""
        state = self._states.get(name)
        return state is not None and state.was_skipped(sequence)

    def answer(self, name: str, numbers: Numbers) -> Answer | None:
        """Return the answer for a stored batch, or None for a new one; see `ProducerState.answer`."""
        state = self._states.get(name)
        return state.answer(name, numbers) if state else None

    def record(self, name: str, numbers: Numbers, ids: Range, *, in_memory: bool, note: bytes = b"") -> None:
        """Record that a batch was committed; see `ProducerState.record`."""
        self._state(name).record(numbers, ids, note)
        if in_memory:
            self.memory_only[name] = None

    def _state(self, name: str) -> ProducerState:
        """Return a producer's state, created if missing, and make it the most recently used."""
        state = self._states.pop(name, None)
        if state is None:
            state = ProducerState()
            self._make_room(name.startswith(PASSING))
        self._states[name] = state
        return state

    def _make_room(self, passing: bool) -> None:
        """Forget the oldest producer of a kind if there are too many; each kind has its own limit."""
        alike = [name for name in self._states if name.startswith(PASSING) is passing]
        if len(alike) >= _MAX_PRODUCERS:
            del self._states[alike[0]]
            self.memory_only.pop(alike[0], None)

    def memory_only_image(self) -> dict[str, ProducerImage]:
        """Return the images of the producers in `memory_only`, by name, for the disk tier's log."""
        return {name: self._states[name].image() for name in self.memory_only if name in self._states}

    def memory_only_notes(self) -> dict[str, ProducerNote]:
        """Return the notes of the producers in `memory_only`, by name, of those that have one."""
        return {name: noted for name in self.memory_only if (noted := self._noted(name)) is not None}

    def merge(self, images: Mapping[str, ProducerImage], notes: Mapping[str, ProducerNote]) -> None:
        """Merge images of producers and their notes, by name, as `memory_only_image` and its like return them.

        Args:
            images: the images.
            notes: the notes, of some of these producers.
        """
        for name, image in images.items():
            self._state(name).merge(image)
        self._merge_notes(notes)

    def _merge_notes(self, notes: Mapping[str, ProducerNote]) -> None:
        for name, (sequence, note) in notes.items():
            if name in self._states:
                self._states[name].merge_note((sequence, note))

    def _noted(self, name: str) -> ProducerNote | None:
        """Return a producer's note with the number that it came with, which is the last one; None without one."""
        state = self._states.get(name)
        return (state.last, state.note) if state is not None and state.note else None

    def image(self) -> ProducersImage:
        """Return the history as plain values; {} for a channel that never had a producer."""
        if not self._states:
            return {}
        image: HistoryImage = {"states": {name: state.image() for name, state in self._states.items()}}
        if self.memory_only:
            image["unsaid"] = list(self.memory_only)
        if notes := {name: noted for name in self._states if (noted := self._noted(name)) is not None}:
            image["notes"] = notes
        return {"producers": image}
