"""The port of an object store: all that a log of objects asks of one.

Put-if-absent, GET, range GET, DELETE and a rare LIST are enough. Nothing here retries, and no answer is guessed: a
store that can't say what became of a request raises `StoreError` with ``may_have_happened``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol, TypeAlias

from spillable_stream.errors import DiskSpaceError, StorageError
from spillable_stream.format.frame import Payload

__all__ = [
    "Change",
    "Content",
    "ObjectInfo",
    "ObjectMissingError",
    "Store",
    "StoreError",
    "StoreFullError",
    "Upload",
    "is_refusal",
    "uploading",
    "whole",
]

Content: TypeAlias = Payload | list[Payload]
"""What an object is made of: its bytes, or some buffers one after the other, which need not be copied into one."""


Change: TypeAlias = Callable[[Payload], Payload | None]
"""Is told what an object is, and returns what it is to become; None to leave it as it is."""


def whole(content: Content) -> Payload:
    """Return the bytes of an object; those of several buffers are copied."""
    return b"".join(content) if isinstance(content, list) else content


class StoreError(StorageError):
    """A request to an object store failed.

    Args:
        message: what happened, to which object, and what to do; never a credential.
        may_have_happened: whether the store may have done it anyway, now or later: a timeout, a connection that
            broke, an internal error. False for what it refused: no permission, no such bucket.
        is_lasting: whether the same request would fail again however often it is sent.
        is_limited: whether the store answered that it is asked too often (429), be it for this object alone.
    """

    def __init__(
        self, message: str, *, may_have_happened: bool = True, is_lasting: bool = False, is_limited: bool = False
    ) -> None:
        super().__init__(message)
        self.may_have_happened = may_have_happened
        self.is_lasting = is_lasting
        self.is_limited = is_limited


class ObjectMissingError(StoreError):
    """There is no object with this key now. That says nothing about before or after."""

    def __init__(self, message: str, *, may_have_happened: bool = False, is_lasting: bool = False) -> None:
        super().__init__(message, may_have_happened=may_have_happened, is_lasting=is_lasting)


class StoreFullError(StoreError, DiskSpaceError):
    """The file system of a store in a directory is full, or the user's quota is used up. Nothing was done."""

    stored_nothing = True

    def __init__(self, message: str, *, may_have_happened: bool = False, is_lasting: bool = False) -> None:
        super().__init__(message, may_have_happened=may_have_happened, is_lasting=is_lasting)


def is_refusal(error: BaseException | None) -> bool:
    """Tell whether a call failed since a store refused what it will refuse again, so that nobody needs to wait.

    Args:
        error: what the call raised: a `StoreError`, or what one is the cause of.
    """
    cause = error if error is None or isinstance(error, StoreError) else error.__cause__
    return isinstance(cause, StoreError) and cause.is_lasting


class ObjectInfo(NamedTuple):
    """An object as a listing shows it.

    Args:
        key: its key, relative to the store's root.
        size_bytes: its size.
        modified_seconds: when it was written, in seconds since some time, by the clock of the store. Only for a
            comparison with another object of the same store; may be cut to whole seconds.
    """

    key: str
    size_bytes: int
    modified_seconds: float


class Upload(Protocol):
    """An object that is being written in parts; it exists only once it is finished."""

    def write(self, data: Payload) -> None:
        """Append bytes.

        Raises:
            StoreError: the store refused, or can't be reached.
        """

    def finish(self) -> None:
        """Make the object; raises what `write` raises."""

    def discard(self) -> None:
        """Forget what was uploaded; never raises."""


@contextmanager
def uploading(store: Store, key: str) -> Iterator[Upload]:
    """Make an object of what is written within the block; nothing if that raises.

    Raises:
        StoreError: the store refused or failed.
    """
    upload = store.upload(key)
    try:
        yield upload
        upload.finish()
    except BaseException:
        upload.discard()
        raise


class Store(Protocol):
    """The objects under one root of a bucket, container or directory. Thread-safe. Keys are relative to the root.

    Every method raises `StoreError` where the store refuses, fails or can't be reached.
    """

    @property
    def root(self) -> str:
        """What users call the root, for messages: no credentials in it."""

    def create(self, key: str, data: Content) -> bool:
        """Create an object if there is none, in one request that is never repeated here.

        Returns:
            Whether it was created. False says: "exists", or S3's "conflict", with which nothing was stored. It does not
            say whose object it is: an earlier request of the same caller may have created it.
        """

    def replace(self, key: str, data: Payload) -> None:
        """Create an object, or replace the one there is."""

    def change(self, key: str, changed: Change) -> bool:
        """Read an object, and replace it by what ``changed`` returns of it: two requests.

        A store that has conditions replaces nothing but what was read. A directory, and a service that refuses
        conditions, is read once more, and a pause between that and the write is not noticed. Where a service ignores
        conditions, nothing is.

        Returns:
            Whether it is what ``changed`` wanted; False if it became another one meanwhile, or was removed: nothing was
            written. It may also be what an earlier request of this call wrote.

        Raises:
            ObjectMissingError: there was none to read.
        """

    def upload(self, key: str) -> Upload:
        """Begin an object of any size, which is written in parts, under a key that no other object ever has."""

    def get(self, key: str) -> Payload:
        """Return an object, whole.

        Raises:
            ObjectMissingError: there is none now.
        """

    def get_range(self, key: str, start: int, end: int) -> Payload:
        """Return the bytes from ``start`` to before ``end``; fewer where the object ends before that.

        Raises:
            ObjectMissingError: there is none now.
        """

    def delete(self, key: str) -> None:
        """Delete an object; one that is not there is no error."""

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the objects whose keys begin with ``prefix``, in any order.

        It keeps none of them. So where the store was away in the midst of it, some may come twice.
        """

    def folders(self) -> Iterator[str]:
        """Yield the names right under the root under which there are objects, in any order."""
