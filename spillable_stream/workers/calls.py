"""The calls of a worker that are under way, and what is written down about them.

After a process that was killed, the next worker writes down which events it calls the function with, until it has had
all events that the former one may have had. If it is killed too, the next one knows which they were, and calls these
alone. So an event that kills its process is found after a few of them.

How often an event has failed is written down too: now and then while events fail, and when the worker ends. In all
other times nothing is written.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from spillable_stream.counted import counted
from spillable_stream.errors import SpillableError
from spillable_stream.log_records import RecordFields, fields, log_of
from spillable_stream.state.ranges import Range, RangeSet, count_of
from spillable_stream.workers.unfinished import Suspect, Unfinished, suspects_after
from spillable_stream.workers.work import Care, Work

__all__ = ["Calls"]

_log = log_of(__name__)

_POLL_SECONDS = 0.05
_INTERVAL_SECONDS = 1.0  # between two notes about events that have failed: in a store each is a request


class Calls:
    """Lets calls begin, and says in the note about the group's owner what a process that is killed leaves.

    Args:
        changed: the worker's mutex, which is reentrant. It is not held while the note is written.
        most: how many events the worker may have at once.
        write: writes the note.
        about: the fields of log records about the worker.
        clock: the time, in seconds, for tests.
    """

    def __init__(
        self,
        changed: threading.Condition,
        most: int,
        write: Callable[[str], None],
        about: RecordFields,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._changed = changed
        self._most = most
        self._write = write
        self._about = about
        self._clock = clock
        self._failed: dict[int, int] = {}  # how often, by event
        self._former: dict[int, int] = {}  # those of former workers that were not claimed yet
        self._said_at = float("-inf")
        self._has_news = False
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
        if left is None:
            return
        self._left_to_note = left.most
        self._suspects = suspects_after(left, untaken)
        self._former = {event: attempts for event, attempts in left.failed.items() if untaken(event, event)}
        self._failed = dict(self._former)
        self._say()
        if left.most:
            alone = sum(count_of(suspect.ranges) for suspect in self._suspects)
            _log.warning(
                "the former worker was killed, or could not say how it ended%s",
                f"; {counted(alone, 'event', 'are')} called alone now" if alone else "",
                extra=self._about | fields(count=alone),
            )

    def divide(self, ranges: list[Range]) -> list[Work]:
        """Return the work that events are which were just claimed; the mutex is held."""
        if not (self._left_to_note or self._suspects or self._former):
            return [Work(ranges)]
        rest, found = RangeSet(ranges), list[Work]()
        for suspect in self._suspects:
            part = [r for first, last in suspect.ranges for r in rest.within(first, last)]
            if part:
                failed = self._former.pop(part[0][0], 0) if count_of(part) == 1 else 0
                found.append(Work(part, suspect.attempts + failed, care=Care.ALONE))
            for first, last in part:
                rest.remove(first, last)
        care = Care.NOTED if self._left_to_note else Care.NONE
        for event in [event for event in self._former if event in rest]:
            found.append(Work([(event, event)], self._former.pop(event), care=care))
            rest.remove(event, event)
        if rest:
            found.append(Work(list(rest), care=care))
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
            if self._alone_waiting or work.care is Care.ALONE:  # else nobody waits for it
                self._changed.notify_all()

    def failed(self, work: Work) -> None:
        """Say that a call was over before its events were done."""
        if work.care is not Care.NONE:
            self._say()

    def judged(self, work: Work) -> None:
        """Remember how often an event has failed, and suspect no event that was called alone and failed."""
        if work.count == 1 and work.attempts:
            with self._changed:
                self._has_news |= self._failed.get(work.first_id) != work.attempts
                self._failed[work.first_id] = work.attempts
                self._clear(work)

    def say_what_failed(self) -> None:
        """Write down how often events have failed, if that has changed, and nothing was written lately."""
        if self._has_news and self._clock() >= self._said_at + _INTERVAL_SECONDS:
            self._say()

    def settled(self, work: Work) -> None:
        """Forget events which are taken; the mutex is held."""
        if self._failed and work.count == 1:
            self._failed.pop(work.first_id, None)
        self._clear(work)

    def _clear(self, work: Work) -> None:
        """Suspect events no more; the mutex is held."""
        if work.care is Care.ALONE:
            done = RangeSet(work.ranges)
            left = [Suspect([r for a, b in s.ranges for r in done.gaps(a, b)], s.attempts) for s in self._suspects]
            self._suspects = [suspect for suspect in left if suspect.ranges]

    def last_note(self) -> str:
        """Return what a worker leaves that ends in order; "" for nothing."""
        with self._changed:
            is_left = self._suspects or self._failed
            return Unfinished(0, [], self._suspects, self._failed).note() if is_left else ""

    def _say(self) -> None:
        with self._writing:
            with self._changed:
                # Only after a kill: once they are said, they must be said again whenever they change.
                is_noted = self._is_noted or any(work.care is not Care.NONE for work in self._under_way)
                calls = [work.ranges for work in self._under_way] if is_noted else []
                self._is_noted = bool(calls)
                self._said_at, self._has_news = self._clock(), False
                note = Unfinished(self._most, calls, self._suspects, self._failed).note()
            try:
                self._write(note)
            except SpillableError as e:
                _log.warning("if the process is killed now, nobody knows by which event: %s", e, extra=self._about)
