"""A process that was forked from one with a runtime of its own is refused, and no other is."""

from __future__ import annotations

import os

import pytest

from spillable_stream.objects import forked
from spillable_stream.objects.forked import begin_requests, is_orphan
from spillable_stream.objects.store import StoreError
from tests.support.forks import in_child


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what other tests of this process did."""
    monkeypatch.setattr(forked._State, "pid", 0)
    monkeypatch.setattr(forked._State, "is_orphan", False)


def is_refused() -> bool:
    try:
        begin_requests("s3://bucket/orders")
    except StoreError as e:
        return not e.may_have_happened and e.is_lasting and "forked" in str(e) and is_orphan()
    return False


def test_a_child_of_a_process_without_requests_is_as_any_other() -> None:
    in_child(lambda: not is_refused() and not is_refused() and not is_orphan())
    assert not is_refused()


def test_a_child_of_a_process_with_requests_is_refused_and_so_is_its_child() -> None:
    begin_requests("s3://bucket/orders")
    in_child(is_refused)
    in_child(lambda: in_child(is_refused))
    assert not is_refused() and not is_orphan()


def test_a_fork_that_python_did_not_see_is_known_by_the_process_id(monkeypatch: pytest.MonkeyPatch) -> None:
    begin_requests("s3://bucket/orders")
    monkeypatch.setattr(forked._State, "pid", os.getpid() + 1)
    assert is_refused()


def test_a_child_with_the_process_id_of_its_parent_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the first process of a new namespace of process IDs may be."""
    begin_requests("s3://bucket/orders")

    def as_the_parent() -> bool:
        monkeypatch.setattr(forked._State, "pid", os.getpid())
        return is_refused()

    in_child(as_the_parent)
