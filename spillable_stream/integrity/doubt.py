"""What damage may hide of a log, between it and the next exact image."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from spillable_stream.errors import ProducerSequenceError
from spillable_stream.format.commit_record import CommitRecord, DeliveredRun, Merged, MergedRun
from spillable_stream.format.frame import HEADER_SIZE_BYTES, FrameHeader, FrameType
from spillable_stream.format.record import GroupRecord
from spillable_stream.names import is_name
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.delays import DelayedFile, Delays
from spillable_stream.state.group import GroupState
from spillable_stream.state.ranges import Range, RangeSet

__all__ = ["Doubt"]

_IsThere = Callable[[int | str], bool]


def _may_be_of(run: DeliveredRun, file: DelayedFile) -> bool:
    """Tell, by their number and due times, whether events of a side file can be those that were delivered."""
    if run.due_ms < file.next_ms or (run.count == 1 and run.due_ms != file.next_ms):
        return False
    if run.next_ms == 0:  # the rest of the file
        return run.count == file.events
    return run.due_ms <= run.next_ms and run.count < file.events


def _delays_apart(record: CommitRecord, delays: Delays, is_there: _IsThere) -> CommitRecord:
    """Return a COMMIT of copies of delayed events such that all old objects that are there count yet.

    The copies count, too, if one of the old objects is not there, and they can be.
    """
    copies = {run.file for run in record.delayed}
    old = {run.file for run in record.delivered} - copies
    there = {number for number in old & delays.files.keys() if is_there(delays.files[number].name)}
    count = min(copies) >= delays.next_number and all(is_there(run.name) for run in record.delayed)
    if old == there or not count:
        return replace(record, delayed=[], delivered=[])
    return replace(record, delivered=[run for run in record.delivered if run.file not in there])


def _only_copies(run: MergedRun, state: ChannelState, is_there: _IsThere) -> Iterator[MergedRun]:
    """Yield a run of copies without those under whose IDs other objects have events, or had events that were taken."""
    first_id, last_id = max(run.first_id, state.first_kept), run.first_id + run.count - 1
    blocks = state.blocks.between(first_id, last_id)
    held = RangeSet((block.first_id, block.last_id) for block in blocks if is_there(block.file))
    for first, last in held.gaps(first_id, last_id):
        count = last - first + 1
        yield run._replace(first_id=first, count=count, payload_bytes=run.payload_bytes * count // run.count)


@dataclass(slots=True)
class Doubt:
    """The changes that damage may hide, up to the next exact image.

    Args:
        is_raised: whether the state may be wrong.
        hides_records: whether takes or control records may be hidden that no later frame repeats.
        hides_takes: whether only takes may be hidden.
        taken: what each group had taken, before anything was hidden that may be a seek.
        takes_through: the last ID that a hidden take may include; 0 while unknown.
        transactions: how many transactions may be hidden.
        owned: the groups that had an owner when it was raised, or have had one since, and were not seen to be dropped.
        untaken: what each group had yet to take at a break: what follows may speak of other events with these IDs.
        untaken_through: the last ID before the break; 0 if there is none.
        until_us: when the first append behind what is hidden was committed; 0 if there is none.
        in_memory: in which logs something is hidden: the memory tier's (True), or the data files (False).
    """

    is_raised: bool = False
    hides_records: bool = False
    hides_takes: bool = False
    taken: dict[str, RangeSet] = field(default_factory=dict)
    takes_through: int = 0
    transactions: int = 0
    owned: set[str] = field(default_factory=set)
    untaken: dict[str, RangeSet] = field(default_factory=dict)
    untaken_through: int = 0
    until_us: int = 0
    in_memory: set[bool] = field(default_factory=set)

    def add_bytes(self, count: int) -> None:
        """Add bytes that may have held any frames."""
        self.hides_records = True
        self.takes_through = 0
        self.transactions += count // HEADER_SIZE_BYTES + 1

    def add_seeks(self, groups: Mapping[str, GroupState]) -> None:
        """Add seeks that may be hidden: back to what the groups have taken by now."""
        for name, group in groups.items():
            self.taken[name] = self.taken.get(name, RangeSet()).union([(1, group.position), *group.ahead])

    def add_break(self, groups: Mapping[str, GroupState], last_id: int) -> None:
        """Add a place behind which a record may mean other events than those that are there: each group keeps these."""
        self.untaken_through = last_id
        for name, group in groups.items():
            self.add_untaken(name, group)

    def add_untaken(self, name: str, group: GroupState) -> None:
        """Add what a group has yet to take of what is before the last break."""
        untaken = group.ahead.gaps(group.position + 1, self.untaken_through)
        self.untaken[name] = self.untaken.get(name, RangeSet()).union(untaken)

    def give_back(self, groups: Mapping[str, GroupState]) -> None:
        """Let each group take what it had yet to take at a break, whatever it has taken since."""
        for name in self.untaken.keys() & groups.keys():
            for first, last in self.untaken[name]:
                groups[name].give_back(first, last)

    def is_repeated(self, record: CommitRecord, state: ChannelState) -> bool:
        """Tell whether what a COMMIT behind a break puts is in the state: its sender has sent it again meanwhile."""
        if record.sink is not None:
            query, batch = record.sink
            return batch <= state.sinks.get(query, -1)
        if record.producer is not None:
            name, numbers, _ = record.producer
            with suppress(ProducerSequenceError):  # it is another batch
                return state.producers.answer(name, numbers) is not None
        return False

    def believed(self, record: CommitRecord, state: ChannelState, is_there: _IsThere) -> CommitRecord:
        """Return a COMMIT behind a break without what it says of others' events that have the IDs or numbers it means.

        Args:
            record: the COMMIT.
            state: the state before it.
            is_there: tells whether a log file, by number, or a segment, by name, is there.
        """
        if record.merged is not None:
            runs = [part for run in record.merged.runs for part in _only_copies(run, state, is_there)]
            return replace(record, merged=Merged(record.merged.name, runs))
        if record.kind == "merge" and record.delayed:
            return _delays_apart(record, state.delays, is_there)
        files = state.delays.files
        delivered = [run for run in record.delivered if run.file not in files or _may_be_of(run, files[run.file])]
        return replace(record, delivered=delivered)

    def record_owner(self, record: GroupRecord) -> None:
        """Record what the log says of who owns a group, or that the group was dropped."""
        name = record["group"]
        if record.get("drop"):
            self.owned.discard(name)
        elif ("epoch" in record or "claim" in record) and is_name(name):  # else it is a producer
            self.owned.add(name)

    def bound(self, header: FrameHeader, *, in_memory: bool = False) -> None:
        """Bound what is hidden by a frame: it was before; and takes by the COMMIT of a put, whose events they lack.

        A frame of the other tier's log bounds nothing: what is hidden may be behind it.
        """
        if not self.in_memory <= {in_memory}:
            return
        self.until_us = self.until_us or header.time_us
        may_hide = self.hides_records or self.hides_takes
        if self.takes_through == 0 and may_hide and header.type == FrameType.COMMIT and header.write_order_id:
            self.takes_through = header.write_order_id - 1

    def delivered_until_ms(self, now_ms: int) -> int:
        """Return until when delayed events may have been delivered by hidden records, in milliseconds since 1970.

        Args:
            now_ms: the time now; no record is later.

        Returns:
            0 if nothing is hidden.
        """
        if not self.is_raised:
            return 0
        return min(self.until_us // 1000 + 1, now_ms) if self.until_us else now_ms

    def repeated(self, state: ChannelState) -> dict[str, tuple[Range, ...]]:
        """Return, by group of a state, the events that it may have taken without a remaining record."""
        if not self.hides_records and not self.hides_takes:
            return {}
        through = min(max(self.takes_through or state.last_id, self.untaken_through), state.last_id)
        found = {name: tuple(group.ahead.gaps(group.position + 1, through)) for name, group in state.groups.items()}
        return {name: ranges for name, ranges in found.items() if ranges}

    def skipped(self, state: ChannelState) -> dict[str, tuple[Range, ...]]:
        """Return what the groups had taken before seeks may be hidden, as far as it is there and they have it yet."""
        found: dict[str, tuple[Range, ...]] = {}
        kept = [(max(block.first_id, state.first_kept), block.last_id) for block in state.blocks]
        for name in self.taken.keys() & state.groups.keys():
            group = state.groups[name]
            there = RangeSet(r for block in kept for r in self.taken[name].within(*block))
            for first, last in list(group.ahead.gaps(group.position + 1, state.last_id)):
                there.remove(first, last)
            if there:
                found[name] = tuple(there)
        return found
