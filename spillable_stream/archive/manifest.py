"""What a backup consists of: a manifest for each, and immutable files of events that several share.

::

    COPY/backups/N.json         manifest N, 20 digits: the newest one counts
    COPY/states/N-TOKEN         the channel's state, but for where its events are: msgpack
    COPY/events/FIRST-TOKEN     PUT frames with their own IDs, from the event FIRST on
    COPY/delays/N-END-TOKEN     the first END bytes of the side file N, in which delayed events wait

Nothing is ever written over. A manifest is created last, and only if there is none of its number, so a backup counts
as a whole or not at all, and of two at once one fails. Files that the newest manifest does not name are left of
backups that failed, or are being created.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

import google_crc32c

from spillable_stream.errors import CorruptionError, NotAChannelError, UnsupportedFormatError
from spillable_stream.format.file_names import BACKUPS, COPIES, is_copy, is_manifest
from spillable_stream.format.packing import NONSENSE
from spillable_stream.objects.location import DIRECTORY
from spillable_stream.objects.store import ObjectMissingError, Store

__all__ = [
    "BACKUP_FORMAT",
    "ArchivedFile",
    "LastEvent",
    "Manifest",
    "damaged_backup",
    "has_manifest",
    "manifest_key",
    "newest_manifest",
    "place_of",
    "write_manifest",
]

BACKUP_FORMAT = 1
_DELAYS_FORMAT = 2  # it has delayed events, without which an earlier version would restore it


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """An object of a backup.

    Args:
        key: its key.
        size_bytes: its size.
        crc: the CRC32C of its bytes.
        first_id: its first event; 0 if it has none.
        last_id: its last event; 0 if it has none.
    """

    key: str
    size_bytes: int
    crc: int
    first_id: int = 0
    last_id: int = 0


@dataclass(frozen=True, slots=True)
class LastEvent:
    """The last frame of events of a backup: of all continuations of a channel only one has it.

    Args:
        first_id: its first event.
        transaction_id: its transaction.
        time_us: when that was committed, in microseconds since 1970.
        payload_crc: the checksum of its payload.
    """

    first_id: int
    transaction_id: int
    time_us: int
    payload_crc: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """One backup.

    Args:
        number: its number; the greatest counts.
        channel: the channel's UUID.
        source: where the channel was.
        taken_at: when it was begun, in ISO 8601.
        mode: the mode of the channel's files.
        last_id: the last write-order ID in use.
        state: the channel's state.
        files: the events, in order.
        last_event: the last frame of events that was copied; None if none ever was.
        delays: the side files, in which delayed events wait.
    """

    number: int
    channel: str
    source: str
    taken_at: str
    mode: str
    last_id: int
    state: ArchivedFile
    files: tuple[ArchivedFile, ...]
    last_event: LastEvent | None
    delays: tuple[ArchivedFile, ...] = ()

    def keys(self) -> set[str]:
        """Return the keys of the objects that it needs."""
        return {file.key for file in (self.state, *self.files, *self.delays)}


def manifest_key(number: int) -> str:
    """Return the key of a manifest."""
    return f"{BACKUPS}{number:020}.json"


def write_manifest(store: Store, manifest: Manifest) -> bool:
    """Create a manifest, and tell whether there was none of its number; an earlier request may have created it.

    Raises:
        StoreError: the store refused, or did not answer.
    """
    return store.create(manifest_key(manifest.number), _encoded(manifest))


def has_manifest(store: Store, manifest: Manifest) -> bool:
    """Tell whether the manifest of its number is this one, and no other backup's.

    Raises:
        ObjectMissingError: there is none now.
        StoreError: the store refused, or did not answer.
    """
    return bytes(store.get(manifest_key(manifest.number))) == _encoded(manifest)


def _encoded(manifest: Manifest) -> bytes:
    value = {"format": _DELAYS_FORMAT if manifest.delays else BACKUP_FORMAT, **asdict(manifest)}
    if not manifest.delays:  # the bytes of earlier versions
        del value["delays"]
    return json.dumps({**value, "checksum": _checksum(value)}, indent=1).encode() + b"\n"


def newest_manifest(store: Store, where: str = "") -> Manifest | None:
    """Return the manifest that counts, or None if there is no backup.

    Args:
        store: the backup's store.
        where: what users call its place; the store's root by default.

    Raises:
        CorruptionError: it is damaged.
        NotAChannelError: there are other objects here, and no backup.
        UnsupportedFormatError: a newer version wrote it.
    """
    missed = ""
    while True:
        found = max((info.key for info in store.list(BACKUPS) if is_manifest(info.key)), default=None)
        if found is None:
            break
        try:
            return _parsed(bytes(store.get(found)), store, found)
        except ObjectMissingError:  # a later backup takes its place, and was there before
            if found == missed:
                raise
            missed = found
    own = {"delays", "events", "states"}
    if next(iter(store.list(BACKUPS)), None) is None:  # a directory may be there, of a backup that was killed
        own.add(BACKUPS.rstrip("/"))
    folders = (name for name in sorted(store.folders()) if name not in own)
    files = (info.key for folder in COPIES for info in store.list(folder) if not is_copy(info.key))
    other = next(chain(folders, files), None)
    if other is not None:
        raise NotAChannelError(
            f"{where or store.root} is neither empty nor a backup: it holds {other!r}; give the place of a "
            "backup, or an empty one for a new backup"
        )
    return None


def damaged_backup(store: Store, key: str, text: str, offset: int | None = None) -> CorruptionError:
    """Return the error of a backup that is damaged.

    Args:
        store: the backup's store.
        key: the object at fault.
        text: what is wrong with it.
        offset: where in it, in bytes; None for all of it.
    """
    advice = "put it back from a copy of the backup, or use another backup"
    return CorruptionError(f"{text}: {advice}", place_of(store, key), offset)


def place_of(store: Store, key: str) -> str:
    """Return what users call an object of a backup: in a directory it is a file."""
    return f"{store.root.removeprefix(f'{DIRECTORY}://')}/{key}"


def _parsed(data: bytes, store: Store, key: str) -> Manifest:
    try:
        value: dict[str, Any] = json.loads(data)
        if value.pop("checksum") != _checksum(value):
            raise ValueError("its checksum does not match")
        version = int(value.pop("format"))
        if version in (BACKUP_FORMAT, _DELAYS_FORMAT):
            last = value.pop("last_event")
            return Manifest(
                state=ArchivedFile(**value.pop("state")),
                files=tuple(ArchivedFile(**file) for file in value.pop("files")),
                delays=tuple(ArchivedFile(**file) for file in value.pop("delays", ())),
                last_event=None if last is None else LastEvent(**last),
                **value,
            )
    except NONSENSE as e:
        raise damaged_backup(store, key, f"the manifest of the backup can't be read ({e})") from e
    raise UnsupportedFormatError(
        f"{place_of(store, key)} has format version {version}; this package reads up to {_DELAYS_FORMAT}: upgrade it"
    )


def _checksum(value: Mapping[str, Any]) -> int:
    return int(google_crc32c.value(json.dumps(value, sort_keys=True).encode()))
