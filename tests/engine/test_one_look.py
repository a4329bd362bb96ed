"""One look at a log in a store serves a whole call: what is shared, with whom, and until when."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable
from contextvars import copy_context
from functools import partial

import pytest

from spillable_stream import Channel
from spillable_stream.engine.one_look import has_looked, look_again, one_look, record_look
from tests.support.events import put
from tests.support.interrupts import Interrupts
from tests.support.object_channels import store_of

Open = Callable[..., Channel]


def looks(channel: Channel) -> int:
    """Return how often the end of the log was asked for since it was asked last."""
    store = store_of(channel)
    count = store.counts["get"]
    store.forget_counts()
    return count


def see(channel: Channel) -> int:
    """Look at the state in each of the two ways, and return the last event's ID."""
    engine = channel.engine()
    engine.follow()
    with engine.snapshot() as state:
        return state.last_id


@pytest.fixture
def channel(open_handle: Open) -> Channel:
    channel = open_handle()
    put(channel, b"0")
    looks(channel)
    return channel


def test_a_block_looks_once_and_each_block_anew(channel: Channel) -> None:
    for _ in range(2):
        with one_look():
            see(channel)
            with one_look():
                see(channel)
            see(channel)
        assert looks(channel) == 1
    see(channel)
    assert looks(channel) == 2


def test_a_block_sees_what_its_handle_commits_and_the_next_one_what_others_did(
    channel: Channel, open_handle: Open
) -> None:
    other = open_handle()
    with one_look():
        assert see(channel) == 1
        put(other, b"1")
        assert see(channel) == 1, "another look was paid for"
        put(channel, b"2")
        assert see(channel) == 3
        put(other, b"3")
    with one_look():
        assert see(channel) == 4


def test_a_wait_looks_again_and_again(channel: Channel, open_handle: Open) -> None:
    other, seen = open_handle(poll_interval=100), list[int]()
    with one_look():
        see(channel)

        def is_there(state: object) -> bool:
            seen.append(see(channel))
            if len(seen) == 2:
                put(other, b"1")
            return seen[-1] == 2

        assert channel.engine().wait_for(is_there, 60)
    assert seen == [1, 1, 2]


def test_a_look_that_failed_is_none(channel: Channel) -> None:
    engine, key = channel.engine(), object()
    with one_look():
        record_look(key)
        look_again(key)
        assert not has_looked(key)
        assert not has_looked(engine.follower)
    record_look(key)
    assert not has_looked(key), "there is no block"


def test_opening_a_channel_is_a_look(channel: Channel, open_handle: Open) -> None:
    with one_look():
        other = open_handle()
        looks(other)
        see(other)
        assert looks(other) == 0


def test_threads_in_a_copy_of_the_context_share_the_look_until_the_block_ends(channel: Channel) -> None:
    found = list[bool]()

    def in_thread(run: Callable[[Callable[[], object]], object]) -> None:
        thread = threading.Thread(target=run, args=(lambda: found.append(has_looked(channel.engine().follower)),))
        thread.start()
        thread.join()

    with one_look():
        see(channel)
        context = copy_context()
        in_thread(context.run)
        in_thread(lambda call: call())
    in_thread(context.run)
    assert found == [True, False, False]


@pytest.mark.parametrize("call", [lambda c, g: c.consumer(g), lambda c, g: c.seek("read", "earliest")])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_a_call_that_an_interrupt_ends_leaves_no_block_though_its_error_is_kept(
    channel: Channel,
    call: Callable[[Channel, str], object],
    error: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An interactive session keeps it. Its thread would never look at the log again, and see no event of others."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)  # of interrupts while something is freed
    channel.consumer("read")
    kept = list[BaseException]()

    def keep(number: int) -> None:
        try:
            call(channel, f"g{number}")
        except error as e:
            kept.append(e)
            raise

    for number in itertools.count(1):
        interrupts = Interrupts(number, "engine/one_look.py", "/contextlib.py", error=error)
        interrupts.run(partial(keep, number))
        key = object()
        record_look(key)
        assert not has_looked(key), number
        if not interrupts.hit:
            break
    assert len(kept) == number - 1 > 5
