"""The plans of a channel that has no files: objects in a dictionary, by name, as a bucket has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from spillable_stream.engine.delayed_chunk import use_of
from spillable_stream.engine.delayed_puts import StagedDelayed, StagedRuns
from spillable_stream.engine.port import DelayedChunk, PlanReader, QueryNote, ReadBatch, ReadPlan, Unreadable
from spillable_stream.errors import CorruptionError, DataLossError, NotAChannelError
from spillable_stream.format.batch import FRAME_BYTES
from spillable_stream.format.commit_record import DelayedRun, SegmentRef
from spillable_stream.format.extent import Extent
from spillable_stream.format.frame import Frame
from spillable_stream.state.ranges import Range

Events = ReadBatch | Unreadable
Objects = dict[str, list[Events]]


@dataclass(frozen=True)
class ObjectReadPlan:
    """Args: objects: all events, by the name of their object; extents: those to read."""

    objects: Objects
    extents: tuple[Extent, ...]
    ends: Mapping[int | str, int] = field(default_factory=dict)
    kept: list[Unreadable] = field(default_factory=list)

    def open(self) -> PlanReader:
        return ObjectReader(self)


class ObjectReader:
    """Reads the events of a plan."""

    path = "s3://bucket/orders"
    channel = "c0ffee"

    def __init__(self, plan: ObjectReadPlan) -> None:
        self._plan = plan

    def read(self, extent: Extent) -> Iterator[ReadBatch]:
        for found in self.read_past_damage(extent):
            if isinstance(found, Unreadable):
                raise CorruptionError(f"the event {found.first_id} can't be read")
            yield found

    def read_past_damage(self, extent: Extent) -> Iterator[Events]:
        if extent.file not in self._plan.objects:
            raise DataLossError(f"{extent.file} is gone")
        for found in self._plan.objects[str(extent.file)]:
            if extent.first_id <= found.last_id and found.first_id <= extent.last_id:
                yield found

    def may_move(self, extent: Extent) -> bool:
        return False

    def catch_up(self, plan: ReadPlan) -> None:
        raise AssertionError("nothing moves")

    def keep_damaged(self, damage: Unreadable) -> None:
        self._plan.kept.append(damage)

    def not_quarantined(self, lost: Iterable[Range]) -> list[Range]:
        return list(lost)

    def query_note(self, group: str) -> QueryNote | None:
        raise AssertionError("there is no query")

    def note_query(self, group: str, note: QueryNote) -> bool:
        raise AssertionError("there is no query")

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class ObjectStagePlan:
    """Args: schema: of the events; staged: the frames of each object; is_here: whether the host reaches the bucket."""

    schema: bytes
    staged: dict[str, list[Frame]] = field(default_factory=dict)
    is_here: bool = True
    schema_id: int = 0
    compression: str = "none"
    channel: str = "c0ffee"
    frame_bytes: int = FRAME_BYTES

    def ask_here(self) -> Callable[[], None]:
        return self._require_here

    def _require_here(self) -> None:
        if not self.is_here:
            raise NotAChannelError("this host does not reach the bucket")

    def begin(self, owner: str, batch_id: int) -> StagedObject:
        return StagedObject(self, f"segments/{owner}.{batch_id}")

    def begin_delayed(self, owner: str, batch_id: int) -> StagedSideFile:
        return StagedSideFile(self, f"delayed/{owner}.{batch_id}")


class StagedObject:
    """An upload, which is there once it is finished."""

    def __init__(self, plan: ObjectStagePlan, name: str) -> None:
        self._plan = plan
        self.name = name
        self._frames: list[Frame] = []

    def write(self, frames: Iterable[Frame]) -> None:
        self._frames += frames

    def finish(self) -> SegmentRef:
        self._plan.staged[self.name] = self._frames
        return SegmentRef(self.name, 0, sum(f.count for f in self._frames), sum(len(f.payload) for f in self._frames))

    def close(self) -> None:
        pass

    def discard(self) -> None:
        self._plan.staged.pop(self.name, None)


class StagedNowhere(StagedRuns):
    """Delayed events that no commit ever names."""

    def place(self, plan: object) -> list[DelayedRun]:
        raise AssertionError("nobody commits it")


class StagedSideFile:
    """One object for all delayed events, whatever stretch of time they are of."""

    def __init__(self, plan: ObjectStagePlan, name: str) -> None:
        self._plan = plan
        self.name = name
        self._chunks: list[DelayedChunk] = []

    def write(self, chunks: Sequence[DelayedChunk]) -> None:
        self._chunks += chunks

    def finish(self) -> StagedDelayed:
        self._plan.staged[self.name] = [frame for chunk in self._chunks for frame in chunk.frames]
        first_ms = min(chunk.first_ms for chunk in self._chunks)
        return StagedNowhere([DelayedRun(0, first_ms, 0, 0, 1, *use_of(self._chunks), first_ms, self.name)])

    def close(self) -> None:
        pass

    def discard(self) -> None:
        self._plan.staged.pop(self.name, None)
