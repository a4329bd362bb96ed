from __future__ import annotations

import threading
import time
from dataclasses import dataclass

import pytest

from spillable_stream.channel import group_commit
from spillable_stream.channel.group_commit import GroupCommit, Ticket
from spillable_stream.channel.requests import Committed, Request


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
        self.may_go.wait(30)
        if self.failure:
            raise self.failure
        self.groups.append([t.request.number for t in group])  # type: ignore[attr-defined]
        for ticket in group:
            ticket.result, ticket.done = Committed(ticket.request.number), True  # type: ignore[attr-defined]


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
    waited = threading.Thread(target=lambda: commits._withdraw(ticket))
    waited.start()
    waited.join(0.05)
    assert waited.is_alive()
    log.may_go.set()
    waited.join(30)
    assert not waited.is_alive() and log.groups == [[1]]
    leader.join()
