"""Far more than retention keeps goes through a channel: its directory stays as large as what is kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spillable_stream import Channel
from spillable_stream.engine.local.local_log import FILES_OF_A_LIMIT
from tests.lab.children import wait_until
from tests.lab.size import sized
from tests.support.damage import memory_of

MIB = 1 << 20
LIMIT_BYTES = sized(ci=4, full=256) * MIB
THROUGH_BYTES = sized(ci=32, full=10 * 1024) * MIB
BODY_BYTES = 1024
BATCH_EVENTS = LIMIT_BYTES // 16 // BODY_BYTES
# What is kept, the file that it begins in the middle of, the one that is written, room that is allocated in that one,
# frames' headers and checkpoints.
MOST_BYTES = LIMIT_BYTES + 4 * LIMIT_BYTES // FILES_OF_A_LIMIT + MIB

TIERS = {
    "disk": {"memory_capacity": 0},
    "memory": {
        "memory_capacity": 4 * BATCH_EVENTS,
        "byte_capacity": 8 * BATCH_EVENTS * BODY_BYTES,
        "overflow_timeout": 0.0,
    },
}


@pytest.mark.crash
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("tier", TIERS)
def test_the_disk_stays_flat_however_much_goes_through(path: Path, tier: str) -> None:
    """The channel has room for four transactions, and would let none wait: what is kept takes none of it."""
    with open_channel(path, **TIERS[tier]) as channel:
        for last in transactions(channel):
            take(channel, last)
            done = last * BODY_BYTES
            assert wait_until(lambda: used_bytes(path) <= MOST_BYTES), f"{used_bytes(path):,} bytes are used"
            assert done < LIMIT_BYTES or kept_bytes(channel) >= LIMIT_BYTES
            if tier == "memory":
                assert used_bytes(memory_of(path)) <= 2 * TIERS[tier]["byte_capacity"]
        assert wait_until(lambda: kept_bytes(channel) < LIMIT_BYTES + 2 * LIMIT_BYTES // FILES_OF_A_LIMIT)
    with open_channel(path) as channel:
        first = channel.engine().state.first_kept
        assert last - first >= LIMIT_BYTES // BODY_BYTES - 1
        channel.consumer("default").seek(first - 1)
        assert take(channel, last) == list(range(first, last + 1))
    assert used_bytes(path) <= MOST_BYTES


def open_channel(path: Path, **options: Any) -> Channel:
    return Channel(
        path,
        retention_bytes=LIMIT_BYTES,
        overflow_capacity=4 * BATCH_EVENTS,
        keep_alive=0,
        minimum_required_space=0,
        **options,
    )


def transactions(channel: Channel) -> Iterator[int]:
    """Put what goes through, and yield the last ID of each transaction."""
    take(channel, 0)
    last = 0
    while last * BODY_BYTES < THROUGH_BYTES:
        bodies = [b"%0*d" % (BODY_BYTES, i) for i in range(last + 1, last + 1 + BATCH_EVENTS)]
        headers = pa.array([[]] * len(bodies), channel.schema.field("headers").type)
        with channel.put_transaction() as tx:
            tx.put_batch(pa.RecordBatch.from_arrays([headers, pa.array(bodies, pa.binary())], schema=channel.schema))
        last = tx.committed.last_id
        yield last


def take(channel: Channel, last_id: int) -> list[int]:
    """Take every event, and return what their bodies say, which is their IDs."""
    said: list[int] = []
    while not said or said[-1] < last_id:
        with channel.take_transaction() as tx:
            batch = tx.take_batch(BATCH_EVENTS)
            if batch is None:
                break
            ids = [int(body) for body in batch.column("body").to_pylist()]
            assert batch.column("write_order_id").to_pylist() == ids
            said += ids
    return said


def kept_bytes(channel: Channel) -> int:
    return channel.engine().follow().kept().payload_bytes


def used_bytes(directory: Path) -> int:
    """Return what the files of a directory take on its disk, links not followed."""
    found = 0
    for file in directory.rglob("*"):
        try:
            found += 0 if file.is_symlink() else file.stat().st_blocks * 512
        except FileNotFoundError:  # it went meanwhile
            continue
    return found
