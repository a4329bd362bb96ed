"""A process that is paused for longer than `gcDelay` between two requests of a call, at each of them in turn.

When it wakes, the slots are collected that its commit was planned on, so nobody can tell whether it counts. Where
nothing of the user's is at stake, the call does it again, and ends as if nothing had been.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

import pyarrow as pa
import pytest

from spillable_stream import Channel, CommitOutcomeUnknownError, Event, GroupOwnedError, StorageError
from spillable_stream.engine.port import Put, SinkBatch
from spillable_stream.format.batch import encode_batch
from spillable_stream.format.numbered_batch import NumberedBatch, Numbers
from spillable_stream.objects.slots import LOG
from tests.support.events import peek, put, take
from tests.support.faulty_store import Fault, Request
from tests.support.object_channels import URL, OwnersClock, collect_now, store_of
from tests.support.object_logs import FakeTime
from tests.support.store_limits import SetLimits

Open = Callable[..., Channel]
Call = Callable[[Channel], object]


def open_with_options(channel: Channel) -> None:
    channel.resume(keep_alive=7.0)
    assert channel.options["keep_alive"] == 7.0


def own_a_group(channel: Channel) -> None:
    consumer = channel.consumer("mine")
    assert consumer.prepare([]) > 0, "it is the owner"


def take_and_give_back(channel: Channel) -> None:
    with channel.take_transaction("mine") as tx:
        assert len(tx.take_many(1)) == 1
        tx.rollback()


def make_a_group(channel: Channel) -> None:
    channel.port().create_group("made", "latest")
    with channel.port().snapshot() as state:
        assert "made" in state.groups


def plan_and_end_batches(channel: Channel) -> None:
    consumer = channel.consumer("query")
    first = consumer.prepare([(1, 1)])
    second = consumer.prepare([(2, 2)], [([(1, 1)], first)])
    consumer.commit_all([([(2, 2)], second)])
    assert (consumer.position(), consumer.prepared()) == (2, {})


def roll_back(channel: Channel) -> None:
    consumer = channel.consumer("query")
    consumer.release([(1, 1)], consumer.prepare([(1, 1)]))
    assert consumer.prepared() == {}


def give_a_group_up(channel: Channel) -> None:
    channel.consumer("mine").close()
    del channel._open.owned.consumers["mine"]
    assert "mine" not in channel.engine().follow().owners


def seek(channel: Channel) -> None:
    channel.consumer("mine")
    assert channel.seek("mine", 2) == 2
    assert peek(channel, group="mine")[0] == b"second"


def drop_a_group(channel: Channel) -> None:
    channel.consumer("mine")
    channel.drop_group("mine")
    state = channel.engine().follow()
    assert "mine" not in state.groups
    assert "mine" not in state.owners


def commit_a_prepared_take(channel: Channel) -> None:
    consumer = channel.consumer("query")
    prepared = consumer.prepare([(1, 1)])
    assert consumer.commit([(1, 1)], prepared) == prepared
    assert (consumer.position(), consumer.prepared()) == (1, {})


def finish_what_another_handle_prepared(channel: Channel) -> None:
    consumer = channel.consumer("query")
    consumer.prepare([(1, 1)])
    channel.port().commit_through("query", 1, None)
    channel.engine().follow()
    assert (consumer.position(), consumer.prepared()) == (1, {})


def write_a_batch_of_a_query(channel: Channel) -> None:
    rows = pa.RecordBatch.from_pylist([{"headers": [], "body": b"of a query"}], channel.schema)
    for batch_id in (1, 1):
        channel.port().publish(Put(encode_batch(rows), sink=SinkBatch("query", batch_id)), 0)


def write_a_numbered_batch(channel: Channel) -> None:
    for _ in range(2):
        tx = channel.put_transaction()
        tx.producer = NumberedBatch("producer", Numbers(1, 1))
        with tx:
            tx.put(Event(b"of a producer"))


CALLS: list[Call] = [
    open_with_options,
    own_a_group,
    take_and_give_back,
    make_a_group,
    plan_and_end_batches,
    roll_back,
    give_a_group_up,
    drop_a_group,
    commit_a_prepared_take,
    finish_what_another_handle_prepared,
    seek,
    write_a_batch_of_a_query,
    write_a_numbered_batch,
    Channel.checkpoint,
    Channel.stats,
]


@contextmanager
def paused(open_handle: Open, url: str, at: int, *, after: bool) -> Iterator[tuple[Channel, list[int]]]:
    """Open a handle whose process is paused at one of its requests, while another handle works and collects.

    Args:
        open_handle: opens handles.
        url: where the channel is.
        at: the number of the request, of those for slots.
        after: whether the request is done before the pause.

    Yields:
        The handle, and a list that gets a number for each such request.
    """
    other = open_handle(url, retention_bytes=1 << 30, max_inline_bytes=0)  # so that no slot is needed for its events
    put(other, b"first", b"second")
    channel, requests = open_handle(url), list[int]()

    def pause(request: Request) -> None:
        if request.key.startswith(LOG):
            requests.append(request.number)
            if len(requests) == at:
                for number in range(4):
                    put(other, b"meanwhile %d" % number)
                collect_now(other)

    setattr(store_of(channel), "after" if after else "schedule", pause)
    yield channel, requests


@pytest.mark.usefixtures("owners_clock")
@pytest.mark.parametrize("step", [2, pytest.param(1, marks=pytest.mark.slow)])  # every other one
@pytest.mark.parametrize("after", [False, True], ids=["before a request", "after it"])
@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_a_pause_at_any_request_of_a_call_that_risks_nothing_is_no_error(
    open_handle: Open, call: Call, after: bool, step: int
) -> None:
    for at in count(1 + (after and step > 1), step):
        with paused(open_handle, f"{URL}-{at}", at, after=after) as (channel, requests):
            call(channel)
            if len(requests) < at:
                return
            channel.engine().follow()  # a put of the user's may not know that it slept
            put(channel, b"and the handle works")
            assert peek(channel, group="another")[-1] == b"and the handle works"
            channel.close()


@pytest.mark.parametrize("after", [False, True], ids=["before a request", "after it"])
def test_a_claim_is_made_again(open_handle: Open, owners_clock: OwnersClock, after: bool) -> None:
    for at in count(1):
        owner = open_handle(f"{URL}-{at}")
        owner.consumer("theirs")
        owners_clock.meanwhile = owner.engine().owners.answer_claims  # type: ignore[attr-defined]
        with paused(open_handle, f"{URL}-{at}", at, after=after) as (channel, requests):
            with pytest.raises(GroupOwnedError, match="which answers"):
                channel.consumer("theirs", 0)
            if len(requests) < at:
                return


def test_a_merge_of_events_that_were_taken_meanwhile_is_given_up(open_handle: Open, set_limits: SetLimits) -> None:
    channel, other = open_handle(), open_handle()
    merging = channel.engine().checkpointing.merging  # type: ignore[attr-defined]
    set_limits(many_slots=2, quiet_seconds=0)
    for number in range(4):
        put(channel, b"%d" % number)

    def take_and_collect(request: Request) -> None:
        if request.kind == "create" and request.key.startswith(LOG):
            store_of(channel).schedule = None
            take(other)
            collect_now(other)

    store_of(channel).schedule = take_and_collect  # type: ignore[assignment]
    assert not merging.merge()
    assert store_of(channel).schedule is None


@pytest.mark.usefixtures("owners_clock")
@pytest.mark.parametrize("after", [False, True], ids=["before a request", "after it"])
def test_what_is_the_users_is_never_done_twice_but_unknown(open_handle: Open, after: bool) -> None:
    unknown = 0
    for at in count(1):
        with paused(open_handle, f"{URL}-{at}", at, after=after) as (channel, requests):
            try:
                put(channel, b"mine")
            except CommitOutcomeUnknownError as e:
                unknown += 1
                assert e.is_lasting
            if len(requests) < at:
                break
            assert peek(channel).count(b"mine") <= 1
    assert unknown > 0


@pytest.mark.usefixtures("owners_clock")
@pytest.mark.parametrize("after", [False, True], ids=["before a request", "after it"])
def test_a_batch_that_may_be_stored_is_never_said_not_to_be(open_handle: Open, after: bool) -> None:
    """What was cut on a producer's last number is refused once it is stored: its own batch is there then."""
    unknown = 0
    for at in count(1):
        with paused(open_handle, f"{URL}-{at}", at, after=after) as (channel, requests):
            tx = channel.put_transaction()
            tx.producer, tx.follows = NumberedBatch("load", Numbers(1, 1)), 0
            try:
                with tx:
                    tx.put(Event(b"of a load"))
            except CommitOutcomeUnknownError:
                unknown += 1
            else:
                assert peek(channel).count(b"of a load") == 1
            if len(requests) < at:
                break
    assert unknown > 0


@pytest.mark.usefixtures("owners_clock")
@pytest.mark.parametrize("after", [False, True], ids=["before a request", "after it"])
def test_a_close_never_raises_after_a_pause(open_handle: Open, after: bool) -> None:
    for at in count(1):
        with paused(open_handle, f"{URL}-{at}", at, after=after) as (channel, requests):
            store = store_of(channel)
            schedule, store.schedule = store.schedule, None
            afterwards, store.after = store.after, lambda _: None
            take(channel, 1)
            channel.consumer("another")
            store.schedule, store.after = schedule, afterwards
            channel.close(checkpoint=True)
            if len(requests) < at:
                return


def test_a_commit_that_waits_for_the_outcome_of_another_ones_says_that_nothing_of_it_was_committed(
    open_handle: Open,
) -> None:
    channel = open_handle()
    put(channel, b"0")
    store, log = store_of(channel), channel.engine().log
    log._appending.backoff = FakeTime().backoff()  # type: ignore[attr-defined]
    store.schedule = lambda request: Fault.LATE if request.kind == "create" else None
    with pytest.raises(CommitOutcomeUnknownError):
        put(channel, b"unknown")
    with pytest.raises(StorageError, match=r"an earlier commit .* nothing of this one was committed") as raised:
        put(channel, b"never sent")
    assert not isinstance(raised.value, CommitOutcomeUnknownError)
    store.schedule = None
    store.release()
    put(channel, b"next")
    assert b"never sent" not in peek(channel)
