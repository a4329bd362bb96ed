"""An engine with what every channel has and nothing else: no memory tier, no files of groups, no upkeep.

Its log is kept in a directory, but nobody sees more of it than `Log` has: so what works here works with any log.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spillable_stream.engine.append_plan import AppendPlan
from spillable_stream.engine.appender import Appender
from spillable_stream.engine.committer import Committer
from spillable_stream.engine.engine import Engine
from spillable_stream.engine.follower import Follower
from spillable_stream.engine.group_owners import OwnerSeen
from spillable_stream.engine.groups import existing_group
from spillable_stream.engine.local.local_log import LocalLog
from spillable_stream.engine.log_port import Log
from spillable_stream.engine.put_request import Put
from spillable_stream.engine.telemetry import FileCounts
from spillable_stream.errors import GroupOwnedError, StorageError
from spillable_stream.format.commit_record import SegmentRef
from spillable_stream.log.identity_file import read_identity
from spillable_stream.options import CREATION, defaults
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.storage.filesystem import FileSystem

VERBS = {name for name in {**vars(Log), **Log.__annotations__} if not name.startswith("_")}


class BareLog:
    """What `Log` says of a log, and no more of it."""

    def __init__(self, log: LocalLog) -> None:
        object.__setattr__(self, "_log", log)

    def __getattr__(self, name: str) -> Any:
        if name not in VERBS:
            raise AttributeError(f"no log needs to have {name!r}")
        return getattr(self._log, name)

    def __setattr__(self, name: str, value: object) -> None:
        assert name == "lock_timeout_seconds"
        setattr(self._log, name, value)


class NoMemory:
    """`MemoryPort` where there is none."""

    def open(self) -> bool:
        return False

    def is_ready(self) -> bool:
        return False

    def has_pages_for(self, size_bytes: int) -> bool:
        raise AssertionError("there is no memory tier")

    def reserve_ids(self, last_id: int) -> None:
        raise AssertionError("there is no memory tier")

    def free_taken(self) -> None:
        pass

    def refuse(self, cause: StorageError) -> None:
        raise AssertionError("there is no memory tier")

    def why_not(self) -> StorageError | None:
        return None


class NoMoving:
    """`MovingPort` where there is nothing to move."""

    def make_room(self, size_bytes: int) -> None:
        raise AssertionError("there is no memory tier")


class NoRoom:
    """`RoomPort` where space does not end."""

    def make_within_a_commit(self) -> None:
        pass

    def after_a_commit(self) -> None:
        pass


class AsStaged:
    """`StagedPort` where what was staged stays as and where it is."""

    def found(self, segment: SegmentRef) -> SegmentRef:
        return segment

    def prepare(self, request: Put, plan: AppendPlan, file_id: int, end: int) -> None:
        pass


class NoDeliveries:
    """Deliveries where nothing is delayed."""

    def deliver(self) -> bool:
        return False


class NoCheckpoints:
    """`CheckpointingPort` where none are created; `calls` has what was asked for."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def create(self) -> None:
        self.calls.append("create")

    def create_if_due(self) -> None:
        self.calls.append("make if due")

    def give_back_when_idle(self) -> None:
        self.calls.append("give back")


class NoStatuses:
    """`WorkerStatuses` where workers say nothing."""

    def open(self, group: str) -> None:
        return None

    def read(self) -> dict[str, bytes]:
        return {}

    def forget(self, group: str) -> None:
        pass


class NoUpkeep:
    """`UpkeepPort` where nothing is due."""

    def ensure(self) -> None:
        pass


class BareHold:
    """A group that is owned, or is kept without an owner."""

    position = None

    def __init__(self, owners: BareOwners, group: str, note: str, former: str = "") -> None:
        self.note = note
        self.former = former
        self.lost: GroupOwnedError | None = None
        self._owners = owners
        self._group = group

    def require(self) -> None:
        if self._owners.owned.get(self._group, self.note) != self.note:
            by = self._owners.owned[self._group]
            self.lost = GroupOwnedError(f"somebody took the group {self._group!r} over", by)
            raise self.lost

    def write(self, note: str) -> None:
        self.require()
        self.note = self._owners.owned[self._group] = self._owners.former[self._group] = note

    def leave_note(self, note: str) -> None:
        pass

    def forget_note(self) -> None:
        self._owners.former.pop(self._group, None)

    def close(self) -> None:
        if self._owners.owned.get(self._group) == self.note:
            del self._owners.owned[self._group]

    def leave(self) -> None:
        pass


class BareOwners:
    """`GroupOwners` in a dictionary, which all handles of this process share.

    Attributes:
        owned: the notes of the owners that there are, by group.
        former: those of the last owners.
    """

    owned: dict[str, str]
    former: dict[str, str]

    def __init__(self, follower: Follower, path: Path, owned: dict[str, str], former: dict[str, str]) -> None:
        self.owned = owned
        self.former = former
        self._follower = follower
        self._path = path

    def own(self, group: str, timeout_seconds: float, note: str) -> BareHold:
        if group in self.owned:
            raise GroupOwnedError(f"the group {group!r} is owned by {self.owned[group]}", self.owned[group])
        former = self.former.get(group, "")
        self.owned[group] = self.former[group] = f"owner {len(self.former)}, {note}"
        return BareHold(self, group, self.owned[group], former)

    @contextmanager
    def without_owner(self, group: str, otherwise: str = "", timeout_seconds: float = 0.0) -> Iterator[BareHold]:
        existing_group(self._follower.follow(), group, self._path)
        if group in self.owned:
            raise GroupOwnedError(f"the group {group!r} is owned by {self.owned[group]}{otherwise}", self.owned[group])
        yield BareHold(self, group, self.former.get(group, ""))

    def look(self, group: str) -> OwnerSeen:
        return OwnerSeen(group in self.owned, self.former.get(group, ""))

    def inquire(self, group: str) -> OwnerSeen:
        return self.look(group)

    def owner_of(self, group: str) -> str:
        return self.former.get(group, "")

    def position_of(self, group: str) -> None:
        return None

    def forget_former(self, group: str) -> None:
        pass

    def forget_files(self, group: str) -> None:
        self.former.pop(group, None)


class BareEngine(Engine):
    """The engine; its channel was created in a directory, and its owners are shared by those that are given them."""

    checkpointing: NoCheckpoints
    owners: BareOwners

    def __init__(
        self, fs: FileSystem, path: Path, timeout_seconds: float, readonly: bool, notes: tuple[dict[str, str], ...]
    ) -> None:
        layout = read_identity(fs, path)
        super().__init__(path, layout.channel)
        self.log = log = BareLog(LocalLog(fs, layout, timeout_seconds, readonly=readonly))  # type: ignore[assignment]
        self.follower = follower = Follower(log, self.active_calls, self.readers.clear)
        self.appender = appender = Appender(log, follower, self.counters)
        owners = BareOwners(follower, path, *notes)
        tiers = NoMemory(), NoMoving(), NoRoom(), AsStaged()
        self._wire(owners, Committer(log, follower, appender, *tiers, owners, self.active_calls, self.counters))
        self.checkpointing, self.upkeep = NoCheckpoints(), NoUpkeep()
        self.deliveries = NoDeliveries()  # type: ignore[assignment]
        self.worker_statuses = NoStatuses()
        self.prepare_put = self.make_room = lambda: None
        self.memory_put_bytes = lambda: 0
        self.is_parked = False

    def fixed_options(self) -> dict[str, object]:
        return {}

    def without_fixed(self, given: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in given.items() if name not in defaults(CREATION)}

    def file_counts(self, state: ChannelState) -> FileCounts:
        return FileCounts(data_files=1)

    def flush(self) -> int:
        return 0

    def leave(self, *, checkpoint: bool | None = None, flush: bool | None = None) -> None:
        if checkpoint:
            self.checkpointing.create()

    def park(self) -> None:
        self.is_parked = True

    def resume(self) -> bool:
        self.is_parked = False
        return not self.closed

    def close(self, *, forked: bool = False) -> None:
        self.log.close(forked=forked)
        self.readers.clear()
