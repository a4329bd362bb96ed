"""A query's first batch has the same events each time: the channel remembers it where Spark's checkpoint may not.

Spark does not sync its checkpoint. A power cut that takes a query's very first offset from it leaves a query that
begins again under its old ID: its batch 0 has other events then, and a sink that has a batch 0 skips them. Nothing
tells a source which query it works for, but tasks know it. The first task of a batch notes it beside the group, and
looks there before it returns an event::

    noted of the group           this batch is the first       any later one
    ──────────────────────────   ───────────────────────────   ─────────────
    nothing, or another query    note it, or *                 note the query
    this query, the same batch   note it again                 –
    this query, another batch    refuse

    *  A stream without the option `group` has a new group whenever it begins. Where another one of them has a note of
       this query, by an earlier run: note that the query is past its first batch, and refuse.

The same batch is noted again: the task before may have failed, or been killed, before its note was durable.

A query with two sources of a channel has two such groups, and a crash may keep one of them from being noted. So a note
counts only if its batch was planned before the group was created.

Of a set those channels look that have events in the batch. Where a query begins, one of them is told what is noted in
those that have none (`elsewhere`): the batch that is lost may have had events of these alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from spillable_stream.engine.port import FirstBatch, HighWater, PlanReader, QueryNote
from spillable_stream.errors import CheckpointMismatchError
from spillable_stream.log_records import fields, log_of
from spillable_stream.spark.query_task import QueryTask
from spillable_stream.spark.source.offset import Offset, starting_option
from spillable_stream.spark.source.query_group import QueryGroup
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.ranges import Range, events_in

__all__ = ["FormerGroup", "PlannedBatch", "high_water_of", "note_batch", "planned_batch"]

_log = log_of(__name__)


@dataclass(frozen=True, slots=True)
class FormerGroup:
    """A group that a stream without the option `group` created for itself, which may be of an earlier start.

    Args:
        name: its name.
        position_id: it has taken everything up to this event.
    """

    name: str
    position_id: int


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """What the first task of a batch is told. Picklable.

    Args:
        group: the group that takes the events.
        first_id: the first event that it takes.
        last_id: the last one.
        is_first: whether it is the query's first batch of the channel.
        reset: the reset of the group that it begins with; None without one.
        former: the other groups that streams created for themselves, where this group is one, and its query begins.
        is_again: whether Spark's checkpoint had the batch before the source said where it ends.
        planned_at: how far the channel was when it was planned, where a stream created the group for itself.
        made_at: how far the channel was when the group was created; None if that is not known.
        elsewhere: what is noted in channels of the set that have no events in the batch with which a query begins.
    """

    group: str
    first_id: int
    last_id: int
    is_first: bool = False
    reset: str | None = None
    former: tuple[FormerGroup, ...] = ()
    is_again: bool = False
    planned_at: HighWater | None = None
    made_at: HighWater | None = None
    elsewhere: tuple[QueryNote, ...] = ()


def high_water_of(state: ChannelState) -> HighWater:
    """Return how far a channel is: greater than ever before, whatever was lost with a memory tier."""
    return state.last_id, state.next_transaction


def planned_batch(
    state: ChannelState, group: QueryGroup, taken: list[Range], end: Offset, *, is_again: bool
) -> PlannedBatch:
    """Return what the first task of a batch is told.

    Args:
        state: the channel's state.
        group: the query's group.
        taken: the events that the batch takes, in order; none if others took them all.
        end: where it ends.
        is_again: whether Spark's checkpoint had the batch before this source said where it ends.
    """
    is_first = end.start_id is not None
    former: tuple[FormerGroup, ...] = ()
    if is_first and group.is_automatic:
        others = ((name, each) for name, each in state.groups.items() if each.has_planned and name != group.name)
        former = tuple(FormerGroup(name, each.position) for name, each in others)
    first_id, last_id = (taken[0][0], taken[-1][1]) if taken else (0, 0)
    if not group.is_automatic:
        return PlannedBatch(group.name, first_id, last_id, is_first, end.reset)
    of_start = former, is_first and is_again, high_water_of(state), end.made_at
    return PlannedBatch(group.name, first_id, last_id, is_first, end.reset, *of_start)


def note_batch(events: PlanReader, planned: PlannedBatch, task: QueryTask | None, *, of_set: bool = False) -> None:
    """Note beside its group which query a batch is of, and refuse a first batch that is another one than before.

    Args:
        events: the reader of the batch's first events.
        planned: the batch.
        task: the task's query; None outside of one.
        of_set: whether the query reads a set of channels, for the message.

    Raises:
        CheckpointMismatchError: the query has read the channel before, and its checkpoint does not say so.
        StorageError: the storage failed.
    """
    if task is None:
        return
    batch = FirstBatch(task.batch_id, planned.first_id, planned.last_id, planned.reset)
    noted = events.query_note(planned.group)
    known = noted if noted is not None and noted.query == task.query else None
    if known is not None and not planned.is_first:
        return
    if known is not None and _is_again(batch, known):
        _note(events, planned, known)
        return
    former = _former(events, planned, task)
    has_begun = former is not None or any(_is_of_earlier_run(note, task) for note in planned.elsewhere)
    if known is None:
        is_new = planned.is_first and not has_begun
        _note(events, planned, QueryNote(task.query, task.run, batch if is_new else None, planned.planned_at))
    if known is not None or has_begun:
        raise _refusal(events, planned, task, known, "" if former is None else _way_on(former, of_set=of_set))


def _is_again(batch: FirstBatch, known: QueryNote) -> bool:
    """Tell whether a first batch is the one that is known."""
    return not known.run if known.first is None else known.first.has(batch)  # an earlier version noted no batch


def _former(events: PlanReader, planned: PlannedBatch, task: QueryTask) -> FormerGroup | None:
    """Return the group that the query had at an earlier start; None without one. One run may have several."""
    for group in planned.former:
        note = events.query_note(group.name)
        if note is not None and _is_of_earlier_run(note, task) and _is_before(note, planned):
            return group
    return None


def _is_of_earlier_run(note: QueryNote, task: QueryTask) -> bool:
    return note.query == task.query and note.run != task.run


def _is_before(note: QueryNote, planned: PlannedBatch) -> bool:
    """Tell whether what an earlier run noted of another group is of an earlier start of the query."""
    if note.planned_at is None or planned.made_at is None:  # an earlier version wrote it
        return not planned.is_again
    return note.planned_at < planned.made_at


def _note(events: PlanReader, planned: PlannedBatch, note: QueryNote) -> None:
    if not events.note_query(planned.group, note) and note.first is not None:
        _log.warning(
            "%s: a task may not write beside the group %r, so the first batch of its query is not noted there; if a "
            "power cut takes the first offset from Spark's checkpoint, rows may get lost unnoticed",
            events.path,
            planned.group,
            extra=fields(events.path, group=planned.group),
        )


def _refusal(
    events: PlanReader, planned: PlannedBatch, task: QueryTask, known: QueryNote | None, way_on: str
) -> CheckpointMismatchError:
    first = None if known is None else known.first
    had = f" with {events_in([(first.first_id, first.last_id)])} in the batch {first.batch_id}" if first else ""
    return CheckpointMismatchError(
        f"the query {task.query} begins to read {events.path} in its batch {task.batch_id}, with "
        f"{events_in([(planned.first_id, planned.last_id)])}; but it began before{had}, and its checkpoint does not "
        "say so: a power cut or somebody removed offsets from it. A sink would take this batch for the one before, and "
        f"skip it. Use a new checkpointLocation{way_on}"
    )


def _way_on(former: FormerGroup, *, of_set: bool) -> str:
    return f" with {starting_option(former.position_id + 1, of_set=of_set)}"
