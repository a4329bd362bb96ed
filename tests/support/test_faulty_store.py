"""The store that fails: each fault does what it says, and a schedule says the same each time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spillable_stream.objects.store import StoreError
from tests.support.faulty_store import APPLICABLE, Fault, FaultyStore, Request, at, once, seeded
from tests.support.memory_store import MemoryStore

INNER = MemoryStore


def faulty(fault: Fault, kind: str) -> FaultyStore:
    store = FaultyStore(INNER(), once(kind, fault))  # type: ignore[arg-type]
    store.inner.create("there", b"0123456789")
    return store


def ask(store: FaultyStore, kind: str) -> object:
    def upload() -> None:
        upload = store.upload("new")
        upload.write(b"parts")
        upload.finish()

    calls: dict[str, Callable[[], object]] = {
        "create": lambda: store.create("new", b"data"),
        "replace": lambda: store.replace("there", b"data"),
        "upload": upload,
        "write": upload,
        "finish": upload,
        "get": lambda: store.get("there"),
        "get_range": lambda: store.get_range("there", 2, 8),
        "delete": lambda: store.delete("there"),
        "list": lambda: list(store.list("")),
    }
    return calls[kind]()


ALL = [(kind, fault) for kind, faults in APPLICABLE.items() for fault in faults]


@pytest.mark.parametrize(("kind", "fault"), ALL, ids=lambda x: getattr(x, "name", x))
def test_every_fault_of_every_kind_is_told_as_it_says(kind: str, fault: Fault) -> None:
    store = faulty(fault, kind)
    is_told = fault in (Fault.AGAIN, Fault.RETRIED, Fault.CONFLICT, Fault.SHORT)
    if is_told:
        ask(store, kind)
    else:
        with pytest.raises(StoreError) as raised:
            ask(store, kind)
        assert raised.value.may_have_happened is (fault is not Fault.REFUSED)
    assert store.faults == {fault: 1}
    ask(store, "list")
    store.release()
    assert not store.held


@pytest.mark.parametrize("kind", ["create", "replace", "delete", "finish"])
def test_what_is_done_late_is_done_at_the_release(kind: str) -> None:
    store = faulty(Fault.LATE, kind)
    before = dict(store.inner.objects)
    with pytest.raises(StoreError):
        ask(store, kind)
    assert store.inner.objects == before
    assert store.release() == 1 and store.inner.objects != before
    assert store.release() == 0


def test_what_is_done_late_may_be_done_after_more_requests() -> None:
    store = FaultyStore(INNER(), once("create", Fault.LATE), late_by=lambda request: 2)
    with pytest.raises(StoreError):
        store.create("new", b"late")
    assert list(store.list("")) == []
    assert [info.key for info in store.list("")] == ["new"]


def test_what_is_late_may_arrive_in_any_order() -> None:
    store = FaultyStore(INNER(), lambda request: Fault.LATE if request.kind == "create" else None)
    for data in (b"first", b"second"):
        with pytest.raises(StoreError):
            store.create("new", data)
    assert store.release(1) == 1 and store.release(0) == 1
    assert store.get("new") == b"second"


def test_done_and_told_otherwise_is_done() -> None:
    for fault, told in ((Fault.ANSWER_LOST, None), (Fault.RETRIED, False)):
        store = faulty(fault, "create")
        if told is None:
            with pytest.raises(StoreError):
                ask(store, "create")
        else:
            assert ask(store, "create") is told
        assert store.inner.objects["new"] == b"data"


def test_a_conflict_and_a_503_store_nothing() -> None:
    store = faulty(Fault.CONFLICT, "create")
    assert ask(store, "create") is False and "new" not in store.inner.objects
    store = faulty(Fault.UNAVAILABLE, "create")
    with pytest.raises(StoreError):
        ask(store, "create")
    assert "new" not in store.inner.objects


def test_a_request_that_arrives_twice_is_done_twice() -> None:
    store = faulty(Fault.AGAIN, "create")
    assert ask(store, "create") is True
    store.delete("new")
    store.release()
    assert store.get("new") == b"data"


def test_a_short_body_lacks_its_end_and_a_broken_listing_too() -> None:
    assert ask(faulty(Fault.SHORT, "get"), "get") == b"01234"
    assert ask(faulty(Fault.SHORT, "get_range"), "get_range") == b"234"
    store = FaultyStore(INNER(), once("list", Fault.ANSWER_LOST))
    for n in range(4):
        store.create(f"log/{n}", b"")
    found = []
    with pytest.raises(StoreError):
        for info in store.list("log/"):
            found.append(info.key)
    assert len(found) == 2


def test_requests_are_counted_by_kind_and_have_numbers_and_attempts() -> None:
    store = FaultyStore(INNER())
    for kind in ("create", "create", "get", "list", "upload"):
        ask(store, kind) if kind != "get" else store.get("new")
    assert store.counts == {"create": 2, "get": 1, "list": 1, "upload": 1, "write": 1, "finish": 1}
    assert store.requests[1] == Request(2, "create", "new", 2)
    store.forget_counts()
    store.get("new")
    assert store.counts == {"get": 1} and store.requests == [Request(8, "get", "new", 2)]


def test_the_nth_request_can_be_chosen() -> None:
    store = FaultyStore(INNER(), at(3, Fault.LOST))
    store.create("a", b"")
    store.get("a")
    with pytest.raises(StoreError):
        store.get("a")
    store.get("a")


def test_a_seed_says_the_same_whatever_the_order_of_requests() -> None:
    requests = [Request(0, kind, f"log/{n}", 1) for kind in APPLICABLE for n in range(40)]
    one, other = seeded(7, 0.4), seeded(7, 0.4)
    faults = [one(request) for request in requests]
    assert faults == [other(request._replace(number=i)) for i, request in reversed([*enumerate(requests)])][::-1]
    assert 0.3 < sum(fault is not None for fault in faults) / len(faults) < 0.5
    assert set(faults) - {None} == set(Fault)
    assert faults != [seeded(8, 0.4)(request) for request in requests]
    assert {seeded(7, 1, [Fault.LOST])(request) for request in requests} == {Fault.LOST}


def test_somebody_may_come_in_before_a_request_and_after_it() -> None:
    inner, told = INNER(), []

    def before(request: Request) -> None:
        told.append("before")
        inner.create("new", b"of another")

    store = FaultyStore(inner, before, after=lambda request: told.append("after"))
    assert store.create("new", b"own") is False
    assert told == ["before", "after"]


def test_a_fault_that_a_request_cannot_have_is_a_mistake_of_the_test() -> None:
    with pytest.raises(ValueError, match="CONFLICT"):
        FaultyStore(INNER(), lambda request: Fault.CONFLICT).get("new")
