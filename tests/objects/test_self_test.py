"""The self-test: it finds each promise that a store breaks, and leaves nothing behind."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from textwrap import dedent
from typing import Any
from unittest import mock

import pytest

from spillable_stream.call_threads import CallThreads
from spillable_stream.errors import UnsafeStoreError
from spillable_stream.objects import self_test
from spillable_stream.objects.cloud_store import CloudStore
from spillable_stream.objects.directory_store import DirectoryStore
from spillable_stream.objects.location import Location
from spillable_stream.objects.self_test import FULL_RACES, check_store, one_test, require_sound
from spillable_stream.objects.store import Content, Store, StoreError
from tests.lab.size import sized
from tests.support import lying_store
from tests.support.faulty_store import Fault, FaultyStore, Request, at, once
from tests.support.memory_store import MemoryStore
from tests.support.servers.gcs_stub import GcsStub
from tests.support.servers.s3rver import S3RVER_ENVIRONMENT, s3rver_server

LIES = {
    lying_store.OverwritingStore: "told 8 of 8 writers",
    lying_store.LosingStore: "returns another object than the one that it said was created",
    lying_store.ForgetfulStore: "does not return an object that was just created",
    lying_store.StuckStore: "does not create an object that is not there",
    lying_store.RememberingStore: "does not return an object that was just created",
    lying_store.StaleStore: "returns an object as it was before it was replaced",
    lying_store.LateStore: "returns an object that was just deleted",
    lying_store.MixingStore: "returns other bytes of an object",
    lying_store.HidingStore: "does not list an object that was just created",
}


def test_a_sound_store_is_found_sound_and_left_as_it_was() -> None:
    store = MemoryStore()
    store.create("log/1", b"of somebody")
    verdict = check_store(store, races=20)
    assert verdict.sound and verdict.faults == ()
    assert (verdict.root, verdict.races, verdict.threads, verdict.winners) == (store.root, 20, 8, 1)
    assert store.objects == {"log/1": b"of somebody"}
    require_sound(store)


@pytest.mark.timeout(30)
def test_an_interrupt_ends_it_though_some_writers_wait_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    store, begin, begun = MemoryStore(), CallThreads.begin, list[object]()

    def interrupted(threads: CallThreads, call: Callable[[], Any]) -> Future[Any]:
        begun.append(call)
        if len(begun) == 3:
            raise KeyboardInterrupt
        return begin(threads, call)

    monkeypatch.setattr(CallThreads, "begin", interrupted)
    with pytest.raises(KeyboardInterrupt):
        check_store(store)
    assert store.objects == {}


@pytest.mark.timeout(30)
def test_where_a_process_can_have_two_threads_the_other_writers_come_after_them() -> None:
    start, started = threading.Thread.start, list[str]()

    def start_two(thread: threading.Thread) -> None:
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(thread.name)
        start(thread)

    with mock.patch.object(threading.Thread, "start", start_two):
        verdict = check_store(MemoryStore(), races=3)
    assert verdict.sound and len(started) == 2


def test_ctrl_c_ends_a_process_whose_store_has_no_answer_for_some_writers() -> None:
    program = """
        import os, signal, threading
        from spillable_stream.objects.self_test import check_store
        from tests.support.memory_store import MemoryStore

        class SilentStore(MemoryStore):
            def create(self, key, content):
                while content == b"0 of 8":
                    os.kill(os.getpid(), signal.SIGINT)  # again, if it came just before the main thread waits
                    threading.Event().wait(0.05)
                return super().create(key, content)

        def interrupt(*_):
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            raise KeyboardInterrupt

        signal.signal(signal.SIGINT, interrupt)
        try:
            check_store(SilentStore())
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """
    done = subprocess.run([sys.executable, "-c", dedent(program)], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted\n", "", 0)


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
def test_every_lie_is_found_and_named(lie: Callable[[], Store]) -> None:
    verdict = check_store(lie())
    assert not verdict.sound
    assert any(LIES[lie] in fault for fault in verdict.faults), verdict.faults
    with pytest.raises(UnsafeStoreError, match=r"is not safe for a channel: it .*; use another store"):
        require_sound(lie())


def test_a_store_with_several_winners_is_found_out_by_as_many_as_there_are() -> None:
    assert check_store(lying_store.OverwritingStore()).winners == 8


def test_a_conflict_with_which_nothing_was_stored_is_not_a_fault() -> None:
    """S3 answers 409 to one of two requests at once, or to both."""

    def schedule(request: Request) -> Fault | None:
        conflicts = 8 if request.key.endswith("-0001") else 1  # all of the first race
        return Fault.CONFLICT if request.kind == "create" and request.attempt <= conflicts else None

    verdict = check_store(FaultyStore(MemoryStore(), schedule), races=2)
    assert verdict.sound and verdict.winners == 1, verdict.faults


@pytest.mark.parametrize("kind", ["create", "get", "get_range", "replace", "delete", "list"])
def test_a_store_that_cannot_be_asked_is_not_judged(kind: str) -> None:
    store = FaultyStore(MemoryStore(), once(kind, Fault.REFUSED))  # type: ignore[arg-type]
    with pytest.raises(StoreError):
        require_sound(store)
    assert not store.inner.objects


def test_a_store_that_takes_one_change_of_an_object_a_second_is_sound(gcs: GcsStub) -> None:
    """Google's answers 429 to the others, whether there is an object or not."""
    gcs.write_seconds = 1.0
    verdict = check_store(CloudStore(Location("gs", "bucket", "orders")), races=2)
    assert verdict.sound and verdict.winners == 1, verdict.faults
    assert gcs.throttled and not gcs.objects


def test_a_store_that_has_created_the_object_and_says_that_it_is_asked_too_often_is_sound() -> None:
    class DoneAndLimited(MemoryStore):
        def create(self, key: str, data: Content) -> bool:
            if super().create(key, data):
                raise StoreError("429", is_limited=True)
            return False

    store = DoneAndLimited()
    assert check_store(store, races=2).sound and not store.objects


def test_a_store_that_is_asked_too_often_for_all_of_a_race_is_not_judged() -> None:
    def schedule(request: Request) -> Fault | None:
        return Fault.LIMITED if request.kind == "create" and request.key.endswith("-0001") else None

    store = FaultyStore(MemoryStore(), schedule)
    with pytest.raises(StoreError) as raised:
        check_store(store)
    assert raised.value.is_limited and not store.inner.objects


def test_a_store_that_went_away_is_not_asked_to_delete_all_that_was_created() -> None:
    def go_away(request: Request) -> Fault | None:
        return Fault.LOST if request.number > 40 else None

    store = FaultyStore(MemoryStore(), go_away)
    with pytest.raises(StoreError):
        check_store(store)
    assert store.counts["delete"] == 3, "one of them by a test"


def test_an_interrupt_does_not_wait_for_a_silent_store_to_delete_what_was_created(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(self_test, "_CLEAN_UP_SECONDS", 0.0)
    silence = threading.Event()

    def interrupt(request: Request) -> Fault | None:
        if request.kind == "create":
            raise KeyboardInterrupt
        silence.wait(60)
        return None

    store = FaultyStore(MemoryStore(), interrupt)
    with pytest.raises(KeyboardInterrupt):
        check_store(store)
    assert not silence.is_set()
    silence.set()


def test_whichever_request_fails_all_that_was_created_is_deleted() -> None:
    count = FaultyStore(MemoryStore())
    check_store(count, races=1, threads=1)
    failed = 0
    for request in count.requests:
        fault = Fault.LOST if request.kind in ("get", "get_range", "list") else Fault.ANSWER_LOST
        store = FaultyStore(MemoryStore(), at(request.number, fault))
        try:
            check_store(store, races=1, threads=1)
        except StoreError:
            failed += 1
        assert store.faults == {fault: 1} and not store.inner.objects
    assert failed == len(count.requests) - 4, "only the deletions at the end may fail unseen"


def test_a_store_that_lets_nobody_delete_has_one_object_more_and_the_error_names_it() -> None:
    inner = MemoryStore()
    with pytest.raises(StoreError) as raised:
        check_store(FaultyStore(inner, lambda request: Fault.REFUSED if request.kind == "delete" else None))
    (key,) = inner.objects
    assert key in str(raised.value)


def test_keys_are_of_this_check_alone() -> None:
    store = FaultyStore(MemoryStore())
    check_store(store, races=1)
    check_store(store, races=1)
    keys = {request.key for request in store.requests if request.kind == "create"}
    assert all(key.startswith("check/") for key in keys) and len(keys) == 2 * 4


def test_a_sound_store_is_one_test_in_a_block_and_any_other_each_time() -> None:
    store, other = FaultyStore(MemoryStore("s3://bucket/one")), FaultyStore(MemoryStore("s3://bucket/other"))
    with one_test():
        require_sound(store)
        asked = len(store.requests)
        require_sound(store)
        assert len(store.requests) == asked and not other.requests
        require_sound(other)
        assert other.requests
        for _ in range(2):
            with pytest.raises(UnsafeStoreError):
                require_sound(lying_store.StuckStore())
    require_sound(store)
    assert len(store.requests) == 2 * asked


@pytest.mark.crash
def test_a_store_is_sound_in_a_long_race(store: Store) -> None:
    verdict = check_store(store, races=sized(ci=50, full=FULL_RACES))
    assert verdict.sound and verdict.winners == 1, verdict.faults


def test_a_server_that_ignores_conditions_is_refused(
    tmp_path: Path, set_environment: Callable[[dict[str, str]], None]
) -> None:
    with s3rver_server(tmp_path, "bucket") as url:
        set_environment(S3RVER_ENVIRONMENT | {"AWS_ENDPOINT_URL": url})
        with pytest.raises(UnsafeStoreError, match="writers that they had created the same object"):
            require_sound(CloudStore(Location("s3", "bucket", "orders")))


# ── in a directory ──────────────────────────────────────────────────────────────────────────────


def test_a_directory_is_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "there" / "check").mkdir(parents=True)
    (tmp_path / "there" / "a file").touch()
    before = sorted(tmp_path.rglob("*"))
    for place in ("there", "missing/orders"):
        assert check_store(DirectoryStore(tmp_path / place), races=1).sound
        assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSPC])
def test_a_directory_that_is_refused_is_left_as_it_was(tmp_path: Path, number: int) -> None:
    with mock.patch("os.link", side_effect=OSError(number, os.strerror(number))), pytest.raises(StoreError):
        check_store(DirectoryStore(tmp_path / "missing" / "orders"), races=1)
    assert not list(tmp_path.iterdir())


def test_a_directory_that_is_tested_by_many_at_once_and_used_meanwhile_fails_none(tmp_path: Path) -> None:
    """Each removes directories that it made, which another may be about to use."""
    used = DirectoryStore(tmp_path / "missing" / "orders")

    def use(number: int) -> bool:
        if number % 2:
            return check_store(DirectoryStore(tmp_path / "missing" / "orders"), races=1, threads=2).sound
        return used.create(f"log/{number}", b"data")

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(use, range(40)))
    assert len(list(used.list(""))) == 20
