from __future__ import annotations

import pytest

from spillable_stream.format.commit_record import CommitRecord, DelayedRun, DeliveredRun, Merged, MergedRun
from spillable_stream.format.frame import FrameHeader, FrameType
from spillable_stream.format.numbered_batch import NumberedBatch, Numbers
from spillable_stream.integrity.doubt import Doubt
from spillable_stream.option_types import ChannelOptions
from spillable_stream.state.block import Block
from spillable_stream.state.blocks import Blocks
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.group import GroupState


def state_of_nine(**positions: int) -> ChannelState:
    """A state with the events 1 to 9, and groups at their positions."""
    state = ChannelState(ChannelOptions(), [])
    state.next_id, state.blocks = 10, Blocks([Block(1, 9, 1, 0, 90, 0)])
    state.groups.update({name: GroupState(position) for name, position in positions.items()})
    return state


def no_file(_: int | str) -> bool:
    return False


def commit_of_put(first_id: int) -> FrameHeader:
    return FrameHeader(FrameType.COMMIT, 0, 1, first_id, 1, 0, 0, 0)


def test_no_damage_repeats_and_skips_nothing() -> None:
    state = state_of_nine(a=3)
    assert (Doubt().repeated(state), Doubt().skipped(state)) == ({}, {})


def test_what_a_group_has_yet_to_take_may_come_again_where_takes_may_be_hidden() -> None:
    doubt = Doubt()
    doubt.add_bytes(100)
    assert doubt.repeated(state_of_nine(a=3, b=9)) == {"a": ((4, 9),)}


def test_what_a_group_takes_behind_a_break_of_what_is_before_it_may_come_again() -> None:
    doubt, state = Doubt(), state_of_nine(a=3, b=5)
    doubt.add_bytes(100)
    doubt.add_break(state.groups, 7)
    doubt.bound(commit_of_put(5))
    state.groups["a"].took(4, 9)
    state.groups["b"].took(8, 9)
    doubt.give_back(state.groups)
    assert [group.taken() for group in state.groups.values()] == [(3, [(8, 9)]), (5, [(8, 9)])]
    assert doubt.repeated(state) == {"a": ((4, 7),), "b": ((6, 7),)}


def test_a_batch_that_the_state_has_is_put_once_more_and_a_later_one_or_another_one_is_not() -> None:
    state = state_of_nine()
    state.sinks["query"] = 4
    state.producers.record("p", Numbers(3, 3, 77), (1, 2), in_memory=False)
    for sink, producer, is_repeated in (
        (("query", 4), None, True),
        (("query", 5), None, False),
        (("other", 0), None, False),
        (None, ("p", Numbers(3, 3, 77), b""), True),
        (None, ("p", Numbers(3, 3, 78), b""), False),
        (None, ("p", Numbers(4, 4, 77), b""), False),
        (None, None, False),
    ):
        record = CommitRecord("put", 0, sink=sink, producer=None if producer is None else NumberedBatch(*producer))
        assert Doubt().is_repeated(record, state) is is_repeated


@pytest.mark.parametrize(
    ("count", "due_ms", "next_ms", "is_believed"),
    [(1, 50, 0, False), (2, 50, 0, True), (2, 40, 0, False), (1, 50, 70, True), (1, 51, 70, False), (1, 50, 49, False)],
)
def test_a_delivery_is_believed_as_far_as_it_fits_the_events_that_wait(
    count: int, due_ms: int, next_ms: int, is_believed: bool
) -> None:
    state, run = state_of_nine(), DeliveredRun(1, due_ms, 0, 0, count, next_ms)
    record = CommitRecord("put", 0, delivered=[run])
    assert Doubt().believed(record, state, no_file) == record, "there is no such file: it changes nothing"
    state.delays.apply([DelayedRun(1, 0, 100, 0, 80, 2, 40, 50)], [])
    assert Doubt().believed(record, state, no_file).delivered == [run] * is_believed


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        ({1, 2, 3}, [(10, 3, 30)]),
        ({2}, [(2, 2, 20), (7, 6, 60)]),
        (set[int](), [(2, 11, 110)]),
    ],
)
def test_a_merge_is_believed_where_no_object_that_is_there_has_the_ids(
    there: set[int], expected: list[tuple[int, int, int]]
) -> None:
    state = state_of_nine()
    state.blocks = Blocks([Block(1 + 3 * n, 3, 1 + n, 0, 30, 0) for n in range(3)])
    state.first_kept = 2
    record = CommitRecord("merge", 0, merged=Merged("segment", [MergedRun(1, 12, 0, 120, 0, 0)]))
    believed = Doubt().believed(record, state, there.__contains__).merged
    assert believed is not None
    assert [(run.first_id, run.count, run.payload_bytes) for run in believed.runs] == expected


@pytest.mark.parametrize(
    ("there", "copied", "number", "counts", "left"),
    [
        ({"a", "b", "copy"}, [1, 2], 3, False, [1, 2]),
        ({"a", "b", "copy"}, [1, 2, 9], 10, True, [1, 2]),
        ({"a", "copy"}, [1, 2], 3, True, [1]),
        ({"copy"}, [1, 2], 3, True, []),
        ({"copy"}, [1, 2], 2, False, [1, 2]),
        (set[str](), [1, 2], 3, False, [1, 2]),
    ],
)
def test_copies_of_delayed_events_count_besides_the_old_ones_that_are_there_if_one_is_not(
    there: set[str], copied: list[int], number: int, counts: bool, left: list[int]
) -> None:
    state = state_of_nine()
    state.delays.apply([DelayedRun(1, 0, 0, 0, 80, 2, 40, 50, "a"), DelayedRun(2, 0, 0, 0, 80, 2, 40, 50, "b")], [])
    copy = DelayedRun(number, 0, 0, 0, 200, 4, 80, 50, "copy")
    delivered = [DeliveredRun(old, 60, 0, 1, 2, 0) for old in copied]
    record = CommitRecord("merge", 0, delayed=[copy], delivered=delivered)
    believed = Doubt().believed(record, state, there.__contains__)
    state.delays.apply(believed.delayed, believed.delivered)
    assert list(state.delays.files) == left + [number] * counts


def test_a_put_behind_the_damage_bounds_what_may_come_again() -> None:
    doubt = Doubt(hides_takes=True)
    doubt.bound(commit_of_put(6))
    doubt.bound(commit_of_put(8))
    assert doubt.repeated(state_of_nine(a=3)) == {"a": ((4, 5),)}
    doubt.add_bytes(100)
    assert doubt.repeated(state_of_nine(a=3)) == {"a": ((4, 9),)}


def test_what_a_group_had_taken_and_has_still_taken_is_skipped_if_a_hidden_seek_moved_it_back() -> None:
    doubt = Doubt()
    doubt.add_seeks(state_of_nine(a=5, gone=5).groups)
    assert doubt.skipped(state_of_nine(a=7)) == {"a": ((1, 5),)}
    assert doubt.skipped(state_of_nine(a=2)) == {"a": ((1, 2),)}


def test_delayed_events_may_have_been_delivered_up_to_the_next_append() -> None:
    doubt = Doubt()
    assert doubt.delivered_until_ms(9) == 0
    doubt.is_raised = True
    assert doubt.delivered_until_ms(9) == 9
    doubt.bound(commit_of_put(5)._replace(time_us=4000))
    doubt.bound(commit_of_put(6)._replace(time_us=8000))
    assert doubt.delivered_until_ms(9) == 5
