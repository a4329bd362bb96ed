"""A process that delays many events or delivers them: ``python -m tests.support.late_events put|deliver PATH COUNT``.

It prints how much memory it had at most, in KiB.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from spillable_stream import Channel
from spillable_stream.channel.row_times import RowTimes
from spillable_stream.format.batch import EVENT_SCHEMA
from tests.support.delays import clock_of, deliver_all

_A_BATCH = 10_000


def open_large(path: str) -> Channel:
    """Open a channel that has room for millions of events."""
    options: dict[str, Any] = {"commit_interval": 0} if "://" in path else {"minimum_required_space": 0}
    return Channel(path, transaction_capacity=100_000, overflow_capacity=2_000_000, **options)


def put_late(channel: Channel, count: int) -> None:
    """Put events, each due at a time of its own within a day, which its body begins with."""
    rng, now_ms = random.Random(1), time.time_ns() // 1_000_000
    for _ in range(count // _A_BATCH):
        dues = [now_ms + rng.randrange(3_600_000, 90_000_000) for _ in range(_A_BATCH)]
        columns = {"headers": [[]] * _A_BATCH, "body": [b"%d" % due + bytes(100) for due in dues]}
        with channel.put_transaction() as tx:
            tx.put_timed(pa.RecordBatch.from_pydict(columns, EVENT_SCHEMA), RowTimes(0, pa.array(dues, pa.int64())))


def main() -> None:
    """Do what the arguments say."""
    call, path, count = sys.argv[1:]
    channel = open_large(path)
    if call == "put":
        put_late(channel, int(count))
    else:
        clock_of(channel).pass_by(100_000)
        deliver_all(channel)
    channel.close()
    status = Path("/proc/self/status").read_text()
    print(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])


if __name__ == "__main__":
    main()
