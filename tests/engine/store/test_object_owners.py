"""Owners of groups in a log of objects: claims and answers, by a clock that only claimants' waiting moves."""

from __future__ import annotations

import itertools
import logging
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from spillable_stream import Channel, GroupOwnedError, OptionError, log_records
from spillable_stream.engine.group_changes import drop_of
from spillable_stream.engine.store import object_owners
from spillable_stream.engine.store.object_ownership import ANSWER_SECONDS
from tests.support import pythons
from tests.support.events import numbered, put, take
from tests.support.faulty_store import Fault, Request
from tests.support.interrupts import Interrupts
from tests.support.object_channels import (
    OwnersClock,
    epoch_of,
    kill,
    owners_of,
    store_of,
)
from tests.support.spools import without_threads

Open = Callable[..., Channel]
INTERRUPTED = (
    "/engine/store/object_owners.py",
    "/engine/store/object_ownership.py",
    "/channel/consumer.py",
    "/engine/appender.py",
)


# ── processes of the same host ──────────────────────────────────────────────────────────────────

PROGRAM = """
import sys
import spillable_stream as ss
channel = ss.Channel(sys.argv[1])
with channel.take_transaction("g") as tx:
    tx.take_many(1)
channel.take_transaction("g").begin()
print("owned", flush=True)
sys.stdin.readline()
"""


def test_a_group_whose_owner_was_killed_on_this_host_is_free_at_once(tmp_path: Path, owners_clock: OwnersClock) -> None:
    url = f"object+file://{tmp_path}/orders"
    with Channel(url, commit_interval=0) as channel:
        put(channel, *numbered(0, 3))
        command = [sys.executable, "-c", PROGRAM, url]
        with pythons.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
            assert owner.stdout is not None and owner.stdout.readline() == b"owned\n"
            channel.engine().follow()
            assert owners_of(channel).look("g").is_alive
            owner.kill()
        assert not owners_of(channel).look("g").is_alive
        assert take(channel, group="g") == numbered(1, 2)
        assert owners_clock.slept == []


# ── claims ──────────────────────────────────────────────────────────────────────────────────────


def test_an_owner_that_answers_keeps_its_group_and_the_claimant_is_told_whose_it_is(
    open_handle: Open, owners_clock: OwnersClock
) -> None:
    owner, other = open_handle(), open_handle()
    put(owner, *numbered(0, 3))
    consumer = owner.consumer("default")
    owners_clock.meanwhile = owners_of(owner).answer_claims
    with pytest.raises(GroupOwnedError, match="which answers; close its channel or stop it") as caught:
        other.consumer("default", owner_timeout_seconds=0)
    assert caught.value.owner == consumer.owner
    assert sum(owners_clock.slept) < ANSWER_SECONDS
    assert take(owner) == numbered(0, 3)


def test_a_claimant_waits_for_an_owner_that_lives_as_long_as_it_was_told_to(
    open_handle: Open, owners_clock: OwnersClock
) -> None:
    owner, other = open_handle(), open_handle()
    owner.consumer("default")
    owners_clock.meanwhile = owners_of(owner).answer_claims
    with pytest.raises(GroupOwnedError):
        other.consumer("default", owner_timeout_seconds=5000)
    assert 5000 <= sum(owners_clock.slept) < 10_000

    def leave_after_a_while() -> None:
        if len(owners_clock.slept) > count + 3:
            owner.close()
        else:
            owners_of(owner).answer_claims()

    count, owners_clock.meanwhile = len(owners_clock.slept), leave_after_a_while
    assert other.consumer("default", owner_timeout_seconds=5000).position() == 0


def test_a_group_whose_owner_does_not_answer_for_10_seconds_is_the_claimants(
    open_handle: Open, owners_clock: OwnersClock
) -> None:
    owner, other = open_handle(), open_handle()
    put(owner, *numbered(0, 3))
    owner.consumer("default")
    before = epoch_of(owner)
    assert take(other) == numbered(0, 3)
    assert ANSWER_SECONDS <= sum(owners_clock.slept) < ANSWER_SECONDS + 1
    assert epoch_of(owner) > before


def test_an_answer_has_all_of_its_time_though_the_claim_took_long_to_be_written(
    open_handle: Open, owners_clock: OwnersClock
) -> None:
    owner, other = open_handle(), open_handle()
    owner.consumer("default")

    def slow(request: Request) -> None:
        if request.kind == "create":
            owners_clock.now += 2 * ANSWER_SECONDS

    store_of(other).schedule = slow  # type: ignore[assignment]
    owners_clock.meanwhile = lambda: len(owners_clock.slept) > 5 and owners_of(owner).answer_claims()
    with pytest.raises(GroupOwnedError, match="which answers"):
        other.consumer("default", owner_timeout_seconds=0)


def kept_error(do: Callable[[], object], errors: list[BaseException]) -> None:
    try:
        do()
    except BaseException as e:
        errors.append(e)
        raise


def test_what_an_interrupt_leaves_owned_amid_a_first_take_is_nobodys_for_this_process(
    open_handle: Open, owners_clock: OwnersClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the group could not be taken from before its handle is closed, or for 10 s."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)  # of interrupts while something is freed
    channel = open_handle()
    channel.consumer("another")  # so that the event stays
    put(channel, b"0")
    errors = list[BaseException]()  # with what their tracebacks keep
    for number in itertools.count(1, 5):
        interrupts = Interrupts(number, *INTERRUPTED)
        interrupts.run(partial(kept_error, partial(channel.consumer, f"g{number}"), errors))
        assert take(channel, 1, f"g{number}") == [b"0"]
        if not interrupts.hit:
            break
    assert number > 50 and owners_clock.slept == []


def test_who_loses_a_race_for_a_dead_owners_group_has_to_claim_it_from_the_winner(
    open_handle: Open, owners_clock: OwnersClock
) -> None:
    dead, first, second = open_handle(), open_handle(), open_handle()
    put(dead, b"0")
    dead.consumer("default")
    kill(dead)

    def the_other_one_comes_first() -> None:
        owners_clock.meanwhile = lambda: None
        first.consumer("default")
        owners_clock.meanwhile = owners_of(first).answer_claims

    owners_clock.meanwhile = the_other_one_comes_first
    with pytest.raises(GroupOwnedError):
        second.consumer("default", owner_timeout_seconds=0)
    assert take(first) == [b"0"]


def test_of_two_that_own_a_group_at_once_the_second_in_the_log_finds_the_first(
    open_handle: Open, owners_clock: OwnersClock
) -> None:
    first, second = open_handle(), open_handle()

    def come_first(request: Request) -> None:
        if request.kind == "create" and "default" not in first._open.owned.consumers:
            first.consumer("default")

    store_of(second).schedule = come_first  # type: ignore[assignment]
    owners_clock.meanwhile = owners_of(first).answer_claims
    with pytest.raises(GroupOwnedError, match="which answers"):
        second.consumer("default", owner_timeout_seconds=0)
    assert first.consumer("default").prepare([]) > 0


def test_the_owners_thread_answers(
    open_handle: Open, owners_clock: OwnersClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_owners, "_LOOK_SECONDS", 0.001)
    owner, other = open_handle(), open_handle()
    owners, looked = owners_of(owner), threading.Semaphore(0)
    answer = owners.answer_claims
    monkeypatch.setattr(owners, "answer_claims", lambda: (answer(), looked.release()))

    def until_it_looked() -> None:
        """Wait for the end of a look that began after now."""
        while looked.acquire(blocking=False):
            pass
        for _ in range(2):
            assert looked.acquire(timeout=30)

    owner.consumer("default")
    owners_clock.meanwhile = until_it_looked
    with pytest.raises(GroupOwnedError, match="which answers"):
        other.consumer("default", owner_timeout_seconds=0)


def test_claims_that_cannot_be_answered_are_a_warning_a_minute(
    open_handle: Open, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_threads(monkeypatch)
    now = [1_000.0]
    monkeypatch.setattr(log_records, "time", SimpleNamespace(monotonic=lambda: now[0]))
    owner = open_handle()
    owner.consumer("default")
    store_of(owner).schedule = lambda request: Fault.REFUSED
    for _ in range(61):
        assert owners_of(owner).run_once()
        now[0] += 1
    assert caplog.text.count("s3://bucket/orders: a claim could not be answered now: ") == 2
    store_of(owner).schedule = None


def test_a_handle_that_owns_nothing_asks_for_nothing_and_has_no_thread(
    open_handle: Open, owners_clock: OwnersClock
) -> None:
    others = set(threading.enumerate())  # handles that other tests have killed may have threads yet

    def names() -> list[str]:
        return [t.name for t in threading.enumerate() if t not in others and t.name == "spillable owner"]

    channel = open_handle()
    put(channel, b"0")
    store = store_of(channel)
    store.forget_counts()
    assert not owners_of(channel).answer_claims()
    assert store.requests == []
    assert names() == []
    channel.consumer("default")
    assert names() == ["spillable owner"]
    channel.close()
    assert names() == []


# ── giving up ───────────────────────────────────────────────────────────────────────────────────


def test_a_group_of_a_closed_handle_is_nobodys_at_once(open_handle: Open, owners_clock: OwnersClock) -> None:
    owner, other = open_handle(), open_handle()
    put(owner, b"0")
    owner.consumer("default")
    owner.close()
    other.engine().follow()
    assert not owners_of(other).look("default").is_alive
    assert take(other) == [b"0"]
    assert owners_clock.slept == []


def test_a_close_that_cannot_give_up_says_so_and_the_group_has_to_be_claimed(
    open_handle: Open, owners_clock: OwnersClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, other = open_handle(), open_handle()
    put(owner, b"0")
    owner.consumer("default")
    monkeypatch.setattr(object_owners, "process_name", lambda: "another process than the owner's")
    store_of(owner).schedule = lambda request: Fault.REFUSED
    with caplog.at_level(logging.WARNING):
        owner.close()
    assert "the group 'default' looks owned until it is claimed" in caplog.text
    assert owners_of(other).look("default").is_alive
    assert take(other) == [b"0"]
    assert sum(owners_clock.slept) >= ANSWER_SECONDS


def test_what_a_former_owner_gives_up_is_not_the_new_ones(open_handle: Open, owners_clock: OwnersClock) -> None:
    owner, other = open_handle(), open_handle()
    owner.consumer("default")
    other.consumer("default")
    owner.close()
    assert owners_of(other).look("default").is_alive
    assert other.consumer("default").position() == 0


# ── changing a group that nobody owns ───────────────────────────────────────────────────────────


def test_a_group_is_changed_while_it_has_no_other_owner(open_handle: Open, owners_clock: OwnersClock) -> None:
    owner, other = open_handle(), open_handle()
    put(owner, *numbered(0, 3))
    take(owner)
    owners_clock.meanwhile = owners_of(owner).answer_claims
    with (
        pytest.raises(GroupOwnedError, match=r"stop it, or use another group, which .* too: close it first"),
        owners_of(other).without_owner("default", otherwise=": close it first"),
    ):
        pytest.fail("it has an owner")
    owner.close()
    with owners_of(other).without_owner("default") as held:
        held.require()
        assert owners_of(other).look("default").note.endswith(", to change it")
    assert not owners_of(other).look("default").is_alive


def test_a_claim_amid_a_change_is_answered_and_the_change_goes_through(
    open_handle: Open, owners_clock: OwnersClock
) -> None:
    changing, claimant = open_handle(), open_handle()
    put(changing, b"0")
    take(changing)
    changing.close()
    changing = open_handle()
    owners_clock.meanwhile = owners_of(changing).answer_claims
    with owners_of(changing).without_owner("default") as held:
        with pytest.raises(GroupOwnedError, match="which answers"):
            claimant.consumer("default", owner_timeout_seconds=0)
        held.require()
        assert held.note == "", "who owned it last is kept apart from what answers"


def test_a_drop_is_refused_where_the_group_was_taken_over_meanwhile(
    open_handle: Open, owners_clock: OwnersClock
) -> None:
    changing, other = open_handle(), open_handle()
    put(changing, b"0")
    changing.consumer("default").close()
    with owners_of(changing).without_owner("default") as held:
        drop = drop_of("default", changing.engine().state, held.require)
        assert take(other) == [b"0"], "the change had no answer for as long as a claim waits"
        with pytest.raises(GroupOwnedError, match="no more"):
            changing.engine().commit(drop)
    assert "default" in other.stats().groups


def test_a_group_that_is_missing_is_not_changed(open_handle: Open, owners_clock: OwnersClock) -> None:
    channel = open_handle()
    before = channel.engine().log.position()
    with (
        pytest.raises(OptionError, match=r"has no group 'g', nor any other: the first take"),
        owners_of(channel).without_owner("g"),
    ):
        pytest.fail("there is no such group")
    assert channel.engine().log.position() == before
