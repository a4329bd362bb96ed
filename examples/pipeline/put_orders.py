"""Puts numbered orders into the channel that the pipeline reads: python put_orders.py HOME FIRST COUNT."""

import sys

import spillable_stream as ss

home, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with ss.Channel(f"{home}/orders") as channel, channel.put_transaction() as tx:
    tx.put_many(ss.Event(b"%d" % i, {"country": "NL" if i % 2 else "BE"}) for i in range(first, first + count))
