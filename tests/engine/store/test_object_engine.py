"""A channel in an object store as one process uses it: what it has in its own way."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from random import Random

import pytest

from spillable_stream import Channel, ChannelFullError, Event
from spillable_stream.engine.port import Put, SinkBatch
from spillable_stream.engine.requests import Control
from spillable_stream.engine.store import last_requests
from spillable_stream.engine.store.object_engine import ObjectEngine
from spillable_stream.errors import ChannelClosedError, OptionError, StorageError
from spillable_stream.format.frame import FrameType
from spillable_stream.format.record import TrimRecord
from spillable_stream.objects.slots import slot_key
from tests.support.events import numbered, peek, put, take
from tests.support.faulty_store import Request
from tests.support.object_channels import store_of
from tests.support.object_logs import frames_of
from tests.support.store_limits import SetLimits
from tests.support.waiting import wait_until

Open = Callable[..., Channel]


def engine_of(channel: Channel) -> ObjectEngine:
    engine = channel.engine()
    assert isinstance(engine, ObjectEngine)
    return engine


def staged(channel: Channel, batch_id: int) -> Put:
    writer = channel.port().plan_stage().begin("query", batch_id)
    writer.write(frames_of(b"%d" % batch_id))
    return Put([], [writer.finish()], SinkBatch("query", batch_id))  # type: ignore[list-item]


def trim(channel: Channel, births: int) -> None:
    """Say that segments begun before a slot may be gone."""
    channel.engine().commit(Control(FrameType.TRIM, TrimRecord(through=-1, births=births, deleted=-1)))


def test_a_segment_that_a_collector_may_have_removed_is_not_adopted(open_handle: Open) -> None:
    channel = open_handle()
    put(channel, b"0")
    old = staged(channel, 1)
    put(channel, b"1")
    new = staged(channel, 2)
    trim(channel, births=2)
    with pytest.raises(
        StorageError, match="is older than staging_ttl, so it may be gone; nothing was committed: do the"
    ):
        channel.port().publish(old, 0)
    assert channel.port().publish(new, 0)
    assert peek(channel) == [b"0", b"1", b"2"]


def test_a_batch_that_is_there_is_told_as_done_however_old_its_segment_is(open_handle: Open) -> None:
    channel = open_handle()
    batch = staged(channel, 1)
    assert channel.port().publish(batch, 0)
    put(channel, b"x")
    trim(channel, births=2)
    assert not channel.port().publish(batch, 0)


def test_a_segment_of_a_name_that_no_writer_made_is_not_adopted(open_handle: Open) -> None:
    channel = open_handle()
    batch = staged(channel, 1)
    batch.segments = [
        ref.__class__("segments/elsewhere", ref.end, ref.count, ref.payload_bytes) for ref in batch.segments
    ]
    with pytest.raises(StorageError, match="nothing was committed"):
        channel.port().publish(batch, 0)


def test_a_large_transaction_is_one_object_that_its_commit_adopts(open_handle: Open) -> None:
    channel = open_handle(max_inline_bytes=100)
    put(channel, *[bytes(90)] * 5)
    (segment,) = channel.engine().state.blocks.segments()
    assert segment in store_of(channel).inner.objects  # type: ignore[attr-defined]
    assert take(open_handle()) == [bytes(90)] * 5


def test_a_full_channel_refuses_a_put_and_names_the_option(open_handle: Open) -> None:
    channel = open_handle(overflow_capacity=3, keep_alive=0)
    put(channel, *numbered(0, 3))
    with pytest.raises(ChannelFullError, match="raise overflow_capacity"):
        put(channel, b"3")
    take(channel, 1)
    put(channel, b"3")


def test_a_put_that_waits_for_room_finds_it_when_another_handle_has_taken(open_handle: Open) -> None:
    channel, other = open_handle(overflow_capacity=3, keep_alive=30), open_handle()
    put(channel, *numbered(0, 3))
    engine_of(channel).committer.poll_seconds = 0
    other.consumer("default")
    looks = list[int]()

    def take_at_the_third_look(request: Request) -> None:
        if request.kind == "get":
            looks.append(request.number)
            if len(looks) == 3:
                take(other, 2)

    store_of(channel).schedule = take_at_the_third_look  # type: ignore[assignment]
    put(channel, b"3", b"4")
    assert len(looks) >= 3
    assert take(other) == numbered(2, 3)


def test_what_is_there_is_counted(open_handle: Open) -> None:
    channel = open_handle(max_inline_bytes=500)
    put(channel, b"0")
    put(channel, bytes(1000))
    with channel.engine().snapshot() as state:
        counts = engine_of(channel).file_counts(state)
    assert (counts.data_files, counts.segments) == (2, 1)
    assert engine_of(channel).flush() == 0


def test_a_parked_handle_keeps_nobody_away_and_comes_back(open_handle: Open) -> None:
    channel, other = open_handle(), open_handle()
    channel.park()
    put(other, b"0")
    assert channel.resume()
    assert take(channel) == [b"0"]
    channel.close()
    assert not engine_is_open(channel)


def engine_is_open(channel: Channel) -> bool:
    try:
        return engine_of(channel).resume()
    except ChannelClosedError:
        return False


def test_options_change_for_all_handles_and_not_those_that_are_of_disks(open_handle: Open) -> None:
    channel, other = open_handle(), open_handle(keep_alive=7, commit_interval=50)
    assert channel.options["keep_alive"] == 7
    assert engine_of(channel).log.pace.interval_seconds == engine_of(other).log.pace.interval_seconds == 0.05
    with pytest.raises(OptionError, match="is for channels on a disk"):
        engine_of(channel).without_fixed({"data_dirs": ["/a"]})


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_clocks_that_are_years_apart_go_back_or_stop_cost_no_event_and_no_order(
    open_handle: Open, monkeypatch: pytest.MonkeyPatch, seed: int, set_limits: SetLimits
) -> None:
    """One clock is ten years slow and stands still, one is right, one is ten years fast; now and then one is set."""
    rng, clock, number = Random(seed), _Clock(), 0
    monkeypatch.setattr(time, "time_ns", lambda: clock.now_ns)
    monkeypatch.setattr(time, "time", lambda: clock.now_ns / 1e9)
    handles = [open_handle(gc_delay="1h", max_inline_bytes=700) for _ in range(3)]
    hosts = [clock.now_ns + years * _YEAR_NS for years in (-10, 0, 10)]
    taken: dict[str, list[Event]] = {f"group-{host}": [] for host in range(3)}
    set_limits(worth_a_trim=1, many_slots=2, quiet_seconds=0)
    for host, group in enumerate(taken):
        handles[host].consumer(group)
    for _ in range(150):
        host = rng.randrange(3)
        hosts[host] += rng.choice([0, 10**6]) if host else 0
        clock.now_ns = hosts[host]
        match rng.choice(["put", "put", "take", "checkpoint", "set"]):
            case "put":
                sizes = [rng.choice([1, 1000]) for _ in range(rng.randrange(1, 4))]
                put(handles[host], *(b"%d " % (number + i) + bytes(size) for i, size in enumerate(sizes)))
                number += len(sizes)
            case "take":
                taken[f"group-{host}"] += _taken(handles[host], f"group-{host}", 5)
            case "checkpoint":
                handles[host].checkpoint()
            case "set":
                hosts[host] += rng.choice([-1, 1]) * rng.choice([1, 3600, 10**8]) * 10**9
    assert slot_key(0) in store_of(handles[0]).inner.objects, "collected before an hour was over"  # type: ignore[attr-defined]
    for host, (group, events) in enumerate(taken.items()):
        events += _taken(handles[host], group, number)
        assert [int(event.body.split()[0]) for event in events] == list(range(number))
        assert [event.write_order_id for event in events] == list(range(1, number + 1))
        times = [event.timestamp for event in events]
        assert times == sorted(times), "a time went back"  # type: ignore[type-var]


_YEAR_NS = 365 * 86_400 * 10**9


class _Clock:
    """What the wall clock says of the host whose turn it is."""

    now_ns = time.time_ns()


def _taken(channel: Channel, group: str, limit: int) -> list[Event]:
    with channel.take_transaction(group) as tx:
        return tx.take_many(limit)


def test_a_close_writes_nothing_but_that_its_groups_are_nobodys(open_handle: Open) -> None:
    channel = open_handle()
    put(channel, b"0")
    take(channel)
    store_of(channel).forget_counts()
    store = store_of(channel)
    channel.close()
    channel.close()
    assert store.counts["create"] == 1
    assert store.counts.keys() <= {"create", "get", "get_range"}


# ── closing while the store is silent ───────────────────────────────────────────────────────────


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """What ends the silence of a store, for which no close waits long; it ends with the test."""
    monkeypatch.setattr(last_requests, "LAST_REQUEST_SECONDS", 0.05)
    ended = threading.Event()
    yield ended
    ended.set()


def fall_silent(channel: Channel, silence: threading.Event, until: Callable[[], object] = lambda: None) -> None:
    def wait(_: Request) -> None:
        until()
        silence.wait(60)

    store_of(channel).schedule = wait


def test_a_close_does_not_wait_for_a_silent_store_to_let_its_groups_go(
    open_handle: Open, silence: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    channel, other = open_handle(), open_handle()
    put(channel, b"0")
    for group in ("a", "b"):
        channel.consumer(group)
    fall_silent(channel, silence)
    channel.close()
    assert not silence.is_set()
    assert caplog.text.count("looks owned until it is claimed: the store does not answer") == 2
    silence.set()
    wait_until(lambda: "a" not in other.engine().follow().owners)


def test_a_close_creates_no_checkpoint_in_a_silent_store(
    open_handle: Open, silence: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    channel = open_handle()
    for number in range(20):
        put(channel, b"%d" % number)
    fall_silent(channel, silence)
    channel.close(checkpoint=True)
    assert not silence.is_set()
    assert "the store does not answer" in caplog.text


def test_a_close_does_not_wait_for_an_append_of_the_handle_that_has_no_answer(
    open_handle: Open, silence: threading.Event
) -> None:
    channel = open_handle()
    put(channel, b"0")
    engine, has_begun = engine_of(channel), threading.Event()
    fall_silent(channel, silence, has_begun.set)
    record = Control(FrameType.TRIM, TrimRecord(through=-1, births=0, deleted=-1))
    appending = threading.Thread(target=lambda: engine.appender.commit_alone(record))
    appending.start()
    assert has_begun.wait(60)
    channel.close()
    assert not silence.is_set()
    silence.set()
    appending.join(60)
    assert not appending.is_alive()
