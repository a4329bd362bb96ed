"""A plain Python producer: puts every flight into a channel as an event, 1,000 to a transaction."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from flights import read_flights

import spillable_stream as ss

TRANSACTION = 1_000
LAST_WORD = {"time_hour": "2014-12-31T00:00:00Z", "carrier": "", "dep_delay": ""}


def main(path: str) -> None:
    """Put the flights, then one event that is later than all, so that Spark closes every window."""
    rows = read_flights()
    with ss.Channel(path, create=False) as channel:
        for start in range(0, len(rows), TRANSACTION):
            with channel.put_transaction() as tx:
                for row in rows[start : start + TRANSACTION]:
                    tx.put(ss.Event(json.dumps(row).encode(), {"carrier": row["carrier"]}))
        with channel.put_transaction() as tx:
            tx.put(ss.Event(json.dumps(LAST_WORD).encode()))


if __name__ == "__main__":
    main(sys.argv[1])
