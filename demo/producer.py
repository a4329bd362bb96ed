"""A plain Python producer: puts the flights month by month, each a burst of transactions of 1,000, then a pause."""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from flights import read_flights

import spillable_stream as ss

TRANSACTION = 1_000
PAUSE_SECONDS = 1.0
LAST_WORD = {"time_hour": "2014-12-31T00:00:00Z", "carrier": "", "dep_delay": ""}


def months(rows: list[dict[str, str]]) -> Iterator[list[dict[str, str]]]:
    """Yield the flights of each month."""
    for _, month in itertools.groupby(rows, key=lambda r: r["time_hour"][:7]):
        yield list(month)


def put_all(channel: ss.Channel, rows: list[dict[str, str]]) -> None:
    """Put the flights, in transactions of at most 1,000."""
    for start in range(0, len(rows), TRANSACTION):
        with channel.put_transaction() as tx:
            for row in rows[start : start + TRANSACTION]:
                tx.put(ss.Event(json.dumps(row).encode(), {"carrier": row["carrier"]}))


def main(path: str) -> None:
    """Put the flights, then one event that is later than all, so that Spark closes every window."""
    rows = read_flights()
    with ss.Channel(path, create=False) as channel:
        for month in months(rows):
            put_all(channel, month)
            time.sleep(PAUSE_SECONDS)
        with channel.put_transaction() as tx:
            tx.put(ss.Event(json.dumps(LAST_WORD).encode()))


if __name__ == "__main__":
    with ss.exit_on_sigterm():
        main(sys.argv[1])
