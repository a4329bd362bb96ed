"""One of several producers: puts its share of the flights into a channel, in transactions that it paces.

python -m demo.cluster.producer CHANNEL FLIGHTS SHARE SHARES
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import pyarrow as pa

import spillable_stream as ss
from demo.flights import read_flights

__all__ = ["FLIGHTS"]

FLIGHTS = pa.schema(
    [
        ("number", pa.int64()),  # its place in the data set
        ("time_hour", pa.string()),
        ("carrier", pa.string()),
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("dep_delay", pa.string()),
    ]
)
"""The columns of the first channel."""

_TRANSACTIONS = 160  # of each producer
_EVERY_SECONDS = 0.25  # so that they still put while the driver is killed


def put_all(channel: ss.Channel, flights: pa.Table, transactions: int = _TRANSACTIONS) -> None:
    """Put the flights in about so many transactions."""
    size, began = -(-flights.num_rows // transactions), time.monotonic()
    for done, start in enumerate(range(0, flights.num_rows, size), 1):
        with channel.put_transaction() as tx:
            tx.put_batch(flights.slice(start, size))
        time.sleep(max(0.0, began + done * _EVERY_SECONDS - time.monotonic()))


def table(rows: Sequence[dict[str, str]]) -> pa.Table:
    """Return flights, numbered from 0, as the channel has them."""
    return pa.Table.from_pylist([{"number": number, **row} for number, row in enumerate(rows)], FLIGHTS)


def main(url: str, flights: str, share: str, shares: str) -> None:
    """Put every so manieth of the first flights."""
    rows = table(read_flights()[: int(flights)])
    mine = rows.take(list(range(int(share), rows.num_rows, int(shares))))
    with ss.Channel(url, create=False) as channel:
        put_all(channel, mine)


if __name__ == "__main__":
    with ss.exit_on_sigterm():
        main(*sys.argv[1:])
