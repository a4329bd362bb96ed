"""What a transaction costs, counted rather than timed: system calls, bytes, Python calls and memory that stays.

A clock says as much of the machine as of the code. These counts are the same everywhere, so that what makes a
transaction dearer shows up here first.
"""

from __future__ import annotations

import dis
import gc
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import EnumType
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pyarrow as pa
import pytest

import spillable_stream as ss
from spillable_stream.engine.group_commit import Ticket
from spillable_stream.engine.put_request import Put
from spillable_stream.engine.requests import Control
from spillable_stream.format.batch import EVENT_SCHEMA, encode_batch
from spillable_stream.format.commit_record import CommitRecord
from spillable_stream.format.frame import FrameType as FrameKind
from spillable_stream.state import block_index
from spillable_stream.state.block import Block
from tests.support.fake_files import Call, FaultyFileSystem
from tests.support.object_channels import URL, stores_in_memory
from tests.support.opcodes import opcodes

Open = Callable[..., ss.Channel]

BODY_BYTES = 100
WARM_UP = 30
MEMORY = {"memory_capacity": 1_000_000, "byte_capacity": 1 << 28}


def batch(count: int, body_bytes: int = BODY_BYTES) -> pa.RecordBatch:
    headers = pa.array([[]] * count, EVENT_SCHEMA.field("headers").type)
    return pa.RecordBatch.from_arrays(
        [headers, pa.array([bytes(body_bytes)] * count, pa.binary())], schema=EVENT_SCHEMA
    )


def put(channel: ss.Channel, events: pa.RecordBatch) -> None:
    with channel.put_transaction() as tx:
        tx.put_batch(events)


def take(channel: ss.Channel, count: int, group: str = "default") -> None:
    with channel.take_transaction(group) as tx:
        table = tx.take_batch(count)
        assert table is not None and table.num_rows == count


def warm(channel: ss.Channel, events: pa.RecordBatch) -> None:
    """Let files be preallocated, mapped and opened; what comes once is not what a transaction costs."""
    large = batch(1, 3 << 20)  # so much is reserved behind two of them that the test does not come to the end of it
    for some in (large, large, *[events] * WARM_UP):
        put(channel, some)
        take(channel, some.num_rows)


@contextmanager
def calls_of(fs: FaultyFileSystem) -> Iterator[list[Call]]:
    """Collect the calls to the file system that are made inside."""
    found: list[Call] = []
    before = len(fs.calls)
    yield found
    found += fs.calls[before:]


def python_calls(work: Callable[[], None]) -> int:
    """Return how many Python functions are called."""
    count = 0

    def note(_: FrameType, event: str, __: Any) -> None:
        nonlocal count
        count += event == "call"

    gc.collect()
    gc.disable()  # what other tests left is not finalised meanwhile
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


def unpacking_calls(work: Callable[[], None]) -> int:
    """Return how many calls are made with ``*`` or ``**``."""
    name = "CALL_FUNCTION_EX"
    return opcodes(work, lambda code, _: {i.offset for i in dis.get_instructions(code) if i.opname == name})


def enum_lookups(work: Callable[[], None]) -> int:
    """Return how often a member of an enum is asked for as an attribute of its class."""
    return opcodes(work, lambda code, names: set(_enum_lookups_in(code, names)))


def _enum_lookups_in(code: CodeType, names: dict[str, object]) -> Iterator[int]:
    """Yield where code loads an attribute of a global that is an enum."""
    for before, instruction in pairwise(dis.get_instructions(code)):
        is_global = before.opname == "LOAD_GLOBAL" and isinstance(names.get(before.argval), EnumType)
        if is_global and instruction.opname == "LOAD_ATTR":
            yield instruction.offset


def leave_out_what_comes_with_time(channel: ss.Channel) -> None:
    """Let calls be those of transactions, however slow the machine is."""
    engine = channel.engine()
    engine.samples._due = float("inf")  # else one is due every second
    engine.samples.settle = lambda state: None  # else one is missing where nothing came for a second
    if not engine.follower.is_far:
        engine.log.lock._turns._nobody_until_ns = 1 << 63  # else it looks every other millisecond
        engine.room._look_at = float("inf")  # else a commit after a take looks at the space once a second


def log_end(channel: ss.Channel) -> int:
    return channel.engine().positions.disk.offset


# ── the disk tier ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("events", [1, 1_000])
def test_a_durable_put_is_one_write_and_one_sync(open_channel: Open, events: int) -> None:
    fs = FaultyFileSystem()
    channel = open_channel(fs=fs)
    warm(channel, batch(events))
    with calls_of(fs) as found:
        put(channel, batch(events))
    assert [call.name for call in found] == ["write", "sync"]


@pytest.mark.parametrize("events", [1, 1_000])
def test_a_durable_take_is_one_read_one_write_and_one_sync(open_channel: Open, events: int) -> None:
    fs = FaultyFileSystem()
    channel = open_channel(fs=fs)
    warm(channel, batch(events))
    put(channel, batch(events))
    with calls_of(fs) as found:
        take(channel, events)
    assert [call.name for call in found] == ["read", "write", "sync"]


def test_a_put_writes_its_events_and_little_more(open_channel: Open) -> None:
    """Of each event its body and two of Arrow's offsets; beside that some 600 bytes of frames and COMMIT."""
    channel = open_channel()
    warm(channel, batch(1_000))
    before = log_end(channel)
    put(channel, batch(1_000))
    assert log_end(channel) - before <= 1_000 * (BODY_BYTES + 8) + 700


def test_a_take_writes_no_more_for_many_events_than_for_one(open_channel: Open) -> None:
    sizes = []
    channel = open_channel()
    for events in (1, 1_000):
        warm(channel, batch(events))
        put(channel, batch(events))
        before = log_end(channel)
        take(channel, events)
        sizes.append(log_end(channel) - before)
    assert sizes[1] <= sizes[0] + 8 <= 300


@pytest.mark.parametrize(("events", "body_bytes", "most"), [(1_000, 100, 1.05), (100, 16 << 10, 1.01)])
def test_a_take_reads_its_events_once(open_channel: Open, events: int, body_bytes: int, most: float) -> None:
    fs = FaultyFileSystem()
    channel = open_channel(fs=fs, max_file_size=1 << 28)
    some = batch(events, body_bytes)
    warm(channel, some)
    before = log_end(channel)
    for _ in range(10):
        put(channel, some)
    written, fs.read_bytes = log_end(channel) - before, 0
    for _ in range(10):
        take(channel, events)
    assert fs.read_bytes <= most * written


@pytest.mark.parametrize("options", [{}, MEMORY], ids=["disk", "memory"])
def test_a_take_of_one_event_reads_little_of_a_backlog(open_channel: Open, options: dict[str, int]) -> None:
    """As much as the take before it, and no more than that whatever is behind."""
    fs = FaultyFileSystem()
    channel = open_channel(fs=fs, **options)
    for _ in range(200):
        put(channel, batch(1))
    take(channel, 1)
    before = fs.read_bytes
    for _ in range(10):
        take(channel, 1)
    assert fs.read_bytes - before <= 10 * 6_000


def test_nothing_is_read_of_what_is_preallocated_behind_the_log(open_channel: Open) -> None:
    """The kernel would read far ahead there, and make pages of all of it."""
    fs = FaultyFileSystem()
    channel = open_channel(fs=fs)
    follower = open_channel(fs=fs)
    warm(channel, batch(1))
    follower.stats()
    before, fs.read_bytes = log_end(channel), 0
    put(channel, batch(1))
    take(channel, 1)
    by_its_owner, fs.read_bytes = fs.read_bytes, 0
    follower.stats()
    assert by_its_owner <= log_end(channel) - before
    assert fs.read_bytes <= log_end(channel) - before


def test_a_hundred_channels_of_one_event_take_a_dozen_megabytes_of_disk(open_channel: Open, path: Path) -> None:
    """Beside their four directories, which take a block each on some file systems, and nothing on others."""
    channel = open_channel()
    put(channel, batch(1))
    channel.checkpoint()
    taken_bytes = sum(512 * found.stat().st_blocks for found in path.rglob("*") if found.is_file())
    assert 100 * taken_bytes < 12 << 20
    assert len([path, *(found for found in path.rglob("*") if found.is_dir())]) == 4


@contextmanager
def system_calls() -> Iterator[Counter[str]]:
    """Count the calls of this thread that read, write, sync or change files."""
    found: Counter[str] = Counter()
    me = threading.get_ident()  # threads that other tests left may use files, too

    def counted(name: str) -> Callable[..., object]:
        real = getattr(os, name)

        def call(*arguments: object, **more: object) -> object:
            found[name] += threading.get_ident() == me
            return real(*arguments, **more)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in ("pread", "preadv", "pwrite", "pwritev", "fdatasync", "fsync"):
            patch.setattr(os, name, counted(name))
        for name in ("posix_fallocate", "ftruncate", "open", "replace", "unlink"):
            patch.setattr(os, name, counted(name))
        yield found


def test_a_put_writes_its_events_once_and_the_head_twice(open_channel: Open) -> None:
    channel = open_channel()
    warm(channel, batch(1_000))
    with system_calls() as found:
        put(channel, batch(1_000))
    assert found.pop("pread") <= 3, "the head twice, and every other millisecond who waits for the lock"
    assert found == {"pwritev": 1, "fdatasync": 1, "pwrite": 2}


def test_puts_over_drained_files_allocate_nothing_and_cut_nothing_but_ends(open_channel: Open) -> None:
    """What makes a sync slow is new blocks, and new sizes: there are none in a steady state."""
    channel = open_channel(max_file_size=1 << 20, spare_bytes=4 << 20, checkpoint_interval=10**9)
    events, transactions = batch(1_000), 100

    def turn_over() -> None:
        put(channel, events)
        take(channel, 1_000)

    for _ in range(transactions):
        turn_over()
    before = channel.engine().positions.disk.file_id
    with system_calls() as found:
        for _ in range(transactions):
            turn_over()
    files = channel.engine().positions.disk.file_id - before
    assert files > 5
    assert found["posix_fallocate"] <= files, "of the little that a file is longer than its spare"
    assert found["ftruncate"] <= files
    assert found["unlink"] == 0
    assert found["pwritev"] == 2 * transactions + files


# ── both tiers ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("options", "work", "most"),
    [({}, "put", 145), ({}, "take", 215), (MEMORY, "put", 170), (MEMORY, "take", 238)],
    ids=["disk-put", "disk-take", "memory-put", "memory-take"],
)
def test_python_does_as_much_for_a_thousand_events_as_for_one(
    open_channel: Open, options: dict[str, int], work: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No loop over events: a transaction of Arrow batches costs the same calls whatever it holds."""
    monkeypatch.setattr(block_index, "_BLOCK_US", 1 << 60)  # however slow the machine is
    channel = open_channel(checkpoint_interval=10**9, **options)
    counts = []
    for events in (1, 1_000):
        warm(channel, batch(events))
        leave_out_what_comes_with_time(channel)
        both = python_calls(lambda n=events: put(channel, batch(n))), python_calls(lambda n=events: take(channel, n))
        counts.append(both[work == "take"])
    assert abs(counts[1] - counts[0]) <= 4
    assert counts[1] <= most


@pytest.mark.parametrize("options", [{}, MEMORY], ids=["disk", "memory"])
def test_a_transaction_makes_few_calls_whose_arguments_are_unpacked(
    open_channel: Open, options: dict[str, int]
) -> None:
    """Such a call takes Python five times as long. Left are a take's three."""
    channel, events = open_channel(checkpoint_interval=10**9, **options), batch(1)
    warm(channel, events)
    leave_out_what_comes_with_time(channel)
    assert unpacking_calls(lambda: put(channel, events)) == 0
    assert unpacking_calls(lambda: take(channel, 1)) <= 3


@pytest.mark.parametrize(("options", "most"), [({}, 20), (MEMORY, 32)], ids=["disk", "memory"])
def test_each_transaction_of_a_group_makes_few_calls_and_neither_a_block_nor_a_record_of_its_own(
    open_channel: Open, options: dict[str, int], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads that commit at once wait for all of them: their transactions are planned and applied one by one."""
    channel = open_channel(checkpoint_interval=10**9, **options)
    warm(channel, batch(1))
    require_cheap_groups(channel, most, monkeypatch)


@pytest.fixture
def far() -> Iterator[ss.Channel]:
    """Return a channel in a store."""
    with stores_in_memory(), ss.Channel(URL, commit_interval=0, checkpoint_interval=10**9) as channel:
        yield channel


def test_a_put_in_a_store_makes_few_calls_however_many_events_it_has(far: ss.Channel) -> None:
    put(far, batch(1))
    leave_out_what_comes_with_time(far)
    counts = [python_calls(lambda n=events: put(far, batch(n))) for events in (1, 1_000)]
    assert counts[1] <= counts[0] <= 184


def test_each_transaction_of_a_group_in_a_store_makes_few_calls(
    far: ss.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(far, batch(1))
    require_cheap_groups(far, 19, monkeypatch)


def require_cheap_groups(channel: ss.Channel, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if a transaction of a group makes more Python calls than that, or a block or a record of its own."""
    monkeypatch.setattr(block_index, "_BLOCK_US", 1 << 60)
    leave_out_what_comes_with_time(channel)
    commit_group, blocks, records = channel.engine().committer.commit_group, list[object](), list[object]()

    def noted(made: type, into: list[object]) -> Callable[..., None]:
        init = made.__init__  # type: ignore[misc]

        def noting(self: object, *args: object, **named: object) -> None:
            into.append(self)
            init(self, *args, **named)

        return noting

    def calls(transactions: int) -> int:
        frame = encode_batch(batch(1))
        tickets = [Ticket(Put(frame)) for _ in range(transactions)]
        count = python_calls(lambda: commit_group(tickets))
        assert all(ticket.done and ticket.error is None for ticket in tickets)
        return count

    calls(1)
    one, many = calls(1), calls(101)
    assert many - one <= 100 * most
    monkeypatch.setattr(Block, "__init__", noted(Block, blocks))
    monkeypatch.setattr(CommitRecord, "__init__", noted(CommitRecord, records))
    calls(100)
    assert len(blocks) <= 2 and len(records) == 1


@pytest.mark.parametrize("options", [{}, MEMORY], ids=["disk", "memory"])
def test_a_transaction_asks_no_enum_for_its_members(open_channel: Open, options: dict[str, int]) -> None:
    """CPython 3.11 takes a thousand instructions to find one, and a transaction asked for more than thirty."""
    channel, events = open_channel(checkpoint_interval=10**9, **options), batch(1)
    warm(channel, events)
    leave_out_what_comes_with_time(channel)
    assert enum_lookups(lambda: [kind for kind in FrameKind if kind is FrameKind.PUT] and None) == len(FrameKind)
    assert enum_lookups(lambda: put(channel, events)) == 0
    assert enum_lookups(lambda: take(channel, 1)) == 0


def test_a_put_that_fills_a_fifth_of_a_file_of_memory_costs_half_as_much_again(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file of the memory tier is begun, measured and freed, which large transactions pay for often."""
    monkeypatch.setattr(block_index, "_BLOCK_US", 1 << 60)
    channel, events = open_channel(checkpoint_interval=10**9, **MEMORY), batch(100, 16 << 10)
    for _ in range(3):
        warm(channel, events)
    leave_out_what_comes_with_time(channel)
    count = 0
    for _ in range(20):
        count += python_calls(lambda: put(channel, events))
        take(channel, events.num_rows)
    assert count <= 20 * 250


@pytest.mark.parametrize("options", [{}, MEMORY], ids=["disk", "memory"])
def test_python_does_half_as_much_to_follow_a_transaction(open_channel: Open, options: dict[str, int]) -> None:
    """Another process does this for every transaction that it did not commit itself."""
    channel, events = open_channel(checkpoint_interval=10**9, **options), batch(1_000)
    other = open_channel().engine()
    warm(channel, events)
    other.follower.follow()
    counts = []
    for work in (lambda: put(channel, events), lambda: take(channel, 1_000)):
        work()
        counts.append(python_calls(lambda: other.follower.follow() and None))
    assert max(counts) <= 93


@pytest.mark.parametrize("options", [{}, MEMORY], ids=["disk", "memory"])
def test_a_transaction_costs_the_same_however_many_groups_there_are(
    open_channel: Open, options: dict[str, int]
) -> None:
    channel = open_channel(checkpoint_interval=10**9, **options)
    engine, counts = channel.engine(), []
    put(channel, batch(1_000))
    take(channel, 1, "slow")
    for groups in (1, 300):
        with engine.committing():
            for i in range(groups):
                engine.appender.append_alone(Control(FrameKind.GROUP, {"group": f"g{groups}-{i}", "position": 0}))
        warm(channel, batch(1))
        put(channel, batch(1))
        leave_out_what_comes_with_time(channel)
        counts.append(python_calls(lambda: (put(channel, batch(1)), take(channel, 1))[0]))
    assert abs(counts[1] - counts[0]) <= 20


@pytest.mark.parametrize("options", [{}, MEMORY], ids=["disk", "memory"])
def test_transactions_that_come_and_go_leave_no_objects_behind(open_channel: Open, options: dict[str, int]) -> None:
    channel = open_channel(checkpoint_interval=10**9, **options)
    events = batch(10)
    warm(channel, events)
    leave_out_what_comes_with_time(channel)

    def blocks_after(transactions: int) -> int:
        for _ in range(transactions):
            put(channel, events)
            take(channel, events.num_rows)
        gc.collect()
        return sys.getallocatedblocks()

    blocks_after(100)
    before = blocks_after(1)
    assert blocks_after(300) - before < 300  # less than one a transaction
