"""Many threads and processes at once on a memory tier that is too small for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spillable_stream import Channel, Event
from spillable_stream.channel.event_columns import batch_from_events
from spillable_stream.engine.local.memory_capacity import file_size_bytes
from spillable_stream.option_types import ChannelOptions
from tests.support.events import numbered, put, take

Open = Callable[..., Channel]
Found = dict[int, bytes]

_TRANSACTION = 500
_PATIENCE_SECONDS = 60.0
_MIB = 1 << 20


def body(producer: int, sequence: int) -> bytes:
    return b"producer %d, event %d" % (producer, sequence)


def produce(channel: Channel, producer: int, first: int, end: int) -> None:
    """Put the producer's events from ``first`` up to ``end``, in transactions of 500."""
    for start in range(first, end, _TRANSACTION):
        events = [Event(body(producer, i)) for i in range(start, min(start + _TRANSACTION, end))]
        with channel.put_transaction() as tx:
            tx.put_batch(batch_from_events(events))


def consume(channel: Channel, group: str, wanted: Callable[[], bool]) -> Iterator[Found]:
    """Take while more is wanted and yield what each transaction committed; every seventh is rolled back first."""
    number = 0
    while wanted():
        number += 1
        with channel.take_transaction(group) as tx:
            table = tx.take_batch(2 * _TRANSACTION, timeout_seconds=0.05)
            if table is None or number % 7 == 0:
                tx.rollback()
                continue
        ids = table.column("write_order_id").to_pylist()
        assert ids == sorted(set(ids)), "a take transaction's events are out of order"
        yield dict(zip(ids, table.column("body").to_pylist(), strict=True))


def check(transactions: list[Found], producers: int, each: int) -> None:
    """Prove that nothing is lost, doubled, altered, or out of a producer's order."""
    found: Found = {}
    for transaction in transactions:
        found.update(transaction)
    assert sum(map(len, transactions)) == len(found), "events were taken twice"
    assert sorted(found) == list(range(1, producers * each + 1))
    of: dict[bytes, list[bytes]] = {}
    for _, data in sorted(found.items()):
        of.setdefault(data.split(b",")[0], []).append(data)
    assert sorted(of) == sorted(b"producer %d" % p for p in range(producers))
    for producer in range(producers):
        assert of[b"producer %d" % producer] == [body(producer, i) for i in range(each)]


def check_emptied(channel: Channel, capacity: int) -> None:
    """Prove that the channel is empty, and that its memory takes as much as it is to."""
    stats = channel.stats()
    assert (stats.channel_size, stats.drain_order, stats.overflow_active) == (0, [], False)
    assert (stats.memory.events, stats.memory.payload_bytes, stats.disk.events, stats.disk.payload_bytes) == (0,) * 4
    put(channel, *numbered(0, capacity))
    after = channel.stats()
    assert (after.drain_order, after.spilled_transactions) == ([capacity], stats.spilled_transactions)
    for group in stats.groups:
        assert take(channel, capacity, group) == numbered(0, capacity)


@pytest.mark.parametrize("events", [100_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_sixteen_threads_move_very_many_events_through_a_memory_of_ten_thousand(
    path: Path, open_channel: Open, events: int
) -> None:
    producers, takers, before = 8, 8, 2_000
    each = events // producers
    channel = open_channel(memory_capacity=10_000, byte_capacity=8 * _MIB, overflow_timeout=0.002)
    channel.consumer("default")
    memory_is_full = threading.Barrier(producers + takers, timeout=_PATIENCE_SECONDS)
    taken, mutex = 0, threading.Lock()
    puts: list[Future[None]] = []
    takes: list[Future[list[Found]]] = []

    def putting(producer: int) -> None:
        produce(channel, producer, 0, before)  # nobody takes yet, so that some of it must spill
        memory_is_full.wait()
        produce(channel, producer, before, each)

    def is_more() -> bool:
        return taken < producers * each and not any(f.done() and f.exception() for f in puts + takes)

    def taking() -> list[Found]:
        nonlocal taken
        memory_is_full.wait()
        found: list[Found] = []
        for transaction in consume(channel, "default", is_more):
            found.append(transaction)
            with mutex:
                taken += len(transaction)
        return found

    with ThreadPoolExecutor(producers + takers) as pool:
        puts += [pool.submit(putting, p) for p in range(producers)]
        takes += [pool.submit(taking) for _ in range(takers)]
        for future in puts:
            future.result()
        transactions = [t for future in takes for t in future.result()]
    assert 0 < channel.stats().spilled_transactions < producers * each // _TRANSACTION
    check(transactions, producers, each)
    check_emptied(channel, 10_000)
    memory = (path / "memory").resolve()
    assert memory.is_dir()
    channel.close()
    assert not (path / "memory").is_symlink() and not memory.exists()


_SHARED: dict[str, Any] = {
    "minimum_required_space": 0,
    "checkpoint_interval": 200,
    "memory_capacity": 4_000,
    "byte_capacity": 4 * _MIB,
    "overflow_timeout": 0.002,
}


def produce_in_a_process(path: Path, producer: int, each: int) -> None:
    with Channel(path, **_SHARED) as channel:
        produce(channel, producer, 0, each)


def consume_in_a_process(path: Path, group: str, count: int) -> list[Found]:
    found: list[Found] = []
    with Channel(path, **_SHARED) as channel:
        for transaction in consume(channel, group, lambda: sum(map(len, found)) < count):
            found.append(transaction)
    return found


def test_putting_and_taking_processes_share_a_memory_that_is_too_small(path: Path, open_channel: Open) -> None:
    producers, each, groups = 2, 20_000, ("one", "two")
    with open_channel(**_SHARED) as creator:
        for group in groups:
            creator.consumer(group)
    channel = open_channel(**_SHARED)
    with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as pool:
        puts = [pool.submit(produce_in_a_process, path, p, each) for p in range(producers)]
        assert channel.engine().wait_for(lambda state: state.spilled > 0, _PATIENCE_SECONDS)
        takes = [pool.submit(consume_in_a_process, path, group, producers * each) for group in groups]
        for future in puts:
            future.result()
        taken = [future.result() for future in takes]
    assert 0 < channel.stats().spilled_transactions < producers * each // _TRANSACTION
    for transactions in taken:
        check(transactions, producers, each)
    check_emptied(channel, 4_000)
    memory = (path / "memory").resolve()
    assert memory.is_dir()
    channel.close()
    assert not (path / "memory").is_symlink() and not memory.exists()


def resident_mib() -> float:
    """Return how much memory this process has, without shared memory that it does not map."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))


def directory_bytes(directory: Path) -> int:
    """Return how much room the files of a directory take; the channel may remove them meanwhile."""
    total = 0
    for file in directory.glob("*"):
        try:
            total += file.stat().st_blocks * 512
        except FileNotFoundError:
            continue
    return total


@dataclass
class Soak:
    """What a soak measured after each take transaction: MiB of resident memory, bytes of shared memory."""

    resident_mib: list[float] = field(default_factory=list)
    shared_bytes: list[int] = field(default_factory=list)
    spilled: int = 0
    disk_bytes: int = 0


def soak(path: Path, options: dict[str, Any], transactions: int, events: int, size: int, pause_every: int) -> Soak:
    """Send transactions of the same events through a channel; the taker now and then waits until memory is full."""
    measured = Soak()
    bodies = [b"%07d" % i + b"x" * (size - 7) for i in range(events)]
    with Channel(path, **options) as channel, ThreadPoolExecutor(2) as pool:
        channel.consumer("default")
        batch = batch_from_events([Event(b) for b in bodies])
        expected = pa.chunked_array([batch.column("body")])

        def putting() -> None:
            for _ in range(transactions):
                with channel.put_transaction() as tx:
                    tx.put_batch(batch)

        def wait_for_a_spill() -> None:
            before = channel.stats().spilled_transactions
            assert channel.engine().wait_for(lambda s: s.spilled > before or putter.done(), _PATIENCE_SECONDS)

        def taking() -> None:
            for number in range(transactions):
                if number % pause_every == 0 and number + pause_every <= transactions:
                    wait_for_a_spill()
                parts = []
                with channel.take_transaction() as tx:
                    while tx.count < events:
                        part = tx.take_batch(events - tx.count, timeout_seconds=_PATIENCE_SECONDS)
                        assert part is not None, "nothing came"
                        parts.append(part)
                table = pa.concat_tables(parts)
                assert table.column("body").equals(expected)
                assert table.column("write_order_id")[0].as_py() == number * events + 1
                measured.resident_mib.append(resident_mib())
                measured.shared_bytes.append(directory_bytes(path / "memory"))

        putter = pool.submit(putting)
        for future in (putter, pool.submit(taking)):
            future.result()
        for _ in range(2):
            channel.checkpoint()
        stats = channel.stats()
        assert (stats.channel_size, stats.segments) == (0, 0)
        assert stats.data_files <= 2 and stats.memory_files <= 2
        measured.spilled = stats.spilled_transactions
        measured.disk_bytes = directory_bytes(path / "data") + directory_bytes(path / "checkpoint")
    return measured


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_gibibytes_through_sixty_four_mebibytes_of_memory_leave_no_trace(path: Path) -> None:
    transactions, warm_up = 2 << 10, 256
    options = {
        "minimum_required_space": 0,
        "checkpoint_interval": 500,
        "max_file_size": 64 * _MIB,
        "memory_capacity": 1_000_000,
        "byte_capacity": 64 * _MIB,
        "overflow_timeout": 0.01,
    }
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:  # its memory is that of the soak alone
        measured = pool.submit(soak, path, options, transactions, 1 << 10, 1 << 10, warm_up // 2).result()
    warm, later = measured.resident_mib[warm_up], max(measured.resident_mib[warm_up:])
    shared, disk = max(measured.shared_bytes), measured.disk_bytes
    print(f"resident {warm:.0f} MiB after the warm-up, {later:.0f} MiB at most later")
    print(f"shared memory {shared / _MIB:.0f} MiB at most, disk {disk / _MIB:.0f} MiB at the end")
    print(f"{measured.spilled:,} of {transactions:,} transactions spilled")
    assert later < warm + 128
    file_bytes = file_size_bytes(64 * _MIB, ChannelOptions(memory_capacity=1_000_000, avg_event_size=500))
    assert 32 * _MIB < shared <= 64 * _MIB + 2 * file_bytes
    assert measured.spilled > transactions // warm_up
    assert disk < 2 * 64 * _MIB
