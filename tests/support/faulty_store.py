"""An object store between a test and another one: it fails as a schedule says, and counts what is asked of it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from enum import Enum
from random import Random
from typing import Literal, NamedTuple, TypeVar

from spillable_stream.format.frame import Payload
from spillable_stream.objects.store import (
    Change,
    Content,
    ObjectInfo,
    ObjectMissingError,
    Store,
    StoreError,
    Upload,
    whole,
)

__all__ = ["APPLICABLE", "Fault", "FaultyStore", "Held", "Kind", "Request", "Schedule", "at", "once", "seeded"]

_T = TypeVar("_T")

Kind = Literal["create", "replace", "upload", "write", "finish", "get", "get_range", "delete", "list"]
"""What is asked of a store. An upload begins ("upload"), has parts ("write"), and makes its object ("finish")."""


class Fault(Enum):
    """What becomes of a request, and what its caller is told."""

    REFUSED = "not done; an error that says that it never will be"
    LOST = "not done; an error that leaves it open"
    UNAVAILABLE = "not done; a 503, which leaves it open"
    LIMITED = "not done; a 429, with which Google answers a second change of an object within a second"
    ANSWER_LOST = "done; an error that leaves it open. A listing breaks off in its middle"
    LATE = "not done yet; an error that leaves it open. It is done at `release`, or after more requests"
    AGAIN = "done, and answered; it arrives once more at `release`, or after more requests"
    RETRIED = "created, but answered as if there had been an object before: a client's retry found its own"
    CONFLICT = "not created, but answered as if there were an object: S3's 409"
    SHORT = "read, but the end of the body is missing"


_ALWAYS = (Fault.REFUSED, Fault.LOST, Fault.UNAVAILABLE)
_CHANGES = (*_ALWAYS, Fault.LIMITED, Fault.ANSWER_LOST, Fault.LATE, Fault.AGAIN)
APPLICABLE: dict[Kind, tuple[Fault, ...]] = {
    "create": (*_CHANGES, Fault.RETRIED, Fault.CONFLICT),
    "replace": _CHANGES,
    "upload": _ALWAYS,
    "write": _ALWAYS,
    "finish": (*_ALWAYS, Fault.ANSWER_LOST, Fault.LATE),
    "get": (*_ALWAYS, Fault.SHORT),
    "get_range": (*_ALWAYS, Fault.SHORT),
    "delete": _CHANGES,
    "list": (*_ALWAYS, Fault.ANSWER_LOST),
}
"""The faults that a request of each kind can have."""


class Request(NamedTuple):
    """A request.

    Args:
        number: its number among all of its store, from 1.
        kind: what it asks.
        key: of which object, or the prefix of a listing.
        attempt: its number among those of this kind and key, from 1.
    """

    number: int
    kind: Kind
    key: str
    attempt: int


class Held(NamedTuple):
    """A request that has yet to arrive.

    Args:
        request: the request.
        due: the number of the request before which it arrives; None if only `FaultyStore.release` lets it.
        run: do it.
    """

    request: Request
    due: int | None
    run: Callable[[], object]


Schedule = Callable[[Request], Fault | None]
"""Names the fault of a request. It is called before each, without a lock: it may wait, look at a store, or raise."""


def seeded(seed: int, share: float, faults: Sequence[Fault] = tuple(Fault)) -> Schedule:
    """Return a schedule with which so large a share of the requests has one of these faults.

    The fault depends on the request's kind, key and attempt only, so threads don't change it.
    """

    def schedule(request: Request) -> Fault | None:
        random = Random(f"{seed}/{request.kind}/{request.key}/{request.attempt}")
        possible = [fault for fault in APPLICABLE[request.kind] if fault in faults]
        return random.choice(possible) if random.random() < share and possible else None

    return schedule


def at(number: int, fault: Fault) -> Schedule:
    """Return a schedule with which the request of this number has this fault, if it can have it."""
    return lambda request: fault if request.number == number and fault in APPLICABLE[request.kind] else None


def once(kind: Kind, fault: Fault, key: str = "") -> Schedule:
    """Return a schedule with which the first request of this kind, for a key that begins so, has this fault."""
    left = [fault]

    def schedule(request: Request) -> Fault | None:
        return left.pop() if left and request.kind == kind and request.key.startswith(key) else None

    return schedule


class FaultyStore:
    """Passes requests on to a store, except those that are to fail. Thread-safe if the schedule is.

    Args:
        inner: the store with the objects; several faulty stores may share it, as hosts do.
        schedule: names the faults; None for none. It may be changed at any time.
        late_by: after how many more requests of this store a late one arrives; None: when `release` is called.
        after: called after each request that was done or failed, before its caller is told, without a lock.

    Attributes:
        requests: all requests in the order in which they came.
        counts: how many of each kind there were.
        faults: how many of each fault.
        held: what has yet to arrive, the oldest first.
    """

    def __init__(
        self,
        inner: Store,
        schedule: Schedule | None = None,
        *,
        late_by: Callable[[Request], int | None] = lambda _: None,
        after: Callable[[Request], None] = lambda _: None,
    ) -> None:
        self.inner = inner
        self.schedule = schedule
        self.late_by = late_by
        self.after = after
        self.requests: list[Request] = []
        self.counts: Counter[Kind] = Counter()
        self.faults: Counter[Fault] = Counter()
        self.held: list[Held] = []
        self._attempts: Counter[tuple[Kind, str]] = Counter()
        self._number = 0
        self._lock = threading.Lock()

    @property
    def root(self) -> str:
        return self.inner.root

    def forget_counts(self) -> None:
        """Begin to count anew; numbers and attempts go on."""
        with self._lock:
            self.requests.clear()
            self.counts.clear()
            self.faults.clear()

    def release(self, index: int | None = None) -> int:
        """Let what is held arrive, in its order, or only the one at this index; return how many arrived."""
        with self._lock:
            chosen = list(self.held) if index is None else [self.held[index]]
            self.held = [held for held in self.held if held not in chosen]
        return _arrive(chosen)

    def create(self, key: str, data: Content) -> bool:
        kept = bytes(whole(data))  # the caller may write over what a late request still needs
        return self._ask("create", key, lambda: self.inner.create(key, kept), instead=False)

    def replace(self, key: str, data: Payload) -> None:
        kept = bytes(data)
        self._ask("replace", key, lambda: self.inner.replace(key, kept), instead=None)

    def change(self, key: str, changed: Change) -> bool:
        before = bytes(self._ask("get", key, lambda: self.inner.get(key), instead=b""))
        new = changed(before)
        if new is None:
            return True
        kept = bytes(new)

        def write() -> bool:
            is_same = False

            def same(data: Payload) -> Payload | None:
                nonlocal is_same
                is_same = bytes(data) == before
                return kept if is_same else None

            with suppress(ObjectMissingError):
                return self.inner.change(key, same) and is_same
            return False

        return self._ask("replace", key, write, instead=False)

    def upload(self, key: str) -> Upload:
        return FaultyUpload(self, key, self._ask("upload", key, lambda: self.inner.upload(key), instead=None))

    def get(self, key: str) -> Payload:
        return self._ask("get", key, lambda: self.inner.get(key), instead=b"")

    def get_range(self, key: str, start: int, end: int) -> Payload:
        return self._ask("get_range", key, lambda: self.inner.get_range(key, start, end), instead=b"")

    def delete(self, key: str) -> None:
        self._ask("delete", key, lambda: self.inner.delete(key), instead=None)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        request, fault = self._begin("list", prefix)
        self._refuse(request, fault)
        found = list(self.inner.list(prefix))
        if fault is not Fault.ANSWER_LOST:
            self.after(request)
            yield from found
            return
        yield from found[: len(found) // 2]
        self.after(request)
        raise self._error(request, fault)

    def folders(self) -> Iterator[str]:
        return iter(self._ask("list", "", lambda: list(self.inner.folders()), None))

    def _ask(self, kind: Kind, key: str, do: Callable[[], _T], instead: _T | None) -> _T:
        """Do what is asked, or what its fault says instead."""
        request, fault = self._begin(kind, key)
        self._refuse(request, fault)
        if fault is Fault.LATE:
            self._hold(request, do)
            self.after(request)
            raise self._error(request, fault)
        if fault is Fault.CONFLICT:
            self.after(request)
            return instead  # type: ignore[return-value]
        try:
            answer = do()
        finally:
            self.after(request)
        if fault is Fault.AGAIN:
            self._hold(request, do)
        elif fault is Fault.ANSWER_LOST:
            raise self._error(request, fault)
        elif fault is Fault.RETRIED:
            return instead  # type: ignore[return-value]
        elif fault is Fault.SHORT:
            return bytes(answer)[: len(answer) // 2]  # type: ignore[return-value,call-overload,arg-type]
        return answer

    def _begin(self, kind: Kind, key: str) -> tuple[Request, Fault | None]:
        """Count a request, let those arrive that are due before it, and ask the schedule for its fault."""
        with self._lock:
            self._attempts[kind, key] += 1
            self._number += 1
            request = Request(self._number, kind, key, self._attempts[kind, key])
            self.requests.append(request)
            self.counts[kind] += 1
            due = [held for held in self.held if held.due is not None and held.due <= request.number]
            self.held = [held for held in self.held if held not in due]
        _arrive(due)
        fault = self.schedule(request) if self.schedule is not None else None
        if fault is not None:
            if fault not in APPLICABLE[kind]:
                raise ValueError(f"a request of the kind {kind} can't be {fault.name}")
            with self._lock:
                self.faults[fault] += 1
        return request, fault

    def _refuse(self, request: Request, fault: Fault | None) -> None:
        """Fail if nothing is to be done."""
        if fault in (*_ALWAYS, Fault.LIMITED):
            self.after(request)
            raise self._error(request, fault)

    def _hold(self, request: Request, do: Callable[[], object]) -> None:
        more = self.late_by(request)
        with self._lock:
            self.held.append(Held(request, None if more is None else request.number + more, do))

    def _error(self, request: Request, fault: Fault | None) -> StoreError:
        assert fault is not None
        text = f"{self.root}: {request.kind} of {request.key} failed, request {request.number}: {fault.name.lower()}"
        refused = fault is Fault.REFUSED
        is_limited = fault is Fault.LIMITED
        return StoreError(text, may_have_happened=not refused, is_lasting=refused, is_limited=is_limited)


class FaultyUpload:
    """An upload whose parts and end may fail."""

    def __init__(self, store: FaultyStore, key: str, inner: Upload) -> None:
        self._store = store
        self._key = key
        self._inner = inner

    def write(self, data: Payload) -> None:
        kept = bytes(data)
        self._store._ask("write", self._key, lambda: self._inner.write(kept), instead=None)

    def finish(self) -> None:
        self._store._ask("finish", self._key, self._inner.finish, instead=None)

    def discard(self) -> None:
        self._inner.discard()


def _arrive(all_held: list[Held]) -> int:
    for held in all_held:
        with suppress(StoreError):
            held.run()
    return len(all_held)
