"""Channels in a store of objects to damage, ways to damage them, and what is in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from spillable_stream import Channel
from spillable_stream.integrity.findings import Finding, Report, Severity
from spillable_stream.integrity.verify import verify
from spillable_stream.state.ranges import RangeSet
from tests.support.events import numbered, put, take
from tests.support.memory_store import MemoryStore
from tests.support.object_channels import URL, make_two_checkpoints
from tests.support.store_limits import limited

__all__ = [
    "DAMAGES",
    "GROUPS",
    "Contents",
    "MemoryStoreOf",
    "contents_of",
    "damage_object",
    "damaged_take",
    "fill_store",
    "flip_at",
    "keys_of",
    "merge_now",
    "open_here",
    "require_repaired",
    "wrong",
]

GROUPS = ("fast", "slow")

Damage = Callable[[bytes], bytes | None]


def flip_at(data: bytes, offset: int) -> bytes:
    """Return bytes of which one has another bit; nothing changes if there is none."""
    if not data:
        return data
    return data[:offset] + bytes([data[offset] ^ 1]) + data[offset + 1 :]


DAMAGES: dict[str, Damage] = {
    "missing": lambda _: None,
    "cut short": lambda data: data[: len(data) // 2],
    "one byte of the header": lambda data: flip_at(data, min(20, len(data) - 1)),
    "one byte of the rest": lambda data: flip_at(data, len(data) * 2 // 3),
    "nonsense": lambda _: b"nonsense " * 9,
    "empty": lambda _: b"",
}
"""What becomes of an object; None: it is gone."""


class Contents(NamedTuple):
    """For each group the IDs and bodies that it has yet to take, in order; and which events are lost or doubtful."""

    groups: dict[str, dict[int, bytes]]
    gone: list[tuple[int, int]]


def open_here(**options: Any) -> Channel:
    """Open the channel that these tests damage."""
    return Channel(URL, **{"commit_interval": 0, "checkpoint_on_close": False, **options})


def fill_store(*, checkpoints: bool = True, **options: Any) -> None:
    """Create a channel of slots, segments and checkpoints with 30 events, of which two groups have taken some."""
    with open_here(max_inline_bytes=1000, **options) as channel:
        for i in range(4):
            put(channel, *[b"%d" % n * 5 for n in range(5 * i, 5 * i + 5)])
        take(channel, 7, "fast")
        take(channel, 2, "slow")
        put(channel, *[b"%d" % n * 300 for n in range(20, 24)])  # staged
        if checkpoints:
            channel.checkpoint()
        put(channel, b"24", b"25")
        take(channel, 1, "slow")
        if checkpoints:
            make_two_checkpoints(channel)
        put(channel, b"26", b"27")
        take(channel, 1, "fast")
        put(channel, b"28", b"29")


def merge_now(channel: Channel) -> None:
    """Copy all events in slots together."""
    with limited(many_slots=1, quiet_seconds=-1.0):
        make_two_checkpoints(channel)


def damage_object(store: MemoryStore, key: str, damage: Damage) -> None:
    """Damage one object."""
    data = damage(store.objects[key])
    if data is None:
        del store.objects[key]
    else:
        store.objects[key] = data


def wrong(report: Report) -> list[Finding]:
    """Return what is wrong, without notes."""
    return [f for f in report.findings if f.severity is not Severity.NOTE]


def contents_of(groups: Iterable[str] = GROUPS) -> Contents:
    """Open the channel and return what is in it, without asking whether the owners of its groups live."""
    with Channel(URL, create=False, readonly=True) as channel:
        stats = channel.stats()
        found = {group: _events(channel, group) for group in groups}
        return Contents(found, [*stats.lost, *stats.doubtful])


def _events(channel: Channel, group: str) -> dict[int, bytes]:
    batches = list(channel.read(group=group))
    ids = [number for batch in batches for number in batch.column("write_order_id").to_pylist()]
    assert ids == sorted(set(ids))  # each once, in order
    return dict(zip(ids, (body for batch in batches for body in batch.column("body").to_pylist()), strict=True))


def keys_of(kind: str, store: MemoryStore) -> list[str]:
    """Return the keys of a kind of objects."""
    return sorted(key for key in store.objects if key.startswith(kind))


class MemoryStoreOf(MemoryStore):
    """A store with these objects."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        super().__init__()
        self.objects = objects


def damaged_take(live: Channel, store: MemoryStore) -> None:
    """Put 10 events, and let the group "fast" take them; damage alone says that it did but for this handle."""
    put(live, *numbered(0, 10))
    take(live, 10, "fast")
    damage_object(store, keys_of("log/", store)[-1], DAMAGES["one byte of the rest"])
    put(live, b"next")


def require_repaired(before: Contents, report: Report, after: Contents) -> None:
    """Prove that a repaired channel has all that was there, without what the report says, and nothing altered."""
    gone = RangeSet([*report.loss.lost, *report.loss.kept, *report.loss.doubtful])
    for group, events in before.groups.items():
        repeated = RangeSet(report.loss.repeated.get(group, ()))
        found = after.groups[group]
        kept = {number: body for number, body in events.items() if number not in gone}
        again = {number for number in found if number not in kept}
        assert {n: body for n, body in found.items() if n in kept} == kept
        assert all(number in repeated for number in again)
    assert verify(URL).healthy
