"""Owners of the groups of a channel in an object store: records in the log name them, and no other host's clock counts.

::

    nobody owns it ─── Own ──▶ owned, with an epoch that no other ownership has ─── GiveUp ──▶ nobody
                                 ├─ its process is gone, as one of its host sees ── Own ──▶ the other's, at once
                                 │ Claim by another, which then waits
                                 ├─ the owner answers (Own, with its epoch) ──▶ refused: it lives
                                 └─ no answer within the timeout ── Own ──▶ the other's, with a new epoch

Whatever the former owner plans then is refused: its epoch is not the one in the state, and its slot would have to be
planned on a slot that comes after the takeover. So a takeover that was hasty is unfair, and never wrong.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator
from functools import partial

from spillable_stream.engine.appender import Appender
from spillable_stream.engine.follower import Follower
from spillable_stream.engine.group_owners import GroupHold, OwnerSeen
from spillable_stream.engine.groups import existing_group, has_stayed
from spillable_stream.engine.log_port import ChannelPath
from spillable_stream.engine.one_look import look_again, one_look
from spillable_stream.engine.owner_note import new_note, said_owner
from spillable_stream.engine.periodic_thread import PeriodicThread
from spillable_stream.engine.process_owners import is_nobodys, refusal_here
from spillable_stream.engine.requests import Request
from spillable_stream.engine.store.object_log import ObjectLog
from spillable_stream.engine.store.object_ownership import (
    ANSWER_SECONDS,
    ObjectGroupHold,
    ObjectOwnership,
)
from spillable_stream.engine.store.owner_inquiries import OwnerInquiries
from spillable_stream.engine.store.owner_requests import Claim, GiveUp, Own
from spillable_stream.errors import (
    ChannelClosedError,
    CommitOutcomeUnknownError,
    GroupOwnedError,
    SpillableError,
    TransactionStateError,
)
from spillable_stream.log_records import Seldom, fields, log_of
from spillable_stream.names import check_group
from spillable_stream.state.contents import OwnerRecord
from spillable_stream.storage.lock import process_note
from spillable_stream.storage.process_identity import is_gone, process_name

__all__ = ["ObjectOwners"]

_log = log_of(__name__)

_LOOK_SECONDS = 1.0


class ObjectOwners:
    """The owners of the groups of a channel, and the groups that this handle owns. It implements `GroupOwners`.

    Args:
        log: the channel's log.
        follower: its state.
        appender: appends to its log.
        forget_notes: deletes what is beside a group that is dropped.
    """

    def __init__(
        self,
        log: ObjectLog,
        follower: Follower,
        appender: Appender,
        forget_notes: Callable[[str], None],
    ) -> None:
        self.path: ChannelPath = log.path
        self.losses: Callable[[], int] = log.losses
        self._follower = follower
        self._appender = appender
        self._last_requests = log.last_requests
        self._is_held_here = log.is_held_here
        self._untold_loss = log.untold_loss
        self._forget_notes = forget_notes
        # Weak: what an interrupt left without a consumer must not be answered for.
        self._mine: weakref.WeakValueDictionary[str, ObjectOwnership] = weakref.WeakValueDictionary()
        self._mutex = threading.Lock()
        self._inquiries = OwnerInquiries(ANSWER_SECONDS, self._ask)
        self._warning = Seldom()
        self._thread = PeriodicThread(self, "spillable owner")  # answers claims

    # ── looking ─────────────────────────────────────────────────────────────────────────────

    def known(self, group: str) -> OwnerRecord | None:
        """Return who owns a group by the state as it is known."""
        return self._follower.state.owners.get(group)

    def look(self, group: str) -> OwnerSeen:
        """Look who owns a group; one that died silently, on another host, counts as alive."""
        self._follower.follow()
        known = self.known(group)
        lives = known is not None and not is_gone(known.process)
        return OwnerSeen(lives, "" if known is None else known.note)

    def inquire(self, group: str) -> OwnerSeen:
        """Look who owns a group, and claim it where its owner has shown nothing for long: a later look finds an answer.

        One thread at a time may do that.

        Raises:
            StorageError: the store refused or failed.
        """
        seen, known = self.look(group), self.known(group)
        if not seen.is_alive or known is None:
            self._inquiries.forget(group)
            return seen
        if (mine := self._mine.get(group)) is not None and mine.epoch == known.epoch:
            return seen
        return seen._replace(is_alive=self._inquiries.is_alive(group, known, self._follower.state))

    def _ask(self, group: str, known: OwnerRecord) -> None:
        self._append(Claim(group, known, f"{uuid.uuid4().hex} {process_note()}, to learn whether it lives"))

    def owner_of(self, group: str) -> str:
        """Return what a group's owner wrote about itself; "" if nobody owns it."""
        known = self.known(group)
        return "" if known is None else known.note

    def position_of(self, group: str) -> None:
        """Return None: no part of the log can be lost."""

    def forget_former(self, group: str) -> None:
        """Do nothing: no position is kept beside the log."""

    def forget_files(self, group: str) -> None:
        """Delete what its worker, and the Spark query that read as it, have left; see `GroupOwners.forget_files`."""
        self._forget_notes(group)

    # ── owning ──────────────────────────────────────────────────────────────────────────────

    def own(self, group: str, timeout_seconds: float, note: str) -> ObjectOwnership:
        """Become a group's owner; `GroupOwners.own` explains the arguments.

        Raises:
            GroupOwnedError: another live handle owns the group.
            StorageError: the store refused or failed.
        """
        full = new_note(note)
        waiting = _Waiting(self, group, full, timeout_seconds)
        owned = ObjectOwnership(self, group, full)  # first: one that no object has is nobody's
        try:
            while True:
                self._follower.follow()
                over = waiting.may_end(self.known(group))
                if over is not _WAIT:
                    request = Own(group, full, over, losses=self.losses)
                    self._append(request)
                    if request.epoch:
                        owned.epoch, owned.losses = request.epoch, request.met
                        owned.former = "" if over is None else over.note
                        return self._keep(owned)
                else:
                    time.sleep(waiting.pause_seconds)
                    look_again(self._follower)
        except BaseException:
            owned.forget()  # a traceback may keep it
            raise

    def _keep(self, owned: ObjectOwnership) -> ObjectOwnership:
        with self._mutex:
            self._mine[owned.group] = owned
        self._thread.ensure()
        return owned

    def say_again(self, owned: ObjectOwnership) -> None:
        """Write the note of a group of this handle, which has changed.

        Raises:
            GroupOwnedError: another handle took the group over, or it was dropped.
            StorageError: the store refused or failed.
        """
        while True:
            owned.require()
            request = Own(owned.group, owned.note, self.known(owned.group), is_answer=True)
            self._append(request)
            if request.epoch:
                return

    def _append(self, request: Request) -> None:
        """Append a request; also inside of upkeep, and while the handle is being closed, both of which refuse commits.

        Raises:
            TransactionStateError: this thread commits, or looks at the channel.
        """
        if self._follower.snapshot.is_mine():
            raise TransactionStateError(f"a group of {self.path} can't get another owner inside of a look at the state")
        self._appender.commit_alone(request)

    def forget(self, owned: ObjectOwnership) -> None:
        """Answer no claims of a group any more."""
        with self._mutex:
            if self._mine.get(owned.group) is owned:
                del self._mine[owned.group]

    def give_up(self, owned: ObjectOwnership) -> None:
        """Own a group no more, and say so; a failure is logged, and so is a store that does not answer soon."""
        self.forget(owned)
        if self._is_held_here():  # another thread would wait for this one; here it is refused at once
            self._say_given_up(owned)
        elif not self._last_requests.are_answered(partial(self._say_given_up, owned)):
            self._warn_of(owned, "the store does not answer")

    def _say_given_up(self, owned: ObjectOwnership) -> None:
        with contextlib.suppress(ChannelClosedError):
            try:
                with self._untold_loss.block():
                    self._append(GiveUp(owned.group, owned.epoch, owned.left_note))
            except SpillableError as e:
                self._warn_of(owned, e)

    def _warn_of(self, owned: ObjectOwnership, why: object) -> None:
        _log.warning(
            "%s: the group %r looks owned until it is claimed: %s",
            self.path,
            owned.group,
            why,
            extra=fields(self.path, group=owned.group),
        )

    @contextlib.contextmanager
    def without_owner(self, group: str, otherwise: str = "", timeout_seconds: float = 1.0) -> Iterator[GroupHold]:
        """Own a group for the time of the block; `GroupOwners.without_owner` explains the arguments.

        Raises:
            GroupOwnedError: a live consumer owns it.
            OptionError: the channel has no group of this name.
        """
        check_group(group)
        with one_look():
            before = existing_group(self._follower.follow(), group, self.path).image()
            former = self.owner_of(group)
            try:
                owned = self.own(group, timeout_seconds, "to change it")
            except GroupOwnedError as e:
                raise GroupOwnedError(f"{e.args[0]}{otherwise}", e.owner) from None
            held = ObjectGroupHold(owned, former)
            try:
                before = existing_group(self._follower.follow(), group, self.path).image()
                yield held
            except CommitOutcomeUnknownError:
                raise
            except BaseException as e:  # also an interrupt, which may come behind the change
                if isinstance(e, SpillableError) or has_stayed(group, before, self._appender, self._follower):
                    owned.left_note = former  # the change did not come to be, and the note still counts
                raise
            finally:
                self.give_up(owned)

    # ── answering ───────────────────────────────────────────────────────────────────────────

    def answer_claims(self) -> bool:
        """Answer whoever claims a group of this handle, and tell whether it owns any."""
        with self._mutex:
            mine = list(self._mine.values())
        if mine:
            self._follower.follow()
        for owned in mine:
            known = self.known(owned.group)
            if known is not None and known.epoch == owned.epoch and known.claim and owned.lost is None:
                self._append(Own(owned.group, owned.note, known, is_answer=True))
        return bool(mine)

    def period_seconds(self) -> float:
        """Return how often to look for claims."""
        return _LOOK_SECONDS

    def run_once(self) -> bool:
        """Answer claims, and tell whether there will be others; a failure is logged, once a minute."""
        try:
            with self._untold_loss.block():
                self.answer_claims()
        except ChannelClosedError:
            return False
        except SpillableError as e:
            if self._warning.is_due():
                _log.warning("%s: a claim could not be answered now: %s", self.path, e, extra=fields(self.path))
        return True

    def close(self, *, forked: bool = False) -> None:
        """End the thread that answers.

        Args:
            forked: in a forked child, which has no such thread.
        """
        if not forked:
            self._last_requests.have_ended(self._thread.end)


_WAIT = OwnerRecord(-1, "")
"""What says that nobody may own the group yet."""


class _Waiting:
    """Decides how long one that wants a group waits for its owner."""

    def __init__(self, owners: ObjectOwners, group: str, note: str, timeout_seconds: float) -> None:
        self._owners = owners
        self._group = group
        self._by = f"{uuid.uuid4().hex} {note}"
        self._until = time.monotonic() + timeout_seconds
        self._claimed: tuple[OwnerRecord, float] | None = None  # what had no answer, and since when
        self._lives: int = 0  # the epoch that has answered
        self.pause_seconds = 0.05

    def may_end(self, known: OwnerRecord | None) -> OwnerRecord | None:
        """Return the ownership that may be ended, None if there is none; `_WAIT` to look again after a pause.

        An owner whose process is gone, on this host, is not asked. Nor is this process, if nobody in it owns the group.

        Raises:
            GroupOwnedError: the owner lives, and has not gone in time.
        """
        if known is None or is_gone(known.process) or (known.process == process_name() and is_nobodys(known.note)):
            return known
        now = time.monotonic()
        if self._claimed is not None and known.epoch == self._claimed[0].epoch and not known.claim:
            self._lives, self._claimed = known.epoch, None
        if self._lives == known.epoch:
            if now >= self._until:
                raise self._owned(known)
            self.pause_seconds = min(self.pause_seconds * 2, _LOOK_SECONDS)
            return _WAIT
        if self._claimed is None or self._claimed[0] != known:
            if not known.claim:
                self._owners._append(Claim(self._group, known, self._by))
                known = self._owners.known(self._group) or known
            if known.claim:
                self._claimed = known, time.monotonic()
            return _WAIT
        return known if now - self._claimed[1] >= ANSWER_SECONDS else _WAIT

    def _owned(self, known: OwnerRecord) -> GroupOwnedError:
        path = self._owners.path
        return refusal_here(self._group, path, known.note, ", or use it") or GroupOwnedError(
            f"the group {self._group!r} of {path} is owned by {said_owner(known.note)}, which answers; close "
            "its channel or stop it, or use another group, which gets every event too",
            known.note,
        )
