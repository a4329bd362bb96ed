"""The plans of a channel in an object store: by them a task reads and stages objects, on any host that sees the store.

A plan names the store by its location and, if need be, a provider of credentials. It holds no credential: each task
takes those that its host has.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from spillable_stream.engine.store.object_delays import ObjectStaging, write_delayed
from spillable_stream.engine.task_plans import PlanReader, ReadPlan
from spillable_stream.errors import NotAChannelError
from spillable_stream.format.batch import FAR_FRAME_BYTES
from spillable_stream.format.extent import Extent
from spillable_stream.format.query_note import QueryNote, packed, unpacked
from spillable_stream.format.schema_history import SchemaHistory
from spillable_stream.log.event_reader import ReadBatch
from spillable_stream.log.salvage import Unreadable
from spillable_stream.objects.cache import ObjectCache
from spillable_stream.objects.chain import SlotTokens
from spillable_stream.objects.delayed_objects import DelayedObjects
from spillable_stream.objects.disk_cache import DiskCache
from spillable_stream.objects.identity import QUERIES, read_identity
from spillable_stream.objects.location import Location
from spillable_stream.objects.object_reader import ObjectReader
from spillable_stream.objects.open_store import open_store
from spillable_stream.objects.parallel import begin
from spillable_stream.objects.proven_slots import other_events
from spillable_stream.objects.salvage import keep_damaged, not_quarantined, salvage_object
from spillable_stream.objects.staged_object import StagedObjectWriter
from spillable_stream.objects.store import ObjectMissingError, Store, StoreError, is_refusal
from spillable_stream.state.ranges import Range

__all__ = ["ObjectPlanReader", "ObjectReadPlan", "ObjectStagePlan", "read_query_note"]

_DELAYED_OBJECT_BYTES = 4 << 20  # of a task, which may stage little at a time


@dataclass(frozen=True, slots=True)
class ObjectReadPlan:
    """Where some events are. `ReadPlan` documents the verbs.

    Args:
        location: where the channel is.
        channel: the channel's UUID.
        schemas: the channel's schemas.
        extents: where the events are, in order.
        cache: where a host keeps what its tasks read; None: nowhere.
        tokens: what tells the slots from others of their numbers.
        times: when each slot was appended, in microseconds since 1970: no two appends of a log have the same time, and
            events that are merged keep theirs.
    """

    location: Location
    channel: str
    schemas: SchemaHistory
    extents: tuple[Extent, ...]
    cache: DiskCache | None
    tokens: SlotTokens
    times: Mapping[int, int]

    @property
    def ends(self) -> Mapping[int | str, int]:
        return {}  # objects don't grow

    def open(self) -> PlanReader:
        """Return a reader. The first events are asked for beside the question whether the channel is here."""
        store = open_store(self.location, has_answered=True)
        asked = begin(store.root, partial(_require_here, store, self.location, self.channel))
        reader = ObjectPlanReader(store, self)
        try:
            asked.result()
        except BaseException:
            reader.close()
            raise
        return reader


class ObjectPlanReader:
    """Reads planned events from a store. `PlanReader` documents the verbs.

    Args:
        store: the store.
        plan: where the events are.
    """

    def __init__(self, store: Store, plan: ObjectReadPlan) -> None:
        self._store = store
        self._plan = plan
        self._schema_of = plan.schemas.decoded().__getitem__
        self._reader = ObjectReader(
            store, plan.channel, self._schema_of, disk_cache=plan.cache, tokens=lambda: plan.tokens
        )
        self._reader.expect(plan.extents)
        self._firsts = [extent.first_id for extent in plan.extents]

    @property
    def path(self) -> str:
        return str(self._plan.location)

    @property
    def channel(self) -> str:
        return self._plan.channel

    def read(self, extent: Extent) -> Iterator[ReadBatch]:
        return map(self._as_planned, self._reader.read(extent))

    def read_past_damage(self, extent: Extent) -> Iterator[ReadBatch | Unreadable]:
        for found in salvage_object(self._store, self.channel, self._schema_of, extent):
            yield found if isinstance(found, Unreadable) else self._as_planned(found)

    def _as_planned(self, read: ReadBatch) -> ReadBatch:
        """Return events, unless they are others than those that had their IDs when the read was planned."""
        extent = self._plan.extents[bisect_right(self._firsts, read.first_id) - 1]
        planned_us = self._plan.times.get(extent.file) if isinstance(extent.file, int) else None
        if planned_us not in (None, read.time_us):
            raise other_events(self._store.root, read.first_id, read.last_id)
        return read

    def may_move(self, extent: Extent) -> bool:
        return isinstance(extent.file, int)  # a small slot may have been merged since

    def catch_up(self, plan: ReadPlan) -> None:
        pass

    def keep_damaged(self, damage: Unreadable) -> None:
        try:
            keep_damaged(self._store, damage)
        except ObjectMissingError as e:
            raise FileNotFoundError(str(e)) from e

    def not_quarantined(self, lost: Iterable[Range]) -> list[Range]:
        return not_quarantined(self._store, lost)

    def query_note(self, group: str) -> QueryNote | None:
        return read_query_note(self._store, self.channel, group)

    def note_query(self, group: str, note: QueryNote) -> bool:
        try:
            self._store.replace(f"{QUERIES}{group}", packed(note, self.channel, group))
        except StoreError as e:
            if is_refusal(e):
                return False
            raise
        return True

    def close(self) -> None:
        self._reader.close()


@dataclass(frozen=True, slots=True)
class ObjectStagePlan:
    """How rows are staged in objects. `StagePlan` documents the verbs.

    Args:
        location: where the channel is.
        channel: the channel's UUID.
        schema: the channel's newest schema, as an Arrow IPC message.
        schema_id: its number.
        compression: the channel's option: how batches are compressed.
        birth: the newest slot when the plan was made.
    """

    location: Location
    channel: str
    schema: bytes
    schema_id: int
    compression: str
    birth: int

    @property
    def frame_bytes(self) -> int:
        return FAR_FRAME_BYTES

    def ask_here(self) -> Callable[[], None]:
        """Begin to ask whether this host can read the channel; one that can't write there fails with its segment."""
        store = open_store(self.location, has_answered=True)
        return begin(store.root, partial(_require_here, store, self.location, self.channel)).result

    def begin(self, owner: str, batch_id: int) -> StagedObjectWriter:
        return StagedObjectWriter(
            open_store(self.location, has_answered=True), self.channel, self.birth, owner, batch_id
        )

    def begin_delayed(self, owner: str, batch_id: int) -> ObjectStaging:
        """Begin to stage delayed rows in objects that are nobody's by their names, like those of all delayed events."""
        objects = DelayedObjects(open_store(self.location, has_answered=True), self.channel, ObjectCache(0))
        return ObjectStaging(lambda chunks: write_delayed(objects, self.birth, [chunks]), _DELAYED_OBJECT_BYTES)


def _require_here(store: Store, location: Location, channel: str) -> None:
    """Refuse a host that finds something else at a location; a task may write there.

    Raises:
        NotAChannelError: no channel is there, or another one.
    """
    found = read_identity(store)
    if found != channel:
        what = "no channel" if found is None else "another channel"
        raise NotAChannelError(f"this host finds {what} at {location}: give all hosts the same credentials")


def read_query_note(store: Store, channel: str, group: str) -> QueryNote | None:
    """Return what is noted of the Spark query that reads as a group; None if nothing is."""
    try:
        data = bytes(store.get(f"{QUERIES}{group}"))
    except ObjectMissingError:
        return None
    return unpacked(data, channel, group)
