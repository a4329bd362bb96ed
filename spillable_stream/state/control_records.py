"""What the records of control transactions change in a channel."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from spillable_stream.format.frame import FrameType
from spillable_stream.format.record import (
    GroupRecord,
    LostRecord,
    OptionsRecord,
    Record,
    ReserveRecord,
    RetentionRecord,
    SchemaRecord,
    TrimRecord,
)
from spillable_stream.state.contents import Contents, OwnerRecord, Trimmed
from spillable_stream.state.group import GroupState
from spillable_stream.state.ranges import Range
from spillable_stream.state.spill_rules import MemoryTierInfo
from spillable_stream.state.wall_clock import ClockReading, Jump

__all__ = ["apply_control"]


def apply_control(contents: Contents, type_: FrameType, value: Record) -> None:
    """Change what a control record says.

    Args:
        contents: what is in the channel.
        type_: the type of the record's frame.
        value: the record; one that is not as the type has it raises one of `NONSENSE`.
    """
    match type_:
        case FrameType.OPTIONS:
            _change_options(contents, cast("OptionsRecord", value))
        case FrameType.SCHEMA:
            _add_schema(contents, cast("SchemaRecord", value))
        case FrameType.RESERVE:
            _reserve(contents, cast("ReserveRecord", value))
        case FrameType.LOST:
            _lose(contents, cast("LostRecord", value))
        case FrameType.GROUP:
            _change_group(contents, cast("GroupRecord", value))
        case FrameType.RETENTION:
            _retain(contents, cast("RetentionRecord", value))
        case FrameType.TRIM:
            _trim(contents, cast("TrimRecord", value))


def _change_options(contents: Contents, value: OptionsRecord) -> None:
    contents.options = contents.options.changed(value)
    contents.let_go()
    if contents.options.retention_ms:
        contents.blocks.date_last(contents.time_us)
    if "byte_capacity" in value:
        contents.memory.byte_capacity = contents.options.byte_capacity or contents.memory.byte_capacity


def _add_schema(contents: Contents, value: SchemaRecord) -> None:
    if value["id"] == len(contents.schemas):
        contents.schemas.append(value["schema"])


def _reserve(contents: Contents, value: ReserveRecord) -> None:
    tier = value["generation"], value["bytes"], value["open"], value["through"], value["token"]
    contents.memory = MemoryTierInfo(*tier)
    if not contents.memory.open:
        _forget_memory(contents)


def _change_group(contents: Contents, value: GroupRecord) -> None:
    group = contents.groups.get(value["group"])
    if "epoch" in value or "claim" in value:
        _change_owner(contents.owners, value)
    elif value.get("drop"):
        _drop_group(contents, value["group"])
    elif "position" in value:
        if group is None:
            _create_group(contents, value)
    elif group is not None and "seek" in value:
        position = min(max(value["seek"], contents.beginning() - 1), contents.last_id)
        group.seek(position, value.get("reset", ""), value.get("token", ""))
        _report_losses(contents, group)
        _count_as_taken(group, value.get("left", ()))
    elif group is not None and "idle" in value:
        group.idle_ms = value["idle"]
        group.has_planned |= value.get("planned", False)


def _change_owner(owners: dict[str, OwnerRecord], value: GroupRecord) -> None:
    """Note who owns a group, that its owner gave it up, or that somebody asks for it."""
    group, epoch = value["group"], value.get("epoch", 0)
    known = owners.get(group)
    if "claim" in value:
        if known is not None:
            owners[group] = known._replace(claim=value["claim"])
    elif value.get("owner"):
        if known is None or epoch >= known.epoch:
            owners[group] = OwnerRecord(epoch, value["owner"], process=value.get("process", ""))
    elif known is not None and epoch == known.epoch:
        del owners[group]


def _drop_group(contents: Contents, name: str) -> None:
    dropped = contents.groups.pop(name, None)
    contents.memory_only_groups.pop(name, None)
    contents.owners.pop(name, None)
    if dropped is None or contents.groups:
        return
    # Nothing else says of the events that it took from memory, ahead of others, that they may be missing.
    for first, last in [absent for ahead in dropped.ahead for absent in contents.absent(*ahead)]:
        contents.lost.add(first, last)


def _create_group(contents: Contents, value: GroupRecord) -> None:
    # Events may have left the channel after the position was chosen and before this commit.
    first = max(value["position"], contents.beginning() - 1)
    group = contents.groups[value["group"]] = GroupState(
        first, is_automatic=value.get("auto", False), token=value.get("token", "")
    )
    if "since" in value:  # the group that a stream had was dropped
        group.has_planned = True
        if value["since"] < first:
            group.removed.add(value["since"] + 1, first)
    _report_losses(contents, group)
    _count_as_taken(group, value.get("left", ()))


def _report_losses(contents: Contents, group: GroupState) -> None:
    for first, last in contents.gone():
        group.lose(first, last)


def _count_as_taken(group: GroupState, left: Iterable[Range]) -> None:
    for first, last in left:
        group.count_as_taken(first, last)


def _trim(contents: Contents, value: TrimRecord) -> None:
    trimmed = contents.trimmed
    contents.trimmed = Trimmed(
        max(trimmed.through, value["through"]),
        max(trimmed.births, value["births"]),
        max(trimmed.deleted, value["deleted"]),
    )


def _retain(contents: Contents, value: RetentionRecord) -> None:
    """Let go of the oldest events, those too that some group has yet to take, and note what the clock is like."""
    reading, jump = value.get("clock"), value.get("jump")
    contents.clock.record(ClockReading(*reading) if reading else None, Jump(*jump) if jump else None)
    through = min(value.get("through", 0), contents.last_id)
    if through < contents.first_kept:
        return
    for group in contents.groups.values():
        group.remove(1, through)
    contents.floor = max(contents.floor, through + 1)
    contents.first_kept = through + 1
    contents.blocks.drop_through(through)
    contents.blocks.keep_through(contents.floor - 1)


def _lose(contents: Contents, value: LostRecord) -> None:
    """Record a loss, and forget the memory tier unless the record says that it was kept."""
    contents.merge(value)
    for first, last in value["lost"]:
        contents.lost.add(first, last)
    for first, last in value["doubtful"]:
        contents.doubtful.add(first, last)
    gone = contents.gone()
    for group in contents.groups.values():
        for first, last in gone:
            group.lose(first, last)
    if not value.get("kept"):
        contents.memory.open = False
        _forget_memory(contents)
        for group in contents.groups.values():  # only memory's log may have said that it took, or planned a batch
            group.has_planned = group.is_automatic


def _forget_memory(contents: Contents) -> None:
    """Forget the memory tier's blocks, its uncommitted transactions and its overflow."""
    for tx in [tx for tx, pending in contents.pending.items() if pending.in_memory]:
        del contents.pending[tx]
    contents.memory_only_groups.clear()
    contents.blocks.memory.clear()
    contents.overflow = False
