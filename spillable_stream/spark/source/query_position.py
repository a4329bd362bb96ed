"""Where a query is, as far as its source's long-lived worker has heard from Spark.

::

                          ┌─────────── plan ───────────┐
                          │                            ▼
    UNHEARD ── begin ──▶ NEW ── ask ──▶ ASKED ─ plan ▶ PLANNED
       │                  ▲              │ ▲           │
       │                  └─── begin ────┘ └─── ask ───┘
       │
       ├── ask ────▶ ASKED       a query that resumes after a restart (Spark 4.2 and later)
       └── plan ───▶ PLANNED     the same, where Spark plans its last batch again first

    begin   initialOffset: the query is new, and `QueryStart` says where its first batch begins. Spark says so twice:
            again between asking for the first batch and planning it, so the first batch is planned in NEW
    ask     latestOffset: Spark wants to know where the next batch ends, and `answer` says it; in ASKED again and again
            while there is nothing new
    plan    partitions: Spark has written where the batch begins and ends, and reads it

In NEW, Spark knows of no batch: the first one may still begin elsewhere, if a former owner's take was committed before
this worker had the group. In every other state the beginning is Spark's, and the source only checks it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from spillable_stream.spark.source.offset import Offset, OffsetJson

__all__ = ["Asked", "Phase", "QueryPosition", "Question", "is_asked_anew"]


class Phase(Enum):
    """What Spark did last."""

    UNHEARD = "unheard"
    NEW = "new"
    ASKED = "asked"
    PLANNED = "planned"


@dataclass(frozen=True, slots=True)
class Question:
    """Spark's asking where the next batch ends.

    Args:
        begin_id: the batch has the events after this one.
        start: where Spark says that it begins; None before Spark 4.2, which does not say it.
        proven_id: everything up to this event is in Spark's commit log, or Spark would not ask; None if it proves
            nothing.
    """

    begin_id: int
    start: Offset | None
    proven_id: int | None


@dataclass(frozen=True, slots=True)
class Asked:
    """A question of Spark's, where the next micro-batch ends, that is half answered.

    Args:
        start: where Spark says that it begins; None before Spark 4.2.
        given: the same, parsed.
        question: what that means.
        unfinished_id: the end of a batch that was planned before and not finished; None without one.
    """

    start: OffsetJson | None
    given: Offset | None
    question: Question
    unfinished_id: int | None


class QueryPosition:
    """The state machine of one query. It knows nothing of the channel but what it is told.

    Attributes:
        phase: what Spark did last.
        is_new: whether the query began in this worker: it misses all that its group lost.
        covered_id: everything up to this event is in a batch that Spark has heard of.
        planned: the end of the batch that was planned last; None if none was.
    """

    def __init__(self) -> None:
        self.phase: Phase = Phase.UNHEARD
        self.is_new: bool = False
        self.covered_id: int = 0
        self.planned: Offset | None = None
        self._most_planned_id = 0  # the furthest end of a planned batch: Spark may plan an older one again
        self._first_begin_id: int | None = None  # after this event begins the query's first batch, if that is known
        self._answered: Offset | None = None  # the last answer

    def begin(self, position_id: int) -> None:
        """Begin a new query.

        Args:
            position_id: the group's position, at which it begins.
        """
        self.phase = Phase.NEW
        self.is_new = True
        self.covered_id = max(self.covered_id, position_id)
        self._first_begin_id = position_id

    def ask(self, start: Offset | None, position_id: int, channel: str) -> Question:
        """Return what Spark asks for.

        Args:
            start: where the batch begins; None before Spark 4.2, where the furthest end planned counts.
            position_id: the group's position now.
            channel: the channel's UUID.
        """
        if start is not None:
            begin_id, known_id = start.event_id, self._first_begin_id
        else:
            begin_id, known_id = max(self._most_planned_id, position_id), position_id
        if self.phase is Phase.NEW and self._first_begin_id != position_id and begin_id == known_id:
            # A former owner's take was committed before this worker had the group.
            begin_id = self._first_begin_id = position_id
            start = Offset(channel, begin_id, begin_id)  # what Spark takes for the batch's start is before it
        self.phase = Phase.ASKED
        if start is not None:
            return Question(begin_id, start, begin_id)
        return Question(begin_id, None, self.planned.event_id if self.planned else None)

    def answer(self, question: Question, end_id: int, channel: str) -> Offset:
        """Return the offset of a batch's end: its beginning, to the letter, where there is nothing new.

        Args:
            question: what Spark asked for.
            end_id: the batch has the events up to this one; the question's ``begin_id`` if there is none.
            channel: the channel's UUID.
        """
        begin_id = question.begin_id
        self.covered_id = end_id
        start = question.start or self.planned  # before Spark 4.2 `plan` comes first after a restart
        if start is None:
            self._first_begin_id = begin_id
        elif end_id == begin_id == start.event_id:
            return start
        is_first = begin_id == self._first_begin_id and end_id > begin_id
        self._answered = Offset(channel, end_id, begin_id if is_first else None)
        return self._answered

    def has_answered(self, end: Offset) -> bool:
        """Tell whether a batch ends where this worker has said: Spark's checkpoint did not have it yet."""
        said = self._answered
        return said is not None and (said.event_id, said.start_id) == (end.event_id, end.start_id)

    def plan(self, start: Offset, end: Offset) -> int:
        """Record a batch that Spark plans, and return the event after which it begins.

        Args:
            start: where Spark says that it begins; of a query's first batch, the end knows it better.
            end: where it ends.
        """
        self.phase = Phase.PLANNED
        self.planned = end
        self._first_begin_id = end.start_id  # and not where a restarted query was asked anew to begin
        self._most_planned_id = max(self._most_planned_id, end.event_id)
        self.covered_id = end.event_id
        return start.event_id if end.start_id is None else end.start_id

    def missed_after(self, begin_id: int) -> int:
        """Return the event after which the query misses what is lost, whatever the group's position is.

        Args:
            begin_id: the event after which its batch begins.
        """
        return 0 if self.is_new else begin_id


def is_asked_anew(start: Offset, end: Offset) -> bool:
    """Tell whether Spark asked anew where a query's first batch begins: it plans the batch again after a restart.

    The options may mean a later place by then, and a reset has another name.

    Args:
        start: where Spark says that a batch begins.
        end: where it ends.
    """
    return end.event_id < start.event_id or (end.reset is not None and end.reset != start.reset)
