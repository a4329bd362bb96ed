"""Tests whether a store keeps the promises that a channel in it relies on, by trying.

Some stores ignore the condition of a request that creates an object only if there is none, and answer that all is well.
Several writers would then overwrite each other's commits.
"""

from __future__ import annotations

import secrets
import threading
from concurrent.futures import Future
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial

from spillable_stream.block_value import block_value
from spillable_stream.call_threads import CallThreads, wait_for
from spillable_stream.errors import UnsafeStoreError
from spillable_stream.interruptible import left_after
from spillable_stream.objects.backoff import Backoff
from spillable_stream.objects.directory_store import remove_made
from spillable_stream.objects.store import ObjectMissingError, Store, StoreError

__all__ = ["CHECKS", "FULL_RACES", "QUICK_RACES", "StoreVerdict", "check_store", "one_test", "require_sound"]

CHECKS = "check/"
"""What the keys begin with of the objects that a test makes; a test that is killed leaves some."""

QUICK_RACES = 4
"""How many objects are raced for when a channel is created."""

FULL_RACES = 200
"""How many objects are raced for when a person asks."""

_THREADS = 8
_CONFLICTS = 5  # in a row, before "nobody could create it" is a fault
_LIMITED_SECONDS = 30.0  # for which a creation is tried again: Google takes one change of an object a second
_MOST_UNANSWERED = 2
_CLEAN_UP_SECONDS = 5.0  # after an interrupt
_LAST_SECONDS = 1.0  # for writers that are under way at an interrupt, before the objects are deleted
_NOT_FOUND = "it does not return an object that was just created"
_NOT_CREATED = "it does not create an object that is not there"

_sound: ContextVar[set[str] | None] = ContextVar("sound", default=None)  # the stores of a block of `one_test`


@dataclass(frozen=True)
class StoreVerdict:
    """The result of a test of a store.

    Args:
        root: the store.
        races: for how many objects the threads raced.
        threads: how many threads raced for each.
        winners: how many threads were told that they had created the object, the most of all races.
        faults: what a channel can't live with, a sentence each; none for a store that is sound.
    """

    root: str
    races: int
    threads: int
    winners: int
    faults: tuple[str, ...]

    @property
    def sound(self) -> bool:
        """Whether a channel in it is safe, as far as trying can tell."""
        return not self.faults


def check_store(store: Store, *, races: int = QUICK_RACES, threads: int = _THREADS) -> StoreVerdict:
    """Try a store, with objects under ``check/`` that are deleted afterwards.

    Args:
        store: the store.
        races: for how many objects the threads race.
        threads: how many of them race for each.

    Raises:
        StoreError: the store refused a request, or can't be reached, so nothing is known.
    """
    check = _Check(store, threads)
    try:
        check.create_what_was_deleted()  # first: where nothing may be deleted, it leaves the one object
        check.race(races)
        check.read_what_was_written()
        check.create_over_what_is_there()
    except Exception:
        check.clean_up()
        raise
    except BaseException:  # an interrupt, perhaps of a wait for a store that is silent
        left_after(_CLEAN_UP_SECONDS, check.clean_up)
        raise
    check.clean_up()
    return StoreVerdict(store.root, races, threads, check.winners, tuple(dict.fromkeys(check.faults)))


def one_test() -> AbstractContextManager[None]:
    """Return a block in which `require_sound` tests no store twice, nor in threads with a copy of its context."""
    return block_value(_sound, set())


def require_sound(store: Store) -> None:
    """Refuse a store that fails the quick test.

    Raises:
        UnsafeStoreError: it does.
        StoreError: the store refused a request, or can't be reached.
    """
    sound = _sound.get()
    if sound is not None and store.root in sound:
        return
    verdict = check_store(store)
    if not verdict.sound:
        raise UnsafeStoreError(f"{verdict.root} is not safe for a channel: {verdict.faults[0]}; use another store")
    if sound is not None:
        sound.add(store.root)


class _Check:
    """Tries one thing after the other and records the faults."""

    def __init__(self, store: Store, threads: int) -> None:
        self.faults: list[str] = []
        self.winners = 0
        self._store = store
        self._threads = threads
        self._prefix = f"{CHECKS}{secrets.token_hex(16)}"
        self._keys: list[str] = []

    def race(self, races: int) -> None:
        """Let all threads create the same objects at once."""
        threads = CallThreads(self._threads, "spillable race")
        try:
            for _ in range(races):
                self._race(threads, self._new_key())
        finally:
            threads.close(_LAST_SECONDS)

    def read_what_was_written(self) -> None:
        """Read an object that was looked for in vain, wholly and in part, and list it."""
        key = self._new_key()
        if self._found(key) is not None:
            self.faults.append("it has an object that nobody created")
        self._create(key, b"first of all")
        self._expect(key, b"first of all", _NOT_FOUND)
        if self._found(key, (6, 8)) not in (b"of", None):
            self.faults.append("it returns other bytes of an object than those it was asked for")
        if not any(info.key == key for info in self._store.list(self._prefix)):
            self.faults.append("it does not list an object that was just created")
        self._store.replace(key, b"second")
        self._expect(key, b"second", "it returns an object as it was before it was replaced")

    def create_over_what_is_there(self) -> None:
        """Create an object that exists."""
        key = self._new_key()
        self._create(key, b"first")
        if self._is_created(key, b"second"):
            self.faults.append("it says that it created an object that was there already")
        self._expect(key, b"first", "it overwrites an object with one that must only be created if there is none")

    def create_what_was_deleted(self) -> None:
        """Delete an object, and create it again."""
        key = self._new_key()
        self._create(key, b"first")
        self._store.delete(key)
        if self._found(key) is not None:
            self.faults.append("it returns an object that was just deleted")
        self._create(key, b"second")
        self._expect(key, b"second", "it does not return an object that was created where another one was deleted")

    def clean_up(self) -> None:
        """Delete all objects, and directories that were made for them, as far as the store allows.

        One that is away is not asked for each of them: each answer may take a minute.
        """
        unanswered = 0
        for key in self._keys:
            try:
                self._store.delete(key)
            except StoreError as e:
                unanswered += not e.is_lasting
                if unanswered == _MOST_UNANSWERED:
                    break
        remove_made(self._store)

    def _new_key(self) -> str:
        self._keys.append(f"{self._prefix}-{len(self._keys):04}")
        return self._keys[-1]

    def _race(self, threads: CallThreads, key: str) -> None:
        contents = [b"%d of %d" % (i, self._threads) for i in range(self._threads)]
        for _ in range(_CONFLICTS):
            answers = self._created_at_once(threads, key, contents)
            won = [content for content, answer in zip(contents, answers, strict=True) if answer is True]
            found = self._found(key)
            if won or found is not None:
                break
            for answer in answers:
                if isinstance(answer, StoreError):
                    raise answer
        self.winners = max(self.winners, len(won))
        if len(won) > 1:
            self.faults.append(
                f"it told {len(won)} of {self._threads} writers that they had created the same object, so it does not "
                "create an object only if there is none"
            )
        if found is None:
            self.faults.append(_NOT_FOUND if won else _NOT_CREATED)
        elif found not in (won or contents):
            self.faults.append("it returns another object than the one that it said was created")

    def _created_at_once(self, threads: CallThreads, key: str, contents: list[bytes]) -> list[bool | StoreError]:
        """Let each thread create an object with its content, and return their answers in order.

        They start when all are begun. Where the process can't have so many threads, the rest create it after them.

        Raises:
            NoThreadError: there is no thread at all.
            StoreError: the store refused or failed.
        """
        start, begun = threading.Event(), list[Future[bool | StoreError]]()
        try:
            for content in contents:
                begun.append(threads.begin(partial(self._try, start, key, content)))
            start.set()
            wait_for(begun)
        except BaseException:
            for attempt in begun:
                attempt.cancel()
            raise
        finally:
            start.set()
        return [attempt.result() for attempt in begun]

    def _try(self, start: threading.Event, key: str, content: bytes) -> bool | StoreError:
        """Create an object together with others; return the error of a store that is asked too often."""
        start.wait()
        try:
            return self._store.create(key, content)
        except StoreError as e:
            if not e.is_limited:
                raise
            return e

    def _create(self, key: str, content: bytes) -> None:
        """Create an object that is not there; a store may first answer that there was a conflict."""
        if not any(self._is_created(key, content) for _ in range(_CONFLICTS)):
            self.faults.append(_NOT_CREATED)

    def _is_created(self, key: str, content: bytes) -> bool:
        """Create an object if it is not there, and tell whether that happened; wait if the store is asked too often."""
        limited: StoreError | None = None
        for _ in Backoff(_LIMITED_SECONDS).attempts():
            try:
                # Where it was asked too often before, it may have created what is there now.
                return self._store.create(key, content) or (limited is not None and self._found(key) == content)
            except StoreError as e:
                if not e.is_limited:
                    raise
                limited = e
        assert limited is not None
        raise limited

    def _expect(self, key: str, content: bytes, fault: str) -> None:
        if self._found(key) != content:
            self.faults.append(fault)

    def _found(self, key: str, part: tuple[int, int] | None = None) -> bytes | None:
        try:
            return bytes(self._store.get(key) if part is None else self._store.get_range(key, *part))
        except ObjectMissingError:
            return None
