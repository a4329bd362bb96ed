"""Channels in an object store beside plain conditional PUTs of the same bytes, by the same client to the same store.

A store is an S3 that moto plays over the loopback interface, as it is or as late as a bucket in the same region, or a
dictionary that answers as late. One thread commits; or a thousand transactions are there at once, and go into one
append; or several handles commit, on a thread each, as hosts would: in one channel, or each in a channel of its own,
while one source reads all of them. A handle follows what another has appended, or opens the channel so many slots
behind its newest checkpoint.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from unittest import mock

import spillable_stream as ss
from benchmarks.events import Shape, event_batch
from benchmarks.ours import BATCHES
from benchmarks.rounds import Contestant, Figures, Group, Plan, rate
from demo.cluster.moto import S3_ENVIRONMENT, make_bucket, moto_server
from spillable_stream.channel.channel_set import ChannelSet
from spillable_stream.engine.append_plan import NOTHING_COMMITTED, CommitResult
from spillable_stream.engine.group_commit import Ticket
from spillable_stream.engine.requests import Request
from spillable_stream.engine.store import object_opening, object_plans
from spillable_stream.format.slot import HEADER_READ_BYTES
from spillable_stream.objects.location import Location
from spillable_stream.objects.open_store import open_store
from spillable_stream.objects.parallel import MOST_AT_ONCE, in_parallel
from spillable_stream.objects.slots import LOG, slot_key
from spillable_stream.objects.store import Content, Store
from spillable_stream.spark.schema import struct_type
from spillable_stream.spark.source.read_options import StreamOptions
from spillable_stream.spark.source.set_reader import SpillableSetReader
from tests.support.memory_store import MemoryStore

__all__ = [
    "CHANNELS",
    "COMMIT",
    "FLOOR",
    "FOLLOW",
    "GETS",
    "GROUPED_LOOPBACK",
    "GROUPED_REGION",
    "HANDLE",
    "OF_A_SHARE",
    "OPEN",
    "PROVEN",
    "SLOTS",
    "WRITERS",
    "WRITER_COUNTS",
    "behind",
    "groups",
    "loopback_name",
    "new_place",
    "region_name",
    "s3_place",
    "writers_name",
]

FLOOR = "conditional PUT of the same bytes"
PROVEN = "the same, and a small GET after each"
GETS = "GETs of the same slots"
HANDLE = "a handle"
COMMIT = "commit, ms"
OF_A_SHARE = "the least of its share, x"
GROUPED_LOOPBACK = "objects loopback, a group"
GROUPED_REGION = "objects region, a group"
WRITERS = "writers"
CHANNELS = "channels of a set"
FOLLOW = "following"
OPEN = "opening in a store"

SHAPES = (Shape(1_000, 100), Shape(100_000, 100), Shape(1, 100))
_PUT_SECONDS, _GET_SECONDS = 0.05, 0.02
_FAR_PART = 5.0  # of the plan's seconds: a commit takes 70 ms
_GROUPED_PART = 2.0
_GROUPED_TRANSACTIONS = 1_000
_SHARDED_PART = 16.0
_FAIR_PART = 240.0  # for much less, chance decides who is starved
_MOST_FAIR_SECONDS = 60.0
SLOTS = 1_000
WRITER_COUNTS = (1, 2, 4, 8)
_SHARDED = Shape(1_000, 100)
_TRIGGER_SECONDS = 1.0
_INLINE_BYTES = 64 << 20
_numbers = count(1)


def _in_the_region(store: Store) -> Store:
    """Return the store, whose answers now take as much longer as the way to a bucket in the same region."""

    def later(answer: Callable[..., object], seconds: float) -> Callable[..., object]:
        def asked(*args: object) -> object:
            time.sleep(seconds)
            return answer(*args)

        return asked

    for name, seconds in (("create", _PUT_SECONDS), ("get", _GET_SECONDS), ("get_range", _GET_SECONDS)):
        setattr(store, name, later(getattr(store, name), seconds))
    return store


class _Far(MemoryStore):
    """A dictionary whose answers take as long as those of a bucket in the same region, for small objects."""

    def create(self, key: str, data: Content) -> bool:
        time.sleep(_PUT_SECONDS)
        return super().create(key, data)

    def get(self, key: str) -> bytes:
        time.sleep(_GET_SECONDS)
        return super().get(key)

    def get_range(self, key: str, start: int, end: int) -> bytes:
        time.sleep(_GET_SECONDS)
        return super().get(key)[start:end]


def loopback_name(shape: Shape) -> str:
    """Return the name of a shape's group on a server of this machine."""
    return f"objects loopback {shape}"


def region_name(shape: Shape) -> str:
    """Return the name of a shape's group in a store as far away as a bucket in the same region."""
    return f"objects region {shape}"


def writers_name(writers: int) -> str:
    """Return what so many writers of one channel are called."""
    return f"{writers} {'writer' if writers == 1 else 'writers'}"


def behind(slots: int) -> str:
    """Return what an open is called whose newest checkpoint is so many slots old."""
    return f"{slots:,} slots behind"


def groups(plan: Plan, directory: Path) -> Iterator[Group]:
    """Yield the groups of every shape, then those of several writers."""
    with s3_place(directory) as location:
        near = "An S3 over the loopback interface"
        yield from _beside_puts(loopback_name, GROUPED_LOOPBACK, near, lambda: open_store(new_place(location)), plan)
        far = "The same S3 as far away as in the region, 50 ms more for a PUT and 20 ms for a GET"
        yield from _beside_puts(
            region_name, GROUPED_REGION, far, lambda: _in_the_region(open_store(new_place(location))), plan
        )
    contestants = {GETS: lambda _: _gets(), HANDLE: lambda _: _follow()}
    title = f"Following {SLOTS:,} slots in a store in the region, PUT 50 ms and GET 20 ms"
    yield Group(FOLLOW, title, "slots/s", GETS, contestants, 3)
    contestants = {behind(n): lambda _, n=n: _open(n) for n in (0, 100, SLOTS)}
    yield Group(OPEN, "Opening a channel in that region", "ms", "", contestants, 3)
    fair_seconds = min(plan.seconds * _FAIR_PART, _MOST_FAIR_SECONDS)
    contestants = {writers_name(n): lambda _, n=n: _writers(n, fair_seconds) for n in WRITER_COUNTS}
    title = f"Several writers of one channel in that region, {fair_seconds:.0f} s"
    yield Group(WRITERS, title, "commits/s", "1 writer", contestants, 3 if plan.full else 1)
    sharded_seconds = plan.seconds * _SHARDED_PART
    contestants = {
        f"{n} {'channel' if n == 1 else 'channels'}": lambda _, n=n: _sharded(n, sharded_seconds) for n in WRITER_COUNTS
    }
    title = f"A set of channels in that region, a writer each, a source with a batch a second: {_SHARDED}"
    yield Group(CHANNELS, title, "events/s", "1 channel", contestants, 2)


def _beside_puts(
    name: Callable[[Shape], str], grouped_name: str, where: str, make_store: Callable[[], Store], plan: Plan
) -> Iterator[Group]:
    """Yield the groups that are measured beside plain PUTs: one for each shape, and one of many transactions at once.

    Args:
        name: returns the name of a shape's group.
        grouped_name: that of the last one.
        where: what stores they are, for the titles.
        make_store: returns an empty one.
        plan: how much to measure.
    """

    def beside(name: str, what: str, data: bytes, events: int, ours: Callable[[Store], Figures], s: float) -> Group:
        contestants: dict[str, Contestant] = {
            FLOOR: lambda _: _plain(make_store(), data, events, s),
            PROVEN: lambda _: _plain(make_store(), data, events, s, proven=True),
            BATCHES: lambda _: ours(make_store()),
        }
        return Group(name, f"{where}: {what}", "events/s", FLOOR, contestants, 3)

    seconds = plan.seconds * _FAR_PART
    for shape in SHAPES:
        ours = partial(_channel, shape=shape, seconds=seconds)
        yield beside(name(shape), f"transactions of {shape}", _transaction(shape), shape.events, ours, seconds)
    seconds = plan.seconds * _GROUPED_PART
    data = _bytes_of(lambda channel: channel.engine().committer.commit_group(_waiting(channel)))
    ours = partial(_grouped, seconds=seconds)
    what = f"groups of {_GROUPED_TRANSACTIONS:,} transactions of 1 × 100 B"
    yield beside(grouped_name, what, data, _GROUPED_TRANSACTIONS, ours, seconds)


@contextmanager
def s3_place(directory: Path) -> Iterator[Location]:
    """Run an S3, and yield a place in a bucket of it."""
    with ExitStack() as stack:
        url = stack.enter_context(moto_server(directory))
        stack.callback((directory / "moto.log").unlink, missing_ok=True)
        stack.enter_context(mock.patch.dict(os.environ, {**S3_ENVIRONMENT, "AWS_ENDPOINT_URL": url}))
        make_bucket(url, "bucket")
        yield Location("s3", "bucket", "orders")


def new_place(location: Location) -> Location:
    return Location(location.scheme, location.bucket, f"{location.prefix}/{next(_numbers)}")


@contextmanager
def _opened(store: Store) -> Iterator[ss.Channel]:
    """Open the channel in a store, as one handle."""
    with mock.patch.object(object_opening, "open_store", lambda *_, **__: store):
        channel = ss.Channel(
            "s3://bucket/orders", commit_interval=0, max_inline_bytes=_INLINE_BYTES, transaction_capacity=1 << 20
        )
    with channel:
        yield channel


def _plain(store: Store, data: bytes, events: int, seconds: float, *, proven: bool = False) -> Figures:
    """Create the objects that a channel would; if ``proven``, read the beginning of the one before, as it does."""
    numbers = count(1)

    def put() -> int:
        number = next(numbers)
        assert store.create(slot_key(number), data)
        if proven and number > 1:
            store.get_range(slot_key(number - 1), 0, HEADER_READ_BYTES)
        return events

    return _rate(events, rate(put, seconds))


def _rate(events: int, events_a_second: float) -> Figures:
    """Return how fast commits of so many events are."""
    return {"put": events_a_second, COMMIT: 1000 * events / events_a_second}


def _bytes_of(append: Callable[[ss.Channel], object]) -> bytes:
    """Return the bytes of the slot that something appends to a new channel."""
    store = MemoryStore()
    with _opened(store) as channel:
        append(channel)
    return store.objects[slot_key(1)]


def _transaction(shape: Shape) -> bytes:
    """Return the bytes of a slot with one transaction."""

    def put(channel: ss.Channel) -> None:
        with channel.put_transaction() as tx:
            tx.put_batch(event_batch(channel.schema, shape))

    return _bytes_of(put)


def _channel(store: Store, shape: Shape, seconds: float) -> Figures:
    with _opened(store) as channel:
        batch = event_batch(channel.schema, shape)

        def put() -> int:
            with channel.put_transaction() as tx:
                tx.put_batch(batch)
            return shape.events

        return _rate(shape.events, rate(put, seconds))


def _grouped(store: Store, seconds: float) -> Figures:
    """Append groups. What each transaction does by itself, before it waits for its turn, is not measured."""
    spent_seconds, events = 0.0, 0
    with _opened(store) as channel:
        commit_group = channel.engine().committer.commit_group
        commit_group(_waiting(channel))
        while spent_seconds < seconds:
            tickets = _waiting(channel)
            began = time.perf_counter()
            commit_group(tickets)
            spent_seconds += time.perf_counter() - began
            assert all(ticket.done and ticket.error is None for ticket in tickets)
            events += len(tickets)
    return _rate(_GROUPED_TRANSACTIONS, events / spent_seconds)


def _waiting(channel: ss.Channel) -> list[Ticket]:
    """Return transactions of one event that wait for their commit, as those of so many threads would."""
    requests: list[Request] = []

    def keep(request: Request) -> CommitResult:
        requests.append(request)
        return NOTHING_COMMITTED

    with mock.patch.object(channel.engine().committer.group_commit, "submit", keep):
        for _ in range(_GROUPED_TRANSACTIONS):
            with channel.put_transaction() as tx:
                tx.put(ss.Event(b"x" * 100))
    return [Ticket(request) for request in requests]


def _with_slots(slots: int) -> _Far:
    """Return a store with a channel whose newest checkpoint is so many slots old."""
    far = _Far()
    with _opened(_near(far)) as channel:
        channel.checkpoint()
        _append(channel, slots)
        channel.close(checkpoint=False)
    return far


def _near(far: _Far) -> MemoryStore:
    """Return the store as somebody sees it who does not wait for it."""
    near = MemoryStore()
    near.objects = far.objects
    return near


def _append(channel: ss.Channel, slots: int) -> None:
    """Append slots with an event each, and create no checkpoint."""
    with mock.patch.object(channel.engine().checkpointing, "create_if_due"):
        for _ in range(slots):
            with channel.put_transaction() as tx:
                tx.put(ss.Event(b"x" * 100))


def _gets() -> Figures:
    """Read slots as fast as a handle might, which reads so many at once."""
    store = _with_slots(SLOTS)
    keys = sorted(key for key in store.objects if key.startswith(LOG))[-SLOTS:]
    began = time.perf_counter()
    for first in range(0, len(keys), MOST_AT_ONCE):
        in_parallel(store.root, [partial(store.get, key) for key in keys[first : first + MOST_AT_ONCE]])
    return {"read": len(keys) / (time.perf_counter() - began)}


def _follow() -> Figures:
    """Let a handle follow what another one has appended since its last look."""
    far = _with_slots(0)
    with _opened(far) as channel, _opened(_near(far)) as other:
        _append(other, SLOTS)
        began = time.perf_counter()
        channel.engine().follow()
        seconds = time.perf_counter() - began
        for handle in (channel, other):
            handle.close(checkpoint=False)
    return {"read": SLOTS / seconds}


def _open(slots: int) -> Figures:
    """Open a channel, read it up to its end, and close it."""
    store = _with_slots(slots)
    began = time.perf_counter()
    with _opened(store) as channel:
        seconds = time.perf_counter() - began
        channel.close(checkpoint=False)
    return {"open": 1000 * seconds}


def _writers(writers: int, seconds: float) -> Figures:
    """Let handles commit one event after the other, and return what they did, together and the least of one."""
    store, done, slowest = _Far(), [0] * writers, [0.0] * writers
    end = time.monotonic() + seconds
    with ExitStack() as stack:
        channels = [stack.enter_context(_opened(store)) for _ in range(writers)]

        def commit(number: int) -> None:
            while (began := time.monotonic()) < end:
                with channels[number].put_transaction() as tx:
                    tx.put(ss.Event(b"x" * 100))
                done[number] += 1
                slowest[number] = max(slowest[number], time.monotonic() - began)

        threads = [threading.Thread(target=commit, args=(number,)) for number in range(writers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return {
        "together": sum(done) / seconds,
        "the least of one": min(done) / seconds,
        OF_A_SHARE: min(done) * writers / max(sum(done), 1),
        "slowest commit, s": statistics.fmean(slowest),
    }


def _sharded(channels: int, seconds: float) -> Figures:
    """Let each channel have a writer, read all of them as Spark's source would, and return what went in and out."""
    stores: dict[str, _Far] = {}
    put, read = [0] * channels, 0
    places = [f"s3://bucket/orders-{number}" for number in range(channels)]

    def open_far(location: Location, *, has_answered: bool = False) -> Store:
        return stores.setdefault(str(location), _Far())

    with ExitStack() as stack:
        for module in (object_opening, object_plans):
            stack.enter_context(mock.patch.object(module, "open_store", open_far))
        opened = [stack.enter_context(ss.Channel(place, commit_interval=0)) for place in places]
        source = SpillableSetReader(ChannelSet(places), StreamOptions.of(), struct_type(opened[0].schema))
        stack.callback(source.stop)
        start = source.initialOffset()

        def write(number: int, end: float) -> None:
            batch = event_batch(opened[number].schema, _SHARDED)
            while time.monotonic() < end:
                with opened[number].put_transaction() as tx:
                    tx.put_batch(batch)
                put[number] += _SHARDED.events

        def read_a_batch() -> int:
            nonlocal start
            if (last := source.latestOffset(start)) == start:
                return 0
            found = [batch.num_rows for partition in source.partitions(start, last) for batch in source.read(partition)]
            source.commit(last)
            start = last
            return sum(found)

        write(0, time.monotonic() + 0.01)  # what is imported late is imported by now
        read_a_batch()
        put, end = [0] * channels, time.monotonic() + seconds
        threads = [threading.Thread(target=write, args=(number, end)) for number in range(channels)]
        for thread in threads:
            thread.start()
        while (began := time.monotonic()) < end:
            read += read_a_batch()
            time.sleep(max(0.0, min(began + _TRIGGER_SECONDS, end) - time.monotonic()))
        for thread in threads:
            thread.join()
    return {"put": sum(put) / seconds, "read meanwhile": read / seconds}
