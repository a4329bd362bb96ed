"""Events that end their worker's process: they are found, and become dead letters, and the others are done."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from spillable_stream import StorageError
from spillable_stream.workers.calls import Calls
from spillable_stream.workers.unfinished import Suspect, Unfinished
from spillable_stream.workers.work import Care, Work
from tests.lab.children import wait_until

OWNER = "pid 7 on host since now, "


class Notes:
    """The note about a group's owner."""

    def __init__(self) -> None:
        self.written: list[str] = []

    def write(self, note: str) -> None:
        self.written.append(note)

    def last(self) -> Unfinished | None:
        return Unfinished.parse(OWNER + self.written[-1]) if self.written else None


def calls_after(left: Unfinished | None, notes: Notes) -> Calls:
    calls = Calls(threading.Condition(), 9, notes.write, {})
    calls.take_over(OWNER + left.note() if left else OWNER, lambda first, last: [(first, last)])
    return calls


def test_nothing_is_written_unless_a_worker_was_killed() -> None:
    notes = Notes()
    calls = calls_after(None, notes)
    (work,) = calls.divide([(1, 5)])
    assert work.care is Care.NONE and calls.begin(work, lambda: True)
    calls.end(work)
    calls.failed(work)
    assert notes.written == []


def test_after_a_kill_the_first_calls_are_written_down_and_no_others() -> None:
    notes = Notes()
    calls = calls_after(Unfinished(7, [], []), notes)
    works = [work for part in ([(1, 4)], [(5, 8)], [(9, 12)]) for work in calls.divide(part)]
    assert [work.care for work in works] == [Care.NOTED, Care.NOTED, Care.NONE]
    assert calls.begin(works[0], lambda: True) and notes.last() == Unfinished(9, [[(1, 4)]], [])
    assert calls.begin(works[2], lambda: True)  # while another one is written down
    assert notes.last() == Unfinished(9, [[(1, 4)], [(9, 12)]], [])
    for work in (works[0], works[2]):
        calls.end(work)
    written = len(notes.written)
    assert calls.begin(works[2], lambda: True) and len(notes.written) == written


def test_a_call_that_failed_is_not_written_down_any_more() -> None:
    notes = Notes()
    calls = calls_after(Unfinished(7, [], []), notes)
    (work,) = calls.divide([(1, 1)])
    assert calls.begin(work, lambda: True)
    calls.end(work)
    calls.failed(work)
    assert notes.last() == Unfinished(9, [], [])


def test_suspects_are_divided_from_the_others_and_forgotten_when_they_are_taken() -> None:
    notes = Notes()
    calls = calls_after(Unfinished(100, [], [Suspect([(3, 3)], 2), Suspect([(6, 8)], 0)]), notes)
    works = calls.divide([(1, 7)])
    assert [(work.ranges, work.attempts, work.care) for work in works] == [
        ([(1, 2), (4, 5)], 0, Care.NOTED),
        ([(3, 3)], 2, Care.ALONE),
        ([(6, 7)], 0, Care.ALONE),
    ]
    for work in works[1:]:
        calls.settled(work)
    assert calls.begin(works[0], lambda: True)
    assert notes.last() == Unfinished(9, [[(1, 2), (4, 5)]], [Suspect([(8, 8)], 0)])


def test_a_suspect_is_called_when_nothing_else_is_under_way_and_nothing_else_meanwhile() -> None:
    calls = calls_after(Unfinished(100, [], [Suspect([(3, 3)], 1)]), Notes())
    first, alone, last = Work([(1, 1)]), Work([(3, 3)], care=Care.ALONE), Work([(4, 4)])
    assert calls.begin(first, lambda: True)
    began: list[str] = []
    threads = [
        threading.Thread(target=lambda: (calls.begin(alone, lambda: True), began.append("alone"))),
        threading.Thread(target=lambda: (calls.begin(last, lambda: True), began.append("last"))),
    ]
    threads[0].start()
    assert wait_until(lambda: calls._alone_waiting == 1)
    threads[1].start()
    assert not calls.begin(Work([(5, 5)]), iter((True, False, False)).__next__)
    assert began == []
    with calls._changed:
        calls.end(first)
    threads[0].join(30)
    assert not calls.begin(Work([(5, 5)]), iter((True, False, False)).__next__)
    assert began == ["alone"]
    with calls._changed:
        calls.end(alone)
    threads[1].join(30)
    assert began == ["alone", "last"]


def test_a_note_that_cannot_be_written_holds_no_call_back(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(note: str) -> None:
        raise StorageError("the disk is full")

    calls = Calls(threading.Condition(), 9, refuse, {})
    calls.take_over(OWNER + Unfinished(5, [], []).note(), lambda first, last: [])
    assert calls.begin(Work([(1, 1)], care=Care.NOTED), lambda: True)
    assert "nobody knows by which event: the disk is full" in caplog.text


@pytest.mark.parametrize(
    ("suspects", "said"),
    [([], "how it ended"), ([Suspect([(3, 3)], 1)], "how it ended; 1 event is called alone now")],
)
def test_the_log_says_how_many_events_are_called_alone_where_any_is(
    caplog: pytest.LogCaptureFixture, suspects: list[Suspect], said: str
) -> None:
    calls_after(Unfinished(100, [], suspects), Notes())
    assert caplog.messages[-1].endswith(said)


# ── attempts that failed ────────────────────────────────────────────────────────────────────────


def failing_twice(notes: Notes, now: Callable[[], float], left: Unfinished | None = None) -> Calls:
    """Return calls of which the events 3 and 7 have failed twice, and 4 in a batch."""
    calls = Calls(threading.Condition(), 9, notes.write, {}, now)
    calls.take_over(OWNER + left.note() if left else OWNER, lambda first, last: [(first, last)])
    for attempts in (1, 2):
        for event in (3, 7):
            calls.judged(Work([(event, event)], attempts))
            calls.say_what_failed()
    calls.judged(Work([(4, 5)], 1))
    return calls


def test_attempts_are_written_down_at_most_once_a_second() -> None:
    notes, seconds = Notes(), [0.0]
    calls = failing_twice(notes, lambda: seconds[0])
    assert [note.failed for note in map(Unfinished.parse, (OWNER + text for text in notes.written)) if note] == [{3: 1}]
    seconds[0] = 1.0
    calls.judged(Work([(3, 3)], 3))
    calls.say_what_failed()
    assert notes.last() == Unfinished(9, [], [], {3: 3, 7: 2})
    seconds[0] = 9.0
    calls.judged(Work([(3, 3)], 3))  # a pause is no attempt
    calls.say_what_failed()
    assert len(notes.written) == 2


def test_what_is_taken_is_not_left_and_where_nothing_is_left_nothing_is_said() -> None:
    calls = failing_twice(Notes(), lambda: 0.0)
    assert Unfinished.parse(OWNER + calls.last_note()) == Unfinished(0, [], [], {3: 2, 7: 2})
    with calls._changed:
        calls.settled(Work([(1, 100)]))  # a batch of others
        calls.settled(Work([(3, 3)], 2))
    assert calls.last_note() == "a worker that stopped; failed 7x2"
    with calls._changed:
        calls.settled(Work([(7, 7)], 2))
    assert calls.last_note() == ""


def test_events_that_failed_come_alone_with_their_attempts_after_a_stop_and_after_a_kill() -> None:
    for most, care in ((0, Care.NONE), (100, Care.NOTED)):
        notes = Notes()
        calls = calls_after(Unfinished(most, [], [], {3: 2, 7: 1, 50: 1}), notes)
        assert notes.last() == Unfinished(9, [], [], {3: 2, 7: 1, 50: 1}), "it is said at once"
        works = calls.divide([(1, 10)])
        assert [(work.ranges, work.attempts, work.care) for work in works] == [
            ([(1, 2), (4, 6), (8, 10)], 0, care),
            ([(3, 3)], 2, care),
            ([(7, 7)], 1, care),
        ]
        assert [work.ranges for work in calls.divide([(11, 20)])] == [[(11, 20)]]


def test_a_note_about_failures_says_no_calls_that_would_have_to_be_said_again_and_again() -> None:
    notes, seconds = Notes(), [0.0]
    calls = Calls(threading.Condition(), 9, notes.write, {}, lambda: seconds[0])
    slow, fast = Work([(1, 1)]), Work([(2, 2)])
    assert calls.begin(slow, lambda: True) and calls.begin(fast, lambda: True)
    calls.end(fast)
    fast.attempts = 1
    calls.judged(fast)
    calls.say_what_failed()
    assert notes.last() == Unfinished(9, [], [], {2: 1})
    for event in range(3, 9):  # while another one is always under way
        work = Work([(event, event)])
        assert calls.begin(work, lambda: True)
        calls.end(work)
    assert len(notes.written) == 1


def test_a_suspect_that_fails_instead_keeps_its_attempts_over_stops() -> None:
    left, seen = Unfinished(0, [], [Suspect([(3, 3)], 1), Suspect([(5, 6)], 0)]), list[int]()
    for _ in range(3):
        notes = Notes()
        calls = calls_after(left, notes)
        work = next(work for work in calls.divide([(3, 3)]) if work.first_id == 3)
        work.attempts += 1
        seen.append(work.attempts)
        calls.judged(work)
        found = Unfinished.parse(OWNER + calls.last_note())
        assert found is not None
        left = found
    assert seen == [2, 3, 4] and left.suspects == [Suspect([(5, 6)], 0)]


def test_a_suspect_that_has_failed_and_then_ends_its_process_keeps_its_attempts() -> None:
    calls = calls_after(Unfinished(9, [[(3, 3)]], [], {3: 2}), Notes())
    (work,) = calls.divide([(3, 3)])
    assert (work.attempts, work.care) == (3, Care.ALONE)


def test_attempts_of_events_that_were_taken_since_are_forgotten() -> None:
    calls = Calls(threading.Condition(), 9, Notes().write, {})
    calls.take_over(OWNER + Unfinished(0, [], [], {3: 2, 7: 1}).note(), lambda i, _: [(i, i)] if i == 7 else [])
    assert calls.last_note() == "a worker that stopped; failed 7x1"


def test_the_end_of_a_call_wakes_nobody_but_who_waits_for_it() -> None:
    """Each wake-up of the thread that watches would cost a small batch a fifth of its time."""
    changed = threading.Condition()
    calls, woken = Calls(changed, 9, Notes().write, {}), list[int]()
    changed.notify_all = lambda: woken.append(1)  # type: ignore[method-assign]
    for event in range(1, 4):
        work = Work([(event, event)])
        assert calls.begin(work, lambda: True)
        calls.end(work)
    assert woken == []
    alone = Work([(4, 4)], care=Care.ALONE)
    assert calls.begin(alone, lambda: True)
    calls.end(alone)
    assert woken == [1]
