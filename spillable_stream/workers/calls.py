"""The calls of a worker that are under way, and those of them that are written down first.

After a process that was killed, the next worker writes down which events it calls the function with, until it has had
all events that the former one may have had. If it is killed too, the next one knows which they were, and calls these
alone. So an event that kills its process is found after a few of them, and in all other times nothing is written.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from spillable_stream.errors import SpillableError
from spillable_stream.log_records import RecordFields, fields
from spillable_stream.state.ranges import Range, RangeSet, count_of
from spillable_stream.workers.unfinished import Suspect, Unfinished, suspects_after
from spillable_stream.workers.work import Care, Work

__all__ = ["Calls"]

_log = logging.getLogger(__name__)

_POLL_SECONDS = 0.05


class Calls:
    """Lets calls begin, and says in the note about the group's owner what a process that is killed leaves.

    Args:
        changed: the worker's mutex, which is reentrant. It is not held while the note is written.
        most: how many events the worker may have at once.
        write: writes the note.
        about: the fields of log records about the worker.
    """

    def __init__(
        self, changed: threading.Condition, most: int, write: Callable[[str], None], about: RecordFields
    ) -> None:
        self._changed = changed
        self._most = most
        self._write = write
        self._about = about
        self._under_way: list[Work] = []
        self._alone_waiting = 0
        self._suspects: list[Suspect] = []
        self._left_to_note = 0  # events: those of the former worker are the first ones that are claimed
        self._is_noted = False  # whether the note has calls that are under way
        self._writing = threading.Lock()

    def take_over(self, former: str, untaken: Callable[[int, int], list[Range]]) -> None:
        """Begin where a former owner of the group was.

        Args:
            former: what it wrote about itself.
            untaken: returns which events between two IDs the group has yet to take.
        """
        left = Unfinished.parse(former)
        if left is not None:
            self._left_to_note = left.most
            self._suspects = suspects_after(left, untaken)
            self._say()
            alone = sum(count_of(suspect.ranges) for suspect in self._suspects)
            _log.warning(
                "the process of the former worker was killed; %d events are called alone now", alone,
                extra=self._about | fields(count=alone),
            )  # fmt: skip

    def divide(self, ranges: list[Range]) -> list[Work]:
        """Return the work that events are which were just claimed; the mutex is held."""
        if not self._left_to_note and not self._suspects:
            return [Work(ranges)]
        rest, found = RangeSet(ranges), list[Work]()
        for suspect in self._suspects:
            part = [r for first, last in suspect.ranges for r in rest.within(first, last)]
            if part:
                found.append(Work(part, suspect.attempts, care=Care.ALONE))
            for first, last in part:
                rest.remove(first, last)
        if rest:
            found.append(Work(list(rest), care=Care.NOTED if self._left_to_note else Care.NONE))
        self._left_to_note = max(0, self._left_to_note - sum(work.count for work in found))
        return sorted(found, key=lambda work: work.first_id)

    def begin(self, work: Work, may_begin: Callable[[], bool]) -> bool:
        """Wait until a call may begin, and write it down if need be.

        Args:
            work: what it is about.
            may_begin: tells whether it should begin at all; the mutex is held.

        Returns:
            Whether it may begin.
        """
        with self._changed:
            is_alone = work.care is Care.ALONE
            self._alone_waiting += is_alone
            try:
                while may_begin() and self._must_wait(is_alone):
                    self._changed.wait(_POLL_SECONDS)
            finally:
                self._alone_waiting -= is_alone
            if not may_begin():
                return False
            self._under_way.append(work)
            is_noted = work.care is not Care.NONE or self._is_noted
        if is_noted:
            self._say()
        return True

    def _must_wait(self, is_alone: bool) -> bool:
        if is_alone:
            return bool(self._under_way)
        return self._alone_waiting > 0 or any(work.care is Care.ALONE for work in self._under_way)

    def end(self, work: Work) -> None:
        """Let a call be over, or be left behind."""
        with self._changed:
            self._under_way = [other for other in self._under_way if other is not work]
            self._is_noted = self._is_noted and bool(self._under_way)
            self._changed.notify_all()

    def failed(self, work: Work) -> None:
        """Say that a call was over before its events were done."""
        if work.care is not Care.NONE:
            self._say()

    def settled(self, work: Work) -> None:
        """Suspect events no more, which are taken; the mutex is held."""
        if work.care is Care.ALONE:
            done = RangeSet(work.ranges)
            left = [Suspect([r for a, b in s.ranges for r in done.gaps(a, b)], s.attempts) for s in self._suspects]
            self._suspects = [suspect for suspect in left if suspect.ranges]

    def _say(self) -> None:
        with self._writing:
            with self._changed:
                calls = [work.ranges for work in self._under_way]
                self._is_noted = bool(calls)
                note = Unfinished(self._most, calls, self._suspects).note()
            try:
                self._write(note)
            except SpillableError as e:
                _log.warning("if the process is killed now, nobody knows by which event: %s", e, extra=self._about)
