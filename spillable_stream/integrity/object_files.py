"""The objects that events are in, as the files that `spillable_stream.integrity.event_check` reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from spillable_stream.format.frame import file_seed
from spillable_stream.log.frames import Readable
from spillable_stream.objects.delayed_objects import DELAYED_OWNER
from spillable_stream.objects.slots import object_key
from spillable_stream.objects.staged_object import owner_of
from spillable_stream.objects.store import ObjectMissingError, Store
from spillable_stream.objects.stored_object import StoredObject
from spillable_stream.state.delays import DelayedFile

__all__ = ["DelaysOfStore", "FilesOfStore", "is_there"]


def is_there(store: Store, key: str) -> bool:
    """Tell whether there is an object with a key now.

    Raises:
        StoreError: the store refused or failed.
    """
    try:
        store.get_range(key, 0, 1)
    except ObjectMissingError:
        return False
    return True


class FilesOfStore:
    """The slots and segments of a channel in a store. It implements `EventFiles`.

    Args:
        store: where they are.
        channel: the channel's UUID.
        sizes: the sizes of objects by a listing, in bytes, by key.
    """

    def __init__(self, store: Store, channel: str, sizes: Mapping[str, int]) -> None:
        self.channel: str = channel
        self._store = store
        self._sizes = sizes
        self._known: dict[str, bool] = {}
        self._last: tuple[str, StoredObject] | None = None

    def path(self, file: int | str) -> Path:
        """Return the key of the object that a block is in, as a path for people."""
        return Path(object_key(file))

    def exists(self, file: int | str) -> bool:
        """Tell whether an object is there; raises `StoreError`."""
        key = object_key(file)
        if key not in self._known:
            self._known[key] = is_there(self._store, key)
        return self._known[key]

    @contextmanager
    def opened(self, file: int | str) -> Iterator[StoredObject]:
        """Open an object; several blocks of it in a row share what was read."""
        key = object_key(file)
        if self._last is None or self._last[0] != key:
            self._last = key, StoredObject(self._store, key, self._sizes.get(key))
        yield self._last[1]

    def end(self, file: int | str) -> int | None:
        """Return None: an object counts up to its end."""
        return None


class DelaysOfStore:
    """The objects in which the delayed events of a channel wait. It implements `DelaysPort`.

    Args:
        store: where they are.
        channel: the channel's UUID.
        sizes: the sizes of objects by a listing, in bytes, by key.
    """

    def __init__(self, store: Store, channel: str, sizes: Mapping[str, int]) -> None:
        self.noun: str = "object"
        self.unnamed: str = ", which may have been delivered"
        self._store = store
        self._channel = channel
        self._sizes = sizes

    def path(self, of: DelayedFile) -> Path:
        """Return the object's key, as a path for people."""
        return Path(of.name)

    def seed(self, of: DelayedFile) -> int:
        """Return what its checksums start from."""
        return file_seed(self._channel, of.seed_name)

    @contextmanager
    def opened(self, of: DelayedFile) -> Iterator[Readable]:
        """Open an object; see `DelaysPort.opened`."""
        try:
            yield StoredObject(self._store, of.name, self._sizes.get(of.name))
        except ObjectMissingError as e:
            raise FileNotFoundError(of.name) from e

    def there(self) -> Iterator[DelayedFile]:
        """Yield the objects that were listed; see `DelaysPort.there`."""
        for key, size_bytes in self._sizes.items():
            if (owner_of(key) or ("", 0))[0] == DELAYED_OWNER:
                yield DelayedFile(0, 0, 0, size_bytes, 0, 0, 0, name=key)
