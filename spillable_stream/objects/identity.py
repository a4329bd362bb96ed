"""What a root of a store is: ``channel.json``, a JSON map with a checksum, created once and never deleted.

A channel is created in two steps, each "create if absent", so that of any number of creators one decides and nobody
waits::

    log/000…0      the UUID, and the state with which the channel begins     whoever is first decides both
    channel.json   the same UUID                                             from here on the root is a channel
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping

from spillable_stream.errors import (
    CorruptionError,
    DiskSpaceError,
    NotAChannelError,
    StorageError,
    UnsupportedFormatError,
)
from spillable_stream.format.frame import Payload
from spillable_stream.format.packing import NONSENSE
from spillable_stream.format.record import EXTENDED_FORMAT_VERSION
from spillable_stream.format.slot import NO_TOKEN, OBJECT_FORMAT_VERSION, SlotHeader, claimed_channel, parse_slot_header
from spillable_stream.log.identity_file import identity_checksum
from spillable_stream.objects.appending import new_token
from spillable_stream.objects.backoff import Backoff
from spillable_stream.objects.directory_store import remove_made
from spillable_stream.objects.slots import slot_key
from spillable_stream.objects.store import ObjectMissingError, Store, StoreError
from spillable_stream.shown_value import command
from spillable_stream.state.channel_state import ChannelState

__all__ = [
    "IDENTITY",
    "QUERIES",
    "WORKERS",
    "create_identity",
    "create_own_identity",
    "extend_identity",
    "finish_identity",
    "no_channel",
    "read_first_slot",
    "read_identity",
    "rewrite_identity",
]

_LOOKS = 5

IDENTITY = "channel.json"

QUERIES = "queries/"
"""What the keys begin with of the objects that say which Spark query reads as a group."""

WORKERS = "workers/"
"""What the keys begin with of the objects in which workers say what they do."""


def read_identity(store: Store) -> str | None:
    """Return the UUID of the channel at a store's root; None if there is no channel.

    Raises:
        CorruptionError: the identity can't be read.
        NotAChannelError: a channel on a disk was copied or made there.
        StoreError: the store refused or failed.
        UnsupportedFormatError: a newer version wrote it.
    """
    try:
        try:
            return _parsed(store, store.get(IDENTITY))[0]
        except CorruptionError:  # on the way, perhaps
            return _parsed(store, store.get(IDENTITY))[0]
    except ObjectMissingError:
        return None


def no_channel(store: Store, more: str = "") -> NotAChannelError:
    """Return the refusal of a root that holds no channel.

    Args:
        store: the root.
        more: what is known of it besides (`spillable_stream.objects.wrong_place`).
    """
    return NotAChannelError(f"{store.root} is not a channel: it has no {IDENTITY}{more}", is_missing=True)


def _parsed(store: Store, data: Payload) -> tuple[str, bool]:
    """Return the UUID, and whether the channel is extended; raises what `read_identity` raises."""
    where = f"{store.root}/{IDENTITY}"
    try:
        value = json.loads(bytes(data))
        version = int(value["format"])
        if version < OBJECT_FORMAT_VERSION or "dataDirs" in value:
            raise NotAChannelError(
                f"{store.root} holds a channel of a disk, not of a store: open it by its directory's path"
            )
        if version in (OBJECT_FORMAT_VERSION, EXTENDED_FORMAT_VERSION):
            if value["checksum"] != identity_checksum(value):
                raise ValueError("its checksum does not match")
            return str(uuid.UUID(value["channel"])), version == EXTENDED_FORMAT_VERSION
    except NONSENSE as e:
        mend = f"'{command('repair', store.root)}' rewrites it if other objects say it, or restore it from a copy"
        raise CorruptionError(f"the channel's identity can't be read ({e}); {mend}", where) from e
    raise UnsupportedFormatError(
        f"{store.root} has format version {version}; this package reads up to {EXTENDED_FORMAT_VERSION}: "
        "upgrade spillable-stream"
    )


def create_identity(store: Store, state: Mapping[str, object], writer: str, backoff: Backoff) -> str:
    """Make the store's root a channel, unless it is one, and return its UUID.

    Args:
        store: where.
        state: the small state with which it begins. If another creator came first, the channel begins with its state.
        writer: what slot 0 says of its writer, for people.
        backoff: how long to try.

    Raises:
        CorruptionError: something else is there.
        StorageError: the store refused or failed; no channel was created, or a later call finishes it, or it is not
            known whether one was created, which the error says.
    """
    return _decided(store, str(uuid.uuid4()), state, writer, backoff)[0]


def create_own_identity(store: Store, channel: str, state: Mapping[str, object], writer: str, backoff: Backoff) -> bool:
    """Make the store's root a channel with this UUID and this state, and tell whether nobody else made one there.

    Args:
        store: where.
        channel: the UUID.
        state: the state with which it begins, with blocks if there are events already.
        writer: what slot 0 says of its writer, for people.
        backoff: how long to try.

    Raises what `create_identity` raises.
    """
    return _decided(store, channel, state, writer, backoff)[1]


def finish_identity(store: Store, header: SlotHeader, backoff: Backoff) -> bool:
    """Let the root of a store with a slot 0 and nothing more become a channel, and tell whether it is that one now.

    Args:
        store: where.
        header: what slot 0 says.
        backoff: how long to try.

    Raises what `create_identity` raises.
    """
    return _decided(store, header.channel, header.state or {}, header.writer, backoff)[0] == header.channel


def read_first_slot(store: Store) -> SlotHeader | None:
    """Return what slot 0 says; None if it is missing.

    Raises:
        CorruptionError: something else is there.
        StoreError: the store refused or failed.
    """
    try:
        return _first_slot(store)
    except ObjectMissingError:
        return None


def _decided(store: Store, mine: str, state: Mapping[str, object], writer: str, backoff: Backoff) -> tuple[str, bool]:
    """Return the UUID of the channel that is there now, and whether this call decided it."""
    tokens: set[bytes] = set()  # one for each request
    may_be_there = False
    cause = StoreError("no request was sent")
    for _ in backoff.attempts():
        header = SlotHeader(mine, 0, NO_TOKEN, new_token(), writer, dict(state))
        tokens.add(header.token)
        try:
            if not store.create(slot_key(0), b"".join(header.encode())):
                header = _first_slot(store)
            channel, is_mine = header.channel, header.token in tokens
            try:
                if store.create(IDENTITY, _encoded(channel, extended=_is_extended(header))):
                    return channel, is_mine
            except StoreError as e:
                may_be_there |= e.may_have_happened
                raise
            if (found := read_identity(store)) is not None:
                return found, is_mine and found == channel
        except ObjectMissingError:  # it was a conflict: nobody has it
            continue
        except StoreError as e:
            cause = e
            if e.is_lasting or isinstance(e, DiskSpaceError):
                break
    remove_made(store)
    if may_be_there:
        raise StorageError(
            f"it is not known whether a channel was created at {store.root}: {cause}. Open it to find out: one that is "
            "there is whole"
        ) from cause
    kind = DiskSpaceError if isinstance(cause, DiskSpaceError) else StorageError
    raise kind(f"no channel could be created at {store.root}: {cause}") from cause


def rewrite_identity(store: Store, channel: str, *, extended: bool = False) -> None:
    """Write the identity anew; for a repair, which has found the UUID elsewhere.

    One that says this UUID by now stays: another repair wrote it, and a handle may have extended it since.

    Args:
        store: where.
        channel: the UUID.
        extended: whether the channel has records that earlier versions of this package can't read.

    Raises:
        StoreError: the store refused or failed; or the identity is another one at each look.
        UnsupportedFormatError: a newer version has written it meanwhile.
    """
    mended = _encoded(channel, extended=extended)

    def changed(data: Payload) -> Payload | None:
        try:
            found, is_extended = _parsed(store, data)
        except (CorruptionError, NotAChannelError):
            return mended
        return None if found == channel and (is_extended or not extended) else mended

    for _ in range(_LOOKS):
        try:
            if store.change(IDENTITY, changed):
                return
        except ObjectMissingError:
            if store.create(IDENTITY, mended):
                return
    raise _unsteady(store)


def extend_identity(store: Store, channel: str) -> bool:
    """Record that a channel has records from now on that earlier versions of this package can't read.

    They refuse to open it then. Whoever does so writes the same bytes, so no two writers are in each other's way. The
    identity of another channel that was created meanwhile stays as it is, as far as `Store.change` notices.

    Returns:
        Whether it is there; if not, nothing is written.

    Raises:
        StoreError: the store refused or failed; or the identity is another one at each look.

    Also raises what `read_identity` raises.
    """
    found = ""

    def extended(data: Payload) -> Payload | None:
        nonlocal found
        found, is_extended = _parsed(store, data)
        return None if found != channel or is_extended else _encoded(channel, extended=True)

    for look in range(_LOOKS):
        try:
            if store.change(IDENTITY, extended):
                return found == channel
        except ObjectMissingError:
            return False
        except CorruptionError:  # on the way, perhaps
            if look:
                raise
    raise _unsteady(store)


def _unsteady(store: Store) -> StoreError:
    return StoreError(f"{store.root}/{IDENTITY} changes all the time; nothing was written", may_have_happened=False)


def _encoded(channel: str, *, extended: bool = False) -> bytes:
    data = {"format": EXTENDED_FORMAT_VERSION if extended else OBJECT_FORMAT_VERSION, "channel": channel}
    text = json.dumps({**data, "checksum": identity_checksum(data)}, indent=1, sort_keys=True) + "\n"
    return text.encode()


def _is_extended(header: SlotHeader) -> bool:
    """Tell whether a channel that begins with slot 0 is extended: a restored one may begin with events."""
    return ChannelState.from_image(header.state or {}).is_extended


def _first_slot(store: Store) -> SlotHeader:
    """Return the header of slot 0: mine, or another creator's."""
    data = store.get(slot_key(0))
    found = parse_slot_header(claimed_channel(data), 0, data)
    if found is None:
        raise CorruptionError("this is not a slot of a channel; choose another path", f"{store.root}/{slot_key(0)}", 0)
    return found[0]
