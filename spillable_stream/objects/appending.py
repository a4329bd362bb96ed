"""One append to a log of objects: the next slot is lock, head and sync in one.

::

    create slot n ─┬─ created ──────────────────────────────────┐
                   ├─ exists ── read it ─┬─ my token ───────────┤
                   │                     ├─ another's ─▶ lost   ├─▶ slot n − 1 is still there ─▶ won
                   │                     └─ nobody's ─▶ again   │   with the token I know
                   └─ no answer ─▶ again, with another token ───┘
                                   │ no answer for commitTimeout, or what exists is damaged
                                   ▼
                     create a fence in its place ─┬─ created ─▶ failed: the append never counts
                                                  └─ exists ─▶ as above

"Exists" does not say "not mine": an earlier request of this append may have created it, answered or not. "Created" does
not say "first": a writer that slept may fill the place of a slot that was used and collected. Collectors delete in
ascending order and never the newest; so if slot n − 1 is there after slot n was created, slot n was never deleted.
docs/durability.md has the steps by number.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from spillable_stream.errors import (
    CommitOutcomeUnknownError,
    CorruptionError,
    DiskSpaceError,
    SpillableError,
    StorageError,
)
from spillable_stream.format.frame import HEADER_SIZE_BYTES, Payload, encode_all
from spillable_stream.format.packing import pack
from spillable_stream.format.slot import NO_TOKEN, TOKEN_BYTES, Slot, SlotHeader, slot_seed
from spillable_stream.log.wal import Entry
from spillable_stream.log_records import fields, log_of
from spillable_stream.objects.backoff import Backoff
from spillable_stream.objects.slots import ForeignSlotError, Slots
from spillable_stream.objects.store import StoreError, is_refusal
from spillable_stream.shown_value import command

__all__ = ["Appending", "Attempt", "Tail", "new_token"]

_LARGE_BYTES = 256 << 10
_READ_IT = "read the channel to learn whether it is there"
_BELIEVED = 2  # so many refusals in a row, or finds of damage

_log = log_of(__name__)


@dataclass(frozen=True, slots=True)
class Tail:
    """The newest slot that is known.

    Args:
        number: its number.
        token: its own token.
        counts: what the next slot has as its `previous`: its own token, but for a void slot (`void_slots.py`), which
            has that of the slot before it here.
        end: where it ends, in bytes.
        behind: the slot before a void one; None for one that counts. A proof needs both: where the bucket was put back
            once more, the void one may be there, and the one that counts not.
    """

    number: int
    token: bytes
    counts: bytes
    end: int
    behind: Tail | None = None

    @classmethod
    def of(cls, slot: Slot) -> Tail:
        """Return the tail of a log whose newest slot is this one."""
        return cls(slot.number, slot.header.token, slot.header.token, slot.end)

    def accepts(self, slot: Slot) -> bool:
        """Tell whether the next slot was planned on the state at this tail."""
        return slot.header.previous == self.counts

    def after(self, slot: Slot) -> Tail:
        """Return the tail behind the next slot: one that was not planned on the state here is void."""
        number, token = slot.number, slot.header.token
        if self.accepts(slot):
            return Tail(number, token, token, slot.end)
        return Tail(number, token, self.counts, slot.end, self)

    @property
    def counting(self) -> Tail:
        """The newest slot that counts. The state after it is that after the void ones behind it, too."""
        return self if self.behind is None else self.behind.counting

    def gone_in(self, slots: Slots) -> Tail | None:
        """Return the first slot that is not there any more: this one, or behind void ones the last one that counts.

        Raises:
            CorruptionError: one is damaged.
            StoreError: the store refused or failed.
        """
        try:
            if slots.token(self.number) != self.token:
                return self
        except ForeignSlotError:  # the channel was removed; or a creator that slept filled the place of slot 0
            return self
        return None if self.behind is None else self.behind.gone_in(slots)


class Attempt:
    """An append on its way to a slot.

    Each request that would create the slot has a token of its own. If all had one, a slot that was read by others, and
    collected, could be created again by a late repetition, and would pass for the one that they know.

    Args:
        at: the tail that it was planned on.
        header: makes the header for a token.
        entries: the frames behind the header.

    Attributes:
        number: the slot's number.
        size_bytes: the slot's size.
        token: the token of the last request; of the one that created the slot, once that is known.
        parts: the bytes of the slot with that token; small frames are together in one.
        unproven: the token of the slot of this append, or of its fence, that is behind a slot that is gone.
        is_void: whether that slot was said to be void (`void_slots.py`).
    """

    def __init__(self, at: Tail, header: Callable[[bytes], SlotHeader], entries: Sequence[Entry]) -> None:
        self.at = at
        self.number: int = at.number + 1
        self.size_bytes: int = 0
        self.token: bytes = NO_TOKEN
        self.parts: list[Payload] = []
        self.unproven: bytes = NO_TOKEN
        self.is_void: bool = False
        self._header = header
        self._entries = entries
        self._append_bytes = sum([HEADER_SIZE_BYTES + (h.length + 7 & ~7) for h, _, _ in entries])  # `frame_size`
        self._tokens: set[bytes] = set()

    def _use(self, token: bytes) -> None:
        self.token = token
        self._tokens.add(token)
        header = self._header(token)
        first = header.entry(self._append_bytes)
        self.size_bytes = first[0].write_order_id
        self.parts = encode_all([first, *self._entries], slot_seed(header.channel, self.number), _LARGE_BYTES)

    def for_request(self) -> list[Payload]:
        """Return the bytes for one more request."""
        self._use(new_token())
        return self.parts

    def owns(self, slot: Slot) -> bool:
        """Tell whether one of its requests created a slot, and remember which."""
        if slot.header.token not in self._tokens:
            return False
        if slot.header.token != self.token:
            self._use(slot.header.token)
        return True

    @property
    def data(self) -> bytes:
        """A copy of the slot's bytes."""
        return b"".join(self.parts)

    @property
    def won(self) -> Tail:
        """The tail once it has won."""
        return Tail(self.number, self.token, self.token, self.size_bytes)


def new_token() -> bytes:
    """Return a token that no other append has."""
    return os.urandom(TOKEN_BYTES)


class Appending:
    """Appends to the log of one channel. One append at a time.

    Args:
        slots: the channel's slots.
        writer: what slots say of their writer, for people.
        backoff: how long to try again.
    """

    def __init__(self, slots: Slots, writer: str, backoff: Backoff) -> None:
        self._slots = slots
        self._writer = writer
        self.backoff = backoff
        self._begin_bytes: dict[int, int] = {}  # by how many bytes the slot's number takes

    def begin_bytes(self, at: Tail) -> int:
        """Return where an append begins in the slot after ``at``, in bytes."""
        number_bytes = len(pack(at.number + 1))  # nothing else of the header differs in size
        found = self._begin_bytes.get(number_bytes)
        if found is None:
            found = self._begin_bytes[number_bytes] = self._header(at, NO_TOKEN).size_bytes()
        return found

    def attempt(self, at: Tail, entries: Sequence[Entry]) -> Attempt:
        """Return an append of entries that were planned on the state at ``at``."""
        return Attempt(at, partial(self._header, at), entries)

    def _header(self, at: Tail, token: bytes) -> SlotHeader:
        return SlotHeader(self._slots.channel, at.number + 1, at.counts, token, self._writer)

    def append(self, attempt: Attempt) -> Slot | None:
        """Append, and return None once it is durable and proven; else the slot that took its place.

        Raises:
            ForeignSlotError: another channel's slot is in its place.
            StorageError: it is not in the log, and never will be.
            CommitOutcomeUnknownError: nobody answered, what is there is damaged, or the log has moved on: `settle`
                tells.
        """
        unsure, damaged = False, 0
        last: SpillableError | None = None
        for _ in self.backoff.attempts():
            try:
                created = self._slots.create(attempt.number, attempt.for_request())
                unsure = True  # an earlier request may have created what exists
                there = None if created else self._slots.read(attempt.number)
                if there is not None and not attempt.owns(there):
                    return there
                if created or there is not None:
                    self._prove(attempt, attempt.token)
                    return None
            except ForeignSlotError:
                raise
            except CorruptionError as e:  # what exists may be this append
                last, damaged = e, damaged + 1
                if damaged == _BELIEVED:
                    break
            except StoreError as e:
                unsure, last = unsure or e.may_have_happened, e
                if e.is_lasting or isinstance(e, DiskSpaceError):  # a channel on a disk does not wait either
                    break
        if not unsure:
            raise _nothing_committed(last) from last
        if not _is_lasting(last):
            _log.warning(
                "%s: slot %d has no answer for %g s",
                self._where,
                attempt.number,
                self.backoff.timeout_seconds,
                extra=fields(self._where, slot=attempt.number, seconds=self.backoff.timeout_seconds),
            )
        return self.settle(attempt, last or StoreError("every answer was a conflict"))

    def settle(self, attempt: Attempt, cause: SpillableError | None = None) -> Slot | None:
        """Make sure that an append is in the log or never will be: put a fence in its place, unless it is there.

        Args:
            attempt: the append.
            cause: why its outcome is not known.

        Returns:
            None if it is in the log, proven; else the slot that took its place, another writer's.

        Raises:
            ForeignSlotError: another channel's slot is in its place.
            StorageError: the fence is in its place: nothing was committed.
            CommitOutcomeUnknownError: nobody answers, still, the store refuses to tell, or what is there is damaged.
        """
        fence, lasting = self.attempt(attempt.at, []), _LastingErrors()
        for _ in self.backoff.attempts():
            try:
                if self._slots.create(fence.number, fence.for_request()):
                    break
                there = self._slots.read(fence.number)
            except ForeignSlotError:
                raise
            except (StoreError, CorruptionError) as e:
                cause = e
                if not lasting.believed_with(e):
                    continue
                if (there := self._shown(fence.number)) is None:
                    raise self._unanswered(attempt, e) from e
            if there is None:
                continue
            if attempt.owns(there):
                self._prove(attempt, attempt.token)
                return None
            if not fence.owns(there):
                self._prove(attempt, NO_TOKEN)  # that nobody's slot was collected there in between
                return there
            break
        else:
            raise self._unanswered(attempt, cause) from cause
        self._prove(attempt, fence.token)
        raise _nothing_committed(cause or "the writer was interrupted") from cause

    def _shown(self, number: int) -> Slot | None:
        """Return a slot that the store shows to whoever may not write there; None if it shows none.

        Raises:
            ForeignSlotError: it is another channel's.
        """
        try:
            return self._slots.read(number)
        except ForeignSlotError:
            raise
        except (StoreError, CorruptionError):
            return None

    def _prove(self, attempt: Attempt, mine: bytes) -> None:
        """Prove that the slot was never deleted before: the one before it is still there.

        Args:
            attempt: the append, or the one that is fenced.
            mine: the token of the slot in its place, if this handle created it; `NO_TOKEN` if it is another's.

        Raises:
            CommitOutcomeUnknownError: it is not, or is damaged, or nobody answers.
        """
        at, lasting = attempt.at, _LastingErrors()
        cause: SpillableError | None = None
        for _ in self.backoff.attempts():
            gone: Tail | None = at
            try:
                if self._slots.token(at.number) == at.token:  # a call less than `gone_in` for most
                    gone = None if at.behind is None else at.behind.gone_in(self._slots)
            except ForeignSlotError:
                pass
            except (StoreError, CorruptionError) as e:
                cause = e
                if lasting.believed_with(e):
                    break
                continue
            if gone is None:
                return
            unknown = self._unknown(
                attempt,
                f"slot {gone.number}, on which it was planned, is no longer there: it was collected meanwhile, or the "
                "bucket was put back to an earlier version",
                f"{_READ_IT}; where that is refused with a DataLossError, the slot is behind lost ones, and "
                f"`{command('repair', self._where)}` lets the log continue",
            )
            unknown.is_lasting = True
            if mine not in (NO_TOKEN, attempt.unproven):  # the slot of before may be lost, too, and a fence be there
                attempt.unproven, attempt.is_void = mine, False
            raise unknown
        raise self._unanswered(attempt, cause) from cause

    def _unanswered(self, attempt: Attempt, cause: SpillableError | None) -> CommitOutcomeUnknownError:
        if isinstance(cause, CorruptionError):
            return self._unknown(attempt, str(cause), f"see what is lost with '{command('verify', self._where)}'")
        return self._unknown(
            attempt, f"the store {'refuses to tell' if is_refusal(cause) else 'gives no answer'}: {cause}"
        )

    def _unknown(self, attempt: Attempt, why: str, action: str = _READ_IT) -> CommitOutcomeUnknownError:
        return CommitOutcomeUnknownError(
            f"{self._where}: whether slot {attempt.number} counts is not known: {why}. Nothing of it will come twice; "
            f"{action}"
        )

    @property
    def _where(self) -> str:
        return self._slots.store.root


class _LastingErrors:
    """Refusals and damage in a row: one alone may pass, like that of an expired token."""

    def __init__(self) -> None:
        self._count = 0

    def believed_with(self, error: SpillableError) -> bool:
        """Count an error, and tell whether those up to it are believed."""
        self._count = self._count + 1 if _is_lasting(error) else 0
        return self._count >= _BELIEVED


def _is_lasting(error: SpillableError | None) -> bool:
    return isinstance(error, CorruptionError) or is_refusal(error)


def _nothing_committed(why: object) -> StorageError:
    kind = DiskSpaceError if isinstance(why, DiskSpaceError) else StorageError
    error = kind(f"{why}; nothing was committed")
    error.stored_nothing = True
    return error
