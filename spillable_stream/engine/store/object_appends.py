"""The appends of one handle to a log in a store, with what each teaches the handle."""

from __future__ import annotations

import contextlib
import time
from functools import partial

from spillable_stream.engine.append_plan import AppendPlan
from spillable_stream.engine.store.channel_presence import ChannelPresence
from spillable_stream.engine.store.known_slots import KnownSlots
from spillable_stream.engine.store.object_looks import ObjectLooks
from spillable_stream.errors import CommitOutcomeUnknownError, CorruptionError, NotAChannelError, StorageError
from spillable_stream.format.slot import NO_TOKEN, Slot
from spillable_stream.log.wal import Position
from spillable_stream.log_records import Seldom, fields, log_of
from spillable_stream.objects.appending import Appending, Attempt
from spillable_stream.objects.checkpoints import Checkpoints
from spillable_stream.objects.pace import Pace
from spillable_stream.objects.parallel import begin
from spillable_stream.objects.read_ahead import BehindError, require_there
from spillable_stream.objects.slots import ForeignSlotError, Slots
from spillable_stream.objects.void_slots import declare_void, withdraw_void

__all__ = ["ObjectAppends"]

_log = log_of(__name__)

_AHEAD_SECONDS = 60  # of a clock: less makes no difference


class ObjectAppends:
    """Appends what was planned, one append at a time: all of it is called with the handle's lock held.

    Args:
        slots: the channel's slots.
        known: what the handle knows of them.
        looks: finds what others appended.
        presence: whether the channel is still there.
        pace: learns of each append.
        appending: sends it.
        checkpoints: the channel's checkpoints.
    """

    def __init__(
        self,
        slots: Slots,
        known: KnownSlots,
        looks: ObjectLooks,
        presence: ChannelPresence,
        pace: Pace,
        appending: Appending,
        checkpoints: Checkpoints,
    ) -> None:
        self._slots = slots
        self._known = known
        self._looks = looks
        self._presence = presence
        self._pace = pace
        self._appending = appending
        self._checkpoints = checkpoints
        self._warning = Seldom()

    def begin(self) -> Position:
        """Return where the next append goes: behind the header of the next slot."""
        tail = self._known.tail
        return Position(tail.number + 1, self._appending.begin_bytes(tail))

    def append(self, plan: AppendPlan, start: Position) -> Position | None:
        """Append what was planned at ``start``; returns and raises what `Log.append` does."""
        known, tail = self._known, self._known.tail
        assert tail.number + 1 == start.file_id
        self._compare_clocks(plan.time_us)
        attempt = self._appending.attempt(tail, plan.entries)
        known.unsettled = attempt  # first: an interrupt may come anywhere
        began = time.monotonic()
        try:
            lost = self._appending.append(attempt)
        except CommitOutcomeUnknownError as e:
            known.publish()  # the next append heals
            if e.is_lasting:
                self._require_there_after(attempt)
                self._declare_void(attempt)
                self._looks.refuse_overwritten()
            raise
        except ForeignSlotError:
            known.unsettled = None
            self._require_there_after(attempt)
            raise
        except StorageError:
            known.unsettled = None
            raise
        except BaseException:
            known.publish()
            raise
        known.unsettled = None
        if lost is not None:
            self._learn(lost)
            return None
        self._presence.saw(began)
        self._pace.appended(time.monotonic() - began)
        known.appended(attempt)
        return Position(attempt.number, attempt.size_bytes)

    def _compare_clocks(self, time_us: int) -> None:
        """Warn if the times of the channel's events are ahead of this host's clock: no time is before the last one.

        Args:
            time_us: what an append now has, in microseconds since 1970.
        """
        seconds = (time_us - time.time_ns() // 1000) / 1e6
        if seconds > _AHEAD_SECONDS and self._warning.is_due():
            where = self._slots.store.root
            _log.warning(
                "%s: the time of the last commit is %s s ahead of the clock of this host: set the clocks of all hosts "
                "that write there. Until then events have times that are too late",
                where,
                f"{seconds:,.0f}",
                extra=fields(where, seconds=seconds),
            )

    def _require_there_after(self, attempt: Attempt) -> None:
        try:
            self._presence.require_after(attempt.number)
        except NotAChannelError:
            self._known.unsettled = None
            raise

    def _declare_void(self, attempt: Attempt) -> None:
        """Let others pass the slot of an append whose proof failed, if the slot before it is lost, and not collected.

        No slot is collected before there is a checkpoint behind it. A listing that shows none proves it well enough:
        nobody asks whether a slot is void that was planned on the one before it.
        """
        if attempt.unproven == NO_TOKEN or attempt.is_void:
            return
        with contextlib.suppress(StorageError):  # as if this process had ended before
            if max(self._checkpoints.numbers(), default=0) <= attempt.at.counting.number:
                declare_void(self._slots, attempt.number, attempt.unproven)
                attempt.is_void = True

    def _withdraw_void(self, attempt: Attempt) -> None:
        """Take back what `_declare_void` said: the slot before it is there again, and this one is proven."""
        if attempt.is_void:
            with contextlib.suppress(StorageError):  # a repair finds by what is planned on it that it counts
                withdraw_void(self._slots, attempt.number, attempt.unproven)
                attempt.is_void = False

    def _learn(self, lost: Slot) -> None:
        """Take note of the slot that took an append's place, and of what follows it.

        The proof and the look at the next slot are one wait: whoever just won may win again meanwhile.
        """
        looking = begin(self._slots.store.root, partial(self._slots.read, lost.number + 1))
        try:
            require_there(self._slots, self._known.tail)
            if is_next := self._known.tail.accepts(lost):
                self._known.know([lost])
            is_over = is_next and looking.result() is None
        except BehindError as e:
            self._looks.begin_anew(is_gone=e.is_gone)
            return
        except CorruptionError:
            is_over = False
        if not is_over:
            self._looks.find()  # which says what is wrong with a slot that is not next, or damaged

    def heal(self) -> None:
        """Settle an append of this handle whose outcome is not known, and find what others appended.

        Raises:
            NotAChannelError: the channel is no longer there.
            StorageError: nobody answers, still; this commit was not sent.
        """
        known, attempt = self._known, self._known.unsettled
        if attempt is not None:
            try:
                if self._appending.settle(attempt) is None:
                    self._withdraw_void(attempt)
            except CommitOutcomeUnknownError as e:
                if e.is_lasting:
                    self._require_there_after(attempt)
                    self._declare_void(attempt)
                self._looks.find()  # its place may have been collected: then it is given up there
                if known.unsettled is not None:
                    raise StorageError(
                        f"{e}. That is an earlier commit of this handle, which has to be known first: nothing of this "
                        "one was committed; commit it again"
                    ) from e
            except ForeignSlotError:
                self._require_there_after(attempt)
                raise
            except StorageError:  # a fence is there now, on which the next append is planned
                self._withdraw_void(attempt)
            known.unsettled = None
        self._looks.find()
        known.publish()
