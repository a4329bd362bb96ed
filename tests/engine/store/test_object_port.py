"""The port of a channel in an object store: each verb does what it says to the channel."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spillable_stream import Channel, Event, ProducerBusyError
from spillable_stream.engine.port import Put, SinkBatch
from spillable_stream.engine.store.object_engine import ObjectEngine
from spillable_stream.errors import StorageError
from spillable_stream.format.numbered_batch import BY_PRODUCER, NumberedBatch, Numbers
from tests.support.events import put, take
from tests.support.faulty_store import Fault
from tests.support.object_channels import URL, OwnersClock, kill, store_of
from tests.support.object_logs import frames_of

Open = Callable[..., Channel]


def engine_of(channel: Channel) -> ObjectEngine:
    engine = channel.engine()
    assert isinstance(engine, ObjectEngine)
    return engine


def test_its_place_is_its_uuid_and_its_address(open_handle: Open) -> None:
    channel, other, elsewhere = open_handle(), open_handle(), open_handle("s3://bucket/copy")
    assert channel.port().place() == other.port().place() == f"{channel.uuid} {URL}"
    assert elsewhere.port().place() != channel.port().place()


@pytest.mark.parametrize("adopted", [False, True])
def test_what_was_staged_is_discarded_unless_it_was_adopted(open_handle: Open, adopted: bool) -> None:
    channel = open_handle()
    port = channel.port()
    writer = port.plan_stage().begin("query", 1)
    writer.write(frames_of(b"x", b"y"))
    staged = writer.finish()
    if adopted:
        assert port.publish(Put([], [staged], SinkBatch("query", 1)), 0)
    port.discard([staged.name])
    port.end_staging("query", 1)
    assert (staged.name in store_of(channel).inner.objects) == adopted  # type: ignore[attr-defined]
    assert take(channel) == ([b"x", b"y"] if adopted else [])


def test_what_a_commit_adopted_whose_answer_never_came_is_not_discarded(open_handle: Open) -> None:
    channel = open_handle()
    port, store = channel.port(), store_of(channel)
    engine_of(channel).log._appending.backoff.timeout_seconds = 0
    writer = port.plan_stage().begin("query", 1)
    writer.write(frames_of(b"x"))
    staged = writer.finish()
    store.schedule = lambda r: {"create": Fault.ANSWER_LOST, "delete": None}.get(r.kind, Fault.UNAVAILABLE)
    with pytest.raises(StorageError):
        port.publish(Put([], [staged], SinkBatch("query", 1)), 0)
    store.schedule = None
    port.discard([staged.name])
    assert take(channel) == [b"x"]


def test_events_in_quarantine_are_not_missed(open_handle: Open) -> None:
    channel = open_handle()
    store_of(channel).inner.objects["quarantine/events-4-6/report.json"] = b""  # type: ignore[attr-defined]
    assert channel.port().not_quarantined([(1, 5)]) == [(1, 3)]


# ── producers ───────────────────────────────────────────────────────────────────────────────────


def test_producers_id_has_one_holder_until_it_is_released(open_handle: Open, owners_clock: OwnersClock) -> None:
    channel, other = open_handle(), open_handle()
    claim = channel.port().claim_producer("me")
    owners_clock.meanwhile = engine_of(channel).owners.answer_claims
    with pytest.raises(ProducerBusyError, match=f"the producer 'me' of {URL} is pid .* use another producer_id"):
        other.port().claim_producer("me")
    other.port().claim_producer("another").release()
    claim.release()
    slept = len(owners_clock.slept)
    other.port().claim_producer("me").release()
    assert len(owners_clock.slept) == slept


def test_the_id_of_a_producer_that_was_killed_is_free_after_10_seconds(
    open_handle: Open, owners_clock: OwnersClock
) -> None:
    channel, other = open_handle(), open_handle()
    claim = channel.port().claim_producer("me")  # kept: one that nobody in this process has is free at once
    claim.leave()
    kill(channel)
    other.port().claim_producer("me")
    assert 10 <= sum(owners_clock.slept) < 11


@pytest.mark.parametrize("is_released", [False, True])
def test_a_producer_whose_id_another_got_meanwhile_is_not_told_that_its_events_are_the_others(
    open_handle: Open, owners_clock: OwnersClock, is_released: bool
) -> None:
    """It was paused, and answered no claim. Both count on after the same number."""
    channel, other = open_handle(), open_handle()
    claims = {handle: handle.port().claim_producer("me") for handle in (channel, other)}

    def send(handle: Channel, body: bytes) -> None:
        with handle.put_transaction() as tx:
            tx.producer, tx.claim = NumberedBatch("me", Numbers(1, 1, BY_PRODUCER)), claims[handle]
            tx.put(Event(body))

    send(other, b"other")
    if is_released:
        claims[other].release()
    with pytest.raises(ProducerBusyError, match=r"this producer lost its ID 'me': .* Nothing was stored now; create"):
        send(channel, b"mine")
    assert take(channel) == [b"other"]


def test_a_producers_id_is_not_a_group(open_handle: Open) -> None:
    channel = open_handle()
    channel.port().claim_producer("me")
    assert channel.stats().groups == {}
    put(channel, b"0")
    take(channel)
    assert channel.engine().state.floor == 2
