"""Takes: what a group takes is prepared, committed or rolled back, one by one or several in one append."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from spillable_stream.engine.append_plan import AppendPlan, CommitResult
from spillable_stream.engine.group_owners import KeptPosition
from spillable_stream.engine.requests import COMMIT_BYTES, Request
from spillable_stream.format.file_names import DISK, MEMORY, Tier
from spillable_stream.format.frame import Frame, FrameType
from spillable_stream.format.named_tuple import new_tuple
from spillable_stream.format.take_record import TakeRecord
from spillable_stream.state.ranges import Range, RangeSet, count_of

__all__ = ["Prepare", "PrepareOnDisk", "Rollback", "Take", "Takes", "TakesAndPrepare"]


@dataclass(slots=True)
class Prepare(Request):
    """Record that a group takes events, without committing the take: a micro-batch has begun.

    If that is recorded already, as by one whose caller could not wait for it, this is the same transaction.

    Args:
        group: the group.
        ranges: the events, as inclusive ranges of write-order IDs.
        require_owner: as in `Take`.
        after: the transaction's ID is greater than this one. Those that only a lost memory tier had are used again.
        expired: those of the events that have expired.
    """

    group: str
    ranges: list[Range]
    require_owner: Callable[[], None] | None = None
    after: int = 0
    expired: list[Range] = field(default_factory=list)

    def may_repeat(self) -> bool:
        return True

    def size_bytes(self) -> int:
        return COMMIT_BYTES + 20 * (len(self.ranges) + len(self.expired))

    def tier(self, plan: AppendPlan) -> Tier:
        return MEMORY if plan.all_in_memory(self.ranges) else DISK

    def plan(self, plan: AppendPlan) -> CommitResult:
        if self.require_owner is not None:
            self.require_owner()
        prepared = {tx: r for tx, r in plan.state.taking(self.group).items() if plan.open_take(tx) is not None}
        if found := [tx for tx in prepared if tx > self.after and RangeSet(prepared[tx]) == RangeSet(self.ranges)]:
            return CommitResult(found[-1])
        plan.next_transaction = max(plan.next_transaction, self.after + 1)
        tx = plan.new_transaction()
        record = TakeRecord(self.group, list(self.ranges), self.expired)
        plan.add(record.frame(count_of(self.ranges)), tx, record=record)
        return CommitResult(tx)


@dataclass(slots=True)
class Take(Request):
    """Commit a take transaction; one that was prepared, and whose events are taken, is committed already.

    Args:
        group: the group that took.
        ranges: the events, as inclusive ranges of write-order IDs.
        prepared: the transaction's ID if `Prepare` wrote it; otherwise 0.
        position: where the group's position is kept beside the log; None if it is nowhere, or the caller updates it.
        require_owner: raises if the consumer no longer owns the group.
        expired: those of the events that had expired when they were taken; of a prepared one, its TAKE says it.
    """

    group: str
    ranges: list[Range]
    prepared: int = 0
    position: KeptPosition | None = None
    require_owner: Callable[[], None] | None = None
    expired: list[Range] = field(default_factory=list)

    def may_repeat(self) -> bool:
        return bool(self.prepared)

    def size_bytes(self) -> int:
        return 2 * COMMIT_BYTES + 20 * (len(self.ranges) + len(self.expired))

    def tier(self, plan: AppendPlan) -> Tier:
        prepared = plan.state.pending.get(self.prepared)
        if prepared is not None and not prepared.in_memory:
            return DISK
        return MEMORY if plan.all_in_memory(self.ranges) else DISK

    def plan(self, plan: AppendPlan) -> CommitResult:
        if self.require_owner is not None:
            self.require_owner()
        if self.position is not None:
            plan.positions[self.group] = self.position
        count = count_of(self.ranges)
        tx = self.prepared
        prepared = plan.open_take(tx)
        if prepared is None and tx and self._is_taken(plan):
            return CommitResult(tx)
        if prepared is None:
            tx = plan.new_transaction()
        if prepared is None or (prepared.in_memory and plan.tier is DISK):  # a log's COMMIT needs its own TAKE
            expired = self.expired if prepared is None else [r for take in prepared.takes for r in take.expired]
            record = TakeRecord(self.group, list(self.ranges), expired)
            plan.add(record.frame(count), tx, record=record)
        plan.commit("take", count, tx)
        plan.settled.add(tx)
        return new_tuple(CommitResult, (tx, 0, -1))

    def _is_taken(self, plan: AppendPlan) -> bool:
        group = plan.state.groups.get(self.group)
        return group is not None and not any(True for r in self.ranges for _ in group.untaken(*r))


@dataclass(slots=True)
class Takes(Request):
    """Commit several take transactions of one group in one append.

    Args:
        takes: the transactions, in order; at least one.
    """

    takes: list[Take]

    def may_repeat(self) -> bool:
        return all(take.may_repeat() for take in self.takes)

    def size_bytes(self) -> int:
        return sum(take.size_bytes() for take in self.takes)

    def tier(self, plan: AppendPlan) -> Tier:
        in_memory = all(take.tier(plan) is MEMORY for take in self.takes)
        return MEMORY if in_memory else DISK

    def plan(self, plan: AppendPlan) -> CommitResult:
        return [take.plan(plan) for take in self.takes][-1]


@dataclass(slots=True)
class TakesAndPrepare(Request):
    """Commit take transactions and record another one, in one append: a micro-batch ends and the next begins.

    Args:
        takes: what ends.
        prepare: what begins.
    """

    takes: Takes
    prepare: Prepare

    def may_repeat(self) -> bool:
        return self.takes.may_repeat() and self.prepare.may_repeat()

    def size_bytes(self) -> int:
        return self.takes.size_bytes() + self.prepare.size_bytes()

    def tier(self, plan: AppendPlan) -> Tier:
        in_memory = all(request.tier(plan) is MEMORY for request in (self.takes, self.prepare))
        return MEMORY if in_memory else DISK

    def plan(self, plan: AppendPlan) -> CommitResult:
        self.takes.plan(plan)
        return self.prepare.plan(plan)


@dataclass(slots=True)
class Rollback(Request):
    """Roll back take transactions that `Prepare` wrote, by their IDs."""

    transactions: list[int]

    def may_repeat(self) -> bool:
        return True

    def size_bytes(self) -> int:
        return COMMIT_BYTES * len(self.transactions)

    def tier(self, plan: AppendPlan) -> Tier:
        pending = [plan.state.pending[tx] for tx in self.transactions if tx in plan.state.pending]
        in_memory = plan.memory_room is not None and all(p.in_memory for p in pending)
        return MEMORY if pending and in_memory else DISK

    def plan(self, plan: AppendPlan) -> CommitResult:
        for tx in self.transactions:
            if plan.open_take(tx) is not None:
                plan.settled.add(tx)
                plan.add(Frame.of(FrameType.ROLLBACK, b""), tx)
        return CommitResult()


@dataclass(slots=True)
class PrepareOnDisk(Request):
    """Copy take transactions that `Prepare` wrote in memory to the disk tier.

    Args:
        transactions: the TAKE records by transaction ID.
    """

    transactions: dict[int, list[TakeRecord]]

    def size_bytes(self) -> int:
        every = [take for takes in self.transactions.values() for take in takes]
        return sum(COMMIT_BYTES + 20 * (len(take.ranges) + len(take.expired)) for take in every)

    def plan(self, plan: AppendPlan) -> CommitResult:
        for tx, takes in self.transactions.items():
            for take in takes:
                plan.add(take.frame(count_of(take.ranges)), tx, record=take)
        return CommitResult()
