from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from spillable_stream.engine import group_commit
from spillable_stream.engine.append_plan import CommitResult
from spillable_stream.engine.group_commit import GroupCommit, Ticket
from spillable_stream.engine.requests import Request
from spillable_stream.errors import CommitOutcomeUnknownError
from tests.support.interrupts import Interrupts
from tests.support.one_module import replace_in

_WAIT_SECONDS = 60.0  # for what comes at once, on a busy machine too


@dataclass
class Sized(Request):
    """A request of a size."""

    number: int
    bytes: int = 1

    def size_bytes(self) -> int:
        return self.bytes


class Log:
    """Remembers the groups that were committed."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.may_go = threading.Event()
        self.may_go.set()
        self.failure: BaseException | None = None

    def commit(self, group: list[Ticket]) -> None:
        self.may_go.wait(_WAIT_SECONDS)
        if self.failure:
            raise self.failure
        self.groups.append([t.request.number for t in group])  # type: ignore[attr-defined]
        for ticket in group:
            ticket.result, ticket.done = CommitResult(ticket.request.number), True  # type: ignore[attr-defined]


def submit_together(log: Log, requests: list[Sized]) -> list[object]:
    """Submit requests from threads that all wait until the last of them is there."""
    commits, results = GroupCommit(log.commit), [None] * len(requests)
    log.may_go.clear()

    def work(i: int) -> None:
        try:
            results[i] = commits.submit(requests[i]).transaction_id  # type: ignore[call-overload]
        except BaseException as e:
            results[i] = e  # type: ignore[call-overload]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(requests))]
    for thread in threads:
        thread.start()
    while commits.waiting() < len(requests) - 1:
        time.sleep(0.001)
    log.may_go.set()
    for thread in threads:
        thread.join()
    return list(results)


def test_all_that_wait_are_one_group() -> None:
    log = Log()
    assert submit_together(log, [Sized(i) for i in range(20)]) == list(range(20))
    assert [len(g) for g in log.groups] == [1, 19]


def test_nobody_returns_before_its_own_request_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups are bounded by bytes, and the lead may go to a thread whose ticket is far back."""
    monkeypatch.setattr(group_commit, "_GROUP_BYTES", 25)
    for _ in range(20):
        log = Log()
        assert submit_together(log, [Sized(i, bytes=10) for i in range(12)]) == list(range(12))
        assert all(len(g) <= 2 for g in log.groups)
        assert sorted(i for g in log.groups for i in g) == list(range(12))


def test_a_request_larger_than_a_group_goes_alone() -> None:
    log = Log()
    assert submit_together(log, [Sized(i, bytes=1 << 30) for i in range(3)]) == [0, 1, 2]
    assert [len(g) for g in log.groups] == [1, 1, 1]


def test_a_failure_fails_every_request_of_the_group() -> None:
    log = Log()
    log.failure = OSError("no")
    assert all(isinstance(r, OSError) for r in submit_together(log, [Sized(i) for i in range(5)]))


def test_an_interrupt_while_another_thread_commits_waits_until_that_is_over() -> None:
    """Else the caller rolls back what is then committed."""
    log = Log()
    commits = GroupCommit(log.commit)
    log.may_go.clear()
    leader = threading.Thread(target=lambda: commits.submit(Sized(1)))
    leader.start()
    while commits.waiting():
        time.sleep(0.001)

    ticket = Ticket(Sized(2))  # gathered by the leader, and its thread interrupted
    ticket.begun = True
    waited = threading.Thread(target=lambda: commits._withdraw(ticket))
    waited.start()
    waited.join(0.05)
    assert waited.is_alive()
    log.may_go.set()
    waited.join(_WAIT_SECONDS)
    assert not waited.is_alive() and log.groups == [[1]]
    leader.join()


def test_an_interrupt_waits_for_its_own_commit_and_not_for_the_next_groups() -> None:
    commits, ticket = GroupCommit(Log().commit), Ticket(Sized(1))
    ticket.begun = True
    with commits._lead:  # of whoever leads the next group
        waited = started(lambda: commits._withdraw(ticket))
        ticket.done = True
        ticket.wake()
        waited.join(_WAIT_SECONDS)
        assert not waited.is_alive()


def test_a_second_interrupt_ends_the_wait_and_says_that_the_commit_may_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk may hang: nobody should have to kill the process for that."""
    log = Steps()
    commits, waits, me = GroupCommit(log.commit), Ticket.wait, threading.get_ident()

    def interrupted(ticket: Ticket, timeout_seconds: float) -> None:
        if threading.get_ident() != me:
            return waits(ticket, min(timeout_seconds, 0.005))
        log.steps.release()  # of the first group; another thread leads the second one, with this ticket in it
        until(lambda: ticket.begun)
        raise KeyboardInterrupt

    monkeypatch.setattr(Ticket, "wait", interrupted)
    others = [started(lambda: commits.submit(Sized(0)))]
    until(lambda: commits._lead.locked() and not commits.waiting())
    others.append(started(lambda: commits.submit(Sized(1))))
    until(lambda: commits.waiting() == 1)
    with pytest.raises(KeyboardInterrupt) as raised:
        commits.submit(Sized(2))
    assert raised.value.__notes__ == [
        "another thread was committing this, and may still do so: whether it counts is not known"
    ]
    for thread in others:
        thread.join(_WAIT_SECONDS)
        assert not thread.is_alive()
    assert sorted(i for group in log.groups for i in group) == [0, 1, 2]


def test_the_leader_paces_before_each_group_and_whoever_comes_meanwhile_is_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_commit, "_GROUP_BYTES", 25)
    log, paces = Log(), list[tuple[bool, int]]()
    commits = GroupCommit(log.commit)
    others = [threading.Thread(target=lambda i=i: commits.submit(Sized(i, bytes=10))) for i in (1, 2)]

    def pace() -> None:
        if not paces:
            for thread in others:
                thread.start()
            while commits.waiting() < 3:
                time.sleep(0.001)
        paces.append((commits._lead.locked(), len(log.groups)))

    commits.pace = pace
    commits.submit(Sized(0, bytes=10))
    for thread in others:
        thread.join()
    assert [len(group) for group in log.groups] == [2, 1]
    assert paces == [(True, 0), (True, 1)], "with the lead held, before each group"


def test_a_leader_that_is_interrupted_while_it_paces_commits_nothing() -> None:
    log = Log()
    commits = GroupCommit(log.commit)

    def pace() -> None:
        raise KeyboardInterrupt

    commits.pace = pace
    with pytest.raises(KeyboardInterrupt):
        commits.submit(Sized(0))
    commits.pace = None
    assert commits.submit(Sized(1)).transaction_id == 1
    assert log.groups == [[1]]


class Steps(Log):
    """A log whose commits each wait for a step."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = threading.Semaphore(0)

    def commit(self, group: list[Ticket]) -> None:
        assert self.steps.acquire(timeout=_WAIT_SECONDS)
        super().commit(group)


def started(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def until(ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _WAIT_SECONDS
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_who_is_done_does_not_wait_for_the_next_group() -> None:
    """Else half of the threads miss the group after it, and so on."""
    log = Steps()
    commits = GroupCommit(log.commit)
    first = started(lambda: commits.submit(Sized(0)))
    until(lambda: commits._lead.locked() and not commits.waiting())
    second = [started(lambda i=i: commits.submit(Sized(i))) for i in (1, 2, 3)]  # type: ignore[misc]
    until(lambda: commits.waiting() == 3)
    log.steps.release()
    first.join(_WAIT_SECONDS)
    until(lambda: not commits.waiting())  # one of the three leads them
    last = started(lambda: commits.submit(Sized(4)))
    until(lambda: commits.waiting() == 1)
    log.steps.release()
    for thread in second:
        thread.join(_WAIT_SECONDS)
        assert not thread.is_alive(), "the last one's commit has not begun to end"
    assert last.is_alive()
    log.steps.release()
    last.join(_WAIT_SECONDS)
    assert [sorted(g) for g in log.groups] == [[0], [1, 2, 3], [4]]


class Patient(Log):
    """A log whose commits take as long as the clock of the test says, which a wait moves once somebody has gone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.now = 0.0
        self.has_gone = threading.Event()
        replace_in(monkeypatch, group_commit, "time", monotonic=lambda: self.now)
        real = Ticket.wait

        def wait(ticket: Ticket, timeout_seconds: float) -> None:
            real(ticket, 0.01)
            self.now += timeout_seconds if self.has_gone.is_set() else 0.0

        monkeypatch.setattr(Ticket, "wait", wait)

    def commit(self, group: list[Ticket]) -> None:
        self.now += 1.0
        super().commit(group)


def test_threads_that_commit_over_and_over_share_every_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Patient(monkeypatch)
    commits = GroupCommit(log.commit)
    log.may_go.clear()

    def work() -> None:
        for i in range(10):
            commits.submit(Sized(i))
        log.has_gone.set()

    threads = [started(work) for _ in range(3)]
    until(lambda: commits.waiting() == 2)  # and one leads
    log.may_go.set()
    for thread in threads:
        thread.join(_WAIT_SECONDS)
    assert [len(group) for group in log.groups] == [1, *[3] * 9, 2], log.groups


def test_a_thread_that_does_not_come_again_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Alternating(monkeypatch)
    commits = GroupCommit(log.commit)
    commits.submit(Sized(0))
    assert log.waited == [], "a thread alone waits for nobody"
    started(lambda: commits.submit(Sized(1))).join(_WAIT_SECONDS)  # another thread, once
    assert log.waited == [0.5], "half as long as a commit takes"
    commits.submit(Sized(2))
    commits.submit(Sized(3))
    assert log.waited == [0.5]
    assert log.groups == [[0], [1], [2], [3]]


def test_a_commit_as_quick_as_memorys_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "_WORTH_WAITING_SECONDS", 10.0)
    monkeypatch.setattr(Ticket, "wait", lambda _, seconds: pytest.fail("it waited"))
    log = Log()
    commits = GroupCommit(log.commit)
    started(lambda: commits.submit(Sized(1))).join(_WAIT_SECONDS)
    commits.submit(Sized(2))
    assert log.groups == [[1], [2]]


def test_a_thread_that_was_interrupted_as_it_was_to_lead_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Steps()
    commits = GroupCommit(log.commit)
    monkeypatch.setattr(Ticket, "wake", lambda ticket: None)  # it is lost
    first = started(lambda: commits.submit(Sized(0)))
    until(lambda: commits._lead.locked() and not commits.waiting())
    second = started(lambda: commits.submit(Sized(1)))
    until(lambda: commits.waiting() == 1)
    log.steps.release(2)
    first.join(_WAIT_SECONDS)
    second.join(_WAIT_SECONDS)
    assert log.groups == [[0], [1]]


# ── errors and interrupts anywhere ──────────────────────────────────────────────────────────────


def test_who_came_meanwhile_is_woken_when_the_lead_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pause that heals an interrupt would be its latency."""
    monkeypatch.setattr(group_commit, "_HEALED_SECONDS", 3600.0)
    log, waits = Log(), threading.Event()
    commits, wait = GroupCommit(lambda group: commit(group)), Ticket.wait
    second = threading.Thread(target=commits.submit, args=(Sized(2),), daemon=True)

    def wait_seen(ticket: Ticket, timeout_seconds: float) -> None:
        waits.set()
        wait(ticket, timeout_seconds)

    def commit(group: list[Ticket]) -> None:
        if not log.groups:
            second.start()
            waits.wait(_WAIT_SECONDS)
        log.commit(group)

    monkeypatch.setattr(Ticket, "wait", wait_seen)
    commits.submit(Sized(1))
    second.join(_WAIT_SECONDS)
    assert log.groups == [[1], [2]]


def test_a_request_whose_size_cannot_be_told_fails_alone() -> None:
    class Unsized(Sized):
        def size_bytes(self) -> int:
            raise UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")

    log = Log()
    commits = GroupCommit(log.commit)
    with commits._lead:
        first = started(lambda: commits.submit(Sized(1)))
        until(lambda: commits.waiting() == 1)
        with pytest.raises(UnicodeEncodeError):
            commits.submit(Unsized(2))
        third = started(lambda: commits.submit(Sized(3)))
        until(lambda: commits.waiting() == 2)
    for thread in (first, third):
        thread.join(_WAIT_SECONDS)
        assert not thread.is_alive()
    assert sorted(i for group in log.groups for i in group) == [1, 3]


def outcome_of(commits: GroupCommit, request: Sized, outcomes: dict[int, object]) -> threading.Thread:
    """Submit a request in a thread and note what came of it."""

    def submit() -> None:
        try:
            outcomes[request.number] = commits.submit(request).transaction_id
        except BaseException as e:
            outcomes[request.number] = e

    return started(submit)


def test_an_interrupt_anywhere_in_a_commit_loses_no_request_and_commits_none_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not that of the thread that leads, nor those of others: each is committed once, or its thread is told."""
    monkeypatch.setattr(group_commit, "_HEALED_SECONDS", 0.005)
    place, hit = 0, True
    while hit:
        place += 1
        log = Log()
        commits = GroupCommit(log.commit)
        outcomes: dict[int, object] = {}
        commits._lead.acquire()
        others = [outcome_of(commits, Sized(i), outcomes) for i in (2, 3)]
        until(lambda commits=commits: commits.waiting() == 2)  # type: ignore[misc]

        def lead(commits: GroupCommit = commits, outcomes: dict[int, object] = outcomes) -> None:
            commits._lead.release()
            outcomes[1] = commits.submit(Sized(1)).transaction_id

        interrupts = Interrupts(place, "engine/group_commit.py")
        interrupts.run(lead)
        hit = interrupts.hit
        done = [i for group in log.groups for i in group]
        for thread in others:
            thread.join(_WAIT_SECONDS)
            assert not thread.is_alive(), f"interrupted at place {place}: a thread waits for ever"
        commits.submit(Sized(4))
        committed = [i for group in log.groups for i in group]
        assert len(committed) == len(set(committed)), f"interrupted at place {place}"
        assert (1 in committed) == (1 in done), f"interrupted at place {place}: committed behind the caller's back"
        for i in (2, 3):
            assert outcomes[i] == i or isinstance(outcomes[i], CommitOutcomeUnknownError), f"interrupted at {place}"
            assert i in committed or outcomes[i] != i
        assert not commits._queue and not commits._lead.locked() and not commits._mutex.locked()
    assert place > 40


def test_an_error_anywhere_in_a_commit_fails_what_was_begun_and_nobody_waits_forever() -> None:
    class Interrupted(BaseException):
        pass

    log = Log()
    commits = GroupCommit(log.commit)
    outcomes: dict[int, object] = {}
    log.failure = Interrupted()
    with commits._lead:
        others = [outcome_of(commits, Sized(i), outcomes) for i in (1, 2, 3)]
        until(lambda: commits.waiting() == 3)
    for thread in others:
        thread.join(_WAIT_SECONDS)
        assert not thread.is_alive()
    assert {type(e) for e in outcomes.values()} <= {Interrupted, CommitOutcomeUnknownError}
    log.failure = None
    assert commits.submit(Sized(4)).transaction_id == 4


class Alternating(Log):
    """A log whose commits take as long as the clock of the test says, which no wait moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.now = 0.0
        self.waited = list[float]()
        replace_in(monkeypatch, group_commit, "time", monotonic=lambda: self.now)
        real = Ticket.wait

        def wait(ticket: Ticket, timeout_seconds: float) -> None:
            self.waited.append(timeout_seconds)
            self.now += timeout_seconds
            real(ticket, 0)

        monkeypatch.setattr(Ticket, "wait", wait)

    def commit(self, group: list[Ticket]) -> None:
        self.now += 1.0
        super().commit(group)


def test_threads_that_never_meet_wait_for_each_other_ever_more_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Alternating(monkeypatch)
    commits = GroupCommit(log.commit)
    for i in range(1000):
        replace_in(monkeypatch, group_commit, "threading", get_ident=lambda i=i: i % 2)
        commits.submit(Sized(i))
    assert len(log.groups) == 1000
    assert len(log.waited) == 20, "after 0, 1, 3, 7, 15, 31, 63 and then always 64 commits"


def test_a_wait_that_brought_company_is_made_again_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Alternating(monkeypatch)
    commits = GroupCommit(log.commit)
    for i in range(9):
        replace_in(monkeypatch, group_commit, "threading", get_ident=lambda i=i: i % 2)
        commits.submit(Sized(i))
    assert commits._vain == 7
    commits._passed_over = 7
    company, quiet = Ticket(Sized(99)), Ticket.wait
    company.thread = 9

    def joined(ticket: Ticket, timeout_seconds: float) -> None:
        quiet(ticket, timeout_seconds)
        commits._queue.append(company)

    monkeypatch.setattr(Ticket, "wait", joined)
    replace_in(monkeypatch, group_commit, "threading", get_ident=lambda: 1)
    commits.submit(Sized(9))
    assert (log.groups[-1], commits._vain) == ([9, 99], 0)
