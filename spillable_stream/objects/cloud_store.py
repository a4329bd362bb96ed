"""A store in a cloud: S3, Azure Blob Storage or Google Cloud Storage, through obstore."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import pyarrow as pa

from spillable_stream.format.frame import Payload
from spillable_stream.interruptible import interruptible, left_after
from spillable_stream.objects.backoff import Backoff
from spillable_stream.objects.cloud_answer import CloudAnswer, Outcome, read_answer
from spillable_stream.objects.cloud_clients import CloudClients, RequestTimeouts, import_obstore
from spillable_stream.objects.cloud_errors import Right, store_error
from spillable_stream.objects.cloud_listing import CloudListing
from spillable_stream.objects.forked import begin_requests, hold_in_children, is_orphan
from spillable_stream.objects.location import Location
from spillable_stream.objects.shared_clients import forget_clients, shared_clients
from spillable_stream.objects.store import Change, Content, ObjectInfo, ObjectMissingError, StoreError

__all__ = ["PART_BYTES", "CloudStore", "CloudUpload"]

_T = TypeVar("_T")
_Version = dict[str, str]  # an ETag, a generation, or both, as obstore names them

PART_BYTES = 32 << 20
"""How much of an upload is kept before it is sent in parts, and how large these are. S3 takes 10,000 of them."""

_PARTS_AT_ONCE = 4
_RESTART_SECONDS = 15.0  # how long a store that has answered before may be away: nobody waits so for a wrong address
_LONG_SECONDS = 1.0  # of a request: an answer takes some 50 ms
_DISCARD_SECONDS = 5.0
_NOTHING: Mapping[Outcome, Any] = {}
_NOT_CREATED = dict.fromkeys((Outcome.EXISTS, Outcome.PROTECTED, Outcome.ARCHIVED), False)
_OF_CHANGES: Mapping[Outcome, bool | None] = {
    Outcome.EXISTS: False,
    Outcome.MISSING: False,
    Outcome.UNSUPPORTED: None,
}
_AWAY = {Outcome.UNREACHABLE, Outcome.BUSY}
_OF_CREDENTIALS = {
    Outcome.FORBIDDEN,  # a file that holds them may be another by now
    Outcome.UNKNOWN_CREDENTIALS,
    Outcome.EXPIRED,
    Outcome.NO_CREDENTIALS,
    Outcome.FAILED_PROVIDER,
}


@dataclass(frozen=True, slots=True)
class _Success(Generic[_T]):
    """What a request returned."""

    result: _T


class CloudStore:
    """The objects under one root of a bucket or container. Implements `Store`.

    Credentials come from the environment, from the role of the host, or from the provider that the environment names. A
    pickle has only the location, and whether the store has answered. A child that was forked after its parent's first
    request can't use any cloud's store: its first call raises `StoreError`.

    Args:
        location: the root.
        timeouts: how long requests may take and are repeated; `create` sends one.
        has_answered: whether this store is known to have answered before, as to whoever sent a task here. One that did
            is waited for while it restarts.

    Raises:
        ImportError: obstore is not installed.
    """

    def __init__(
        self, location: Location, timeouts: RequestTimeouts | None = None, *, has_answered: bool = False
    ) -> None:
        self._obstore = import_obstore()
        self._location = location
        self._timeouts = timeouts or RequestTimeouts()
        self._made: CloudClients | None = None
        self._patience_seconds = min(_RESTART_SECONDS, self._timeouts.repeat_seconds)
        self._has_answered = has_answered
        hold_in_children(self)

    def held(self) -> CloudClients | None:
        """Return what no forked child may drop: these clients may be shared no more."""
        return self._made

    def __reduce__(self) -> tuple[object, ...]:
        return partial(type(self), has_answered=self._has_answered), (self._location,)

    def __repr__(self) -> str:
        return f"CloudStore({str(self._location)!r})"

    @property
    def root(self) -> str:
        """The location, as users name it."""
        return str(self._location)

    def create(self, key: str, data: Content) -> bool:
        """Create an object if there is none; see `Store.create`."""

        def request(clients: CloudClients, path: str) -> bool:
            parts = data if isinstance(data, list) else [data]
            body = _view(parts[0]) if len(parts) == 1 else [_view(part) for part in parts]
            self._obstore.put(clients.once, path, body, mode="create", use_multipart=False)
            return True

        try:
            return self._ask("write", key, request, _NOT_CREATED)
        except StoreError as e:
            # Google takes one change of an object a second, and answers 429 to whoever comes second.
            if not e.is_limited or self._shown_bytes(key, 0, 1) is None:
                raise
        return False

    def _shown_bytes(self, key: str, start: int, end: int) -> int | None:
        """Return how many bytes of an object the store shows in a range, asked once; None if it shows no object."""

        def request(clients: CloudClients, path: str) -> int:
            return len(self._obstore.get_range(clients.once, path, start=start, end=end))

        with suppress(StoreError):
            return self._ask("read", key, request, {Outcome.BEYOND: 0})
        return None

    def replace(self, key: str, data: Payload) -> None:
        """Create an object, or replace the one there is."""
        self._ask(
            "write",
            key,
            lambda clients, path: self._obstore.put(clients.writing, path, _view(data), use_multipart=False),
            again=True,
        )

    def change(self, key: str, changed: Change) -> bool:
        """Replace an object by what is made of it, if it is still what was read; see `Store.change`."""

        def read(clients: CloudClients, path: str) -> tuple[Payload, _Version]:
            found = self._obstore.get(clients.reading, path)
            version = {name: found.meta[name] for name in ("e_tag", "version") if found.meta[name] is not None}
            return pa.py_buffer(found.bytes()), version

        data, version = self._ask("read", key, read, again=True)
        new = changed(data)
        if new is None:
            return True

        done = self._overwrite(key, new, version)
        if done is False and self._location.scheme == "s3" and self._is_still(key, data):
            # Ceph, and what is made of it, compares an ETag without its quotes to one as it was sent.
            done = self._overwrite(key, new, {name: value.strip('"') for name, value in version.items()})
        if done is None:
            if not self._is_still(key, data):
                return False
            self.replace(key, new)
        return done is not False

    def _overwrite(self, key: str, data: Payload, version: _Version) -> bool | None:
        """Replace an object if it is of this version; None if the store does not know such conditions."""

        def write(clients: CloudClients, path: str) -> bool:
            self._obstore.put(clients.writing, path, _view(data), mode=version or "overwrite", use_multipart=False)
            return True

        return self._ask("write", key, write, _OF_CHANGES, again=True)

    def _is_still(self, key: str, data: Payload) -> bool:
        """Tell whether an object is what was read before."""
        try:
            return bytes(self.get(key)) == bytes(data)
        except ObjectMissingError:
            return False

    def upload(self, key: str) -> CloudUpload:
        """Begin an object of any size; bytes that were written must not change until it is finished."""
        return CloudUpload(self, key)

    def get(self, key: str) -> Payload:
        """Return an object, whole; see `Store.get`."""
        return self._ask(
            "read",
            key,
            lambda clients, path: pa.py_buffer(self._obstore.get(clients.reading, path).bytes()),
            again=True,
        )

    def get_range(self, key: str, start: int, end: int) -> Payload:
        """Return the bytes from ``start`` to before ``end``; see `Store.get_range`."""

        def request(clients: CloudClients, path: str) -> Payload:
            return pa.py_buffer(self._obstore.get_range(clients.reading, path, start=start, end=end))

        return self._ask("read", key, request, {Outcome.BEYOND: b""}, again=True)

    def delete(self, key: str) -> None:
        """Delete an object; one that is not there is no error."""
        self._ask(
            "delete",
            key,
            lambda clients, path: self._obstore.delete(clients.reading, path),
            {Outcome.MISSING: None},
            again=True,
        )

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the objects whose keys begin with ``prefix``; see `Store.list`."""
        folder = prefix.rpartition("/")[0]  # obstore takes only whole parts of a path
        begin = len(self._location.prefix) + 1
        listing = CloudListing(self._obstore, self._patience_seconds)
        while page := self._ask("list", folder, listing.next_page, again=listing.may_begin_anew()):
            for found in page:
                key = found["path"][begin:]
                if key.startswith(prefix):
                    yield ObjectInfo(key, found["size"], found["last_modified"].timestamp())

    def folders(self) -> Iterator[str]:
        """Yield the names right under the root under which there are objects, in any order."""
        found = self._ask(
            "list",
            "",
            lambda clients, path: self._obstore.list_with_delimiter(clients.reading, prefix=path or None),
            again=True,
        )
        return (path.rstrip("/").rpartition("/")[2] for path in found["common_prefixes"])

    def _ask(
        self,
        right: Right,
        key: str,
        request: Callable[[CloudClients, str], _T],
        instead: Mapping[Outcome, _T] = _NOTHING,
        *,
        again: bool = False,
    ) -> _T:
        """Send a request. An interrupt ends the wait for its answer, and it may be done yet.

        Args:
            right: what it needs to be allowed to do.
            key: the object, or the prefix of a listing.
            request: sends it, given the clients and the path in the bucket.
            instead: what to return for answers other than success.
            again: whether it may be sent again, while a store that has answered before is away.

        Raises:
            StoreError: it was answered otherwise, or not at all. Its text and its context have none of obstore's.
        """
        begin_requests(self._location)
        clients, path = self._clients(), f"{self._location.prefix}/{key}".strip("/")
        began = time.monotonic()
        for _ in Backoff(self._patience_seconds).attempts():
            try:
                told = interruptible(partial(self._answer, request, clients, path))
            except BaseException as e:  # an interrupt, whatever the signal's handler raises
                self._note_silence(e, key, time.monotonic() - began)
                raise
            if isinstance(told, _Success):
                self._has_answered = True
                return told.result
            answer = told
            if not (again and self._has_answered and answer.outcome in _AWAY):
                break
        self._has_answered = self._has_answered or bool(answer.status and answer.outcome not in _AWAY | _OF_CREDENTIALS)
        if answer.outcome in instead:
            return instead[answer.outcome]
        if answer.outcome in _OF_CREDENTIALS:
            forget_clients(clients)
        raise self._error(right, key, answer)

    def _answer(
        self, request: Callable[[CloudClients, str], _T], clients: CloudClients, path: str
    ) -> _Success[_T] | CloudAnswer:
        """Send a request once, and return what it returns, or why it failed."""
        try:
            return _Success(request(clients, path))
        except BaseException as e:
            if not isinstance(e, Exception) and type(e).__name__ != "PanicException":
                raise
            return read_answer(e, had_credentials=self._has_answered)

    def _note_silence(self, interrupt: BaseException, key: str, seconds: float) -> None:
        """Note what an interrupt was waiting for, if that took long."""
        if seconds >= _LONG_SECONDS:
            interrupt.add_note(f"{self.root.rstrip('/')}/{key} had no answer from the store for {seconds:.0f} s")

    def _error(self, right: Right, key: str, answer: CloudAnswer) -> StoreError:
        return store_error(self._location, right, key, answer)

    def _clients(self) -> CloudClients:
        """Return the clients, made at the first request: what a forked child has made itself works there."""
        if self._made is None:
            self._made = shared_clients(self._location, self._timeouts)
        return self._made


class CloudUpload:
    """An object that is being written. Implements `Upload`; for one thread.

    A small one is kept, without a copy, and sent in one request when it is finished. A larger one is sent in parts.
    """

    def __init__(self, store: CloudStore, key: str) -> None:
        self._store = store
        self._key = key
        self._kept: list[Any] = []
        self._size_bytes = 0
        self._writer: Any = None
        hold_in_children(self)

    def held(self) -> object:
        """Return what no forked child may drop."""
        return self._writer

    def write(self, data: Payload) -> None:
        """Append bytes; see `Upload.write`."""
        self._size_bytes += len(data)
        if self._writer is not None:
            self._send(data)
            return
        self._kept.append(data)
        if self._size_bytes > PART_BYTES:
            self._writer = self._store._ask("write", self._key, self._open)
            while self._kept:
                self._send(self._kept.pop(0))

    def finish(self) -> None:
        """Make the object; see `Upload.finish`."""
        if self._writer is None:
            parts = [_view(part) for part in self._kept]
            self._store._ask("write", self._key, lambda clients, path: self._put(clients, path, parts), again=True)
        else:
            self._complete()
        self._kept.clear()

    def _complete(self) -> None:
        """Make the object of its parts. Where the answer is lost, the client asks again for what is over by then."""
        try:
            self._store._ask("write", self._key, lambda _, __: self._writer.close())
        except StoreError:
            if self._store._shown_bytes(self._key, self._size_bytes - 1, self._size_bytes + 1) != 1:
                raise

    def discard(self) -> None:
        """Forget what was uploaded; never raises. Nobody waits long for the store to forget its parts, too."""
        self._kept.clear()
        writer, self._writer = self._writer, None
        if writer is not None and not is_orphan():
            left_after(_DISCARD_SECONDS, partial(writer.__exit__, Exception, None, None))  # obstore's only abort

    def _open(self, clients: CloudClients, path: str) -> Any:
        return self._store._obstore.open_writer(
            clients.writing, path, buffer_size=PART_BYTES, max_concurrency=_PARTS_AT_ONCE
        )

    def _put(self, clients: CloudClients, path: str, parts: list[Any]) -> None:
        self._store._obstore.put(clients.writing, path, parts or b"", use_multipart=False)

    def _send(self, data: Payload) -> None:
        self._store._ask("write", self._key, lambda _, __: self._writer.write(_view(data)))


def _view(data: Payload) -> Any:
    """Return bytes as obstore takes them, without a copy."""
    return data if isinstance(data, bytes) else memoryview(data).cast("B")
