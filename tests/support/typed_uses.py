"""What type checkers must know of programs that use the package: `make check` reads it, nobody runs it.

A line that is ``type: ignore[CODE]`` is one that a checker must refuse, for it also says so where it does not.
"""

from __future__ import annotations

from typing import Any, assert_type

import spillable_stream as ss


def every_option() -> None:
    """Each option has its name and its type."""
    channel: ss.Channel[Any] = ss.Channel(
        "c", memory_capacity=10, keep_alive=1.5, compression="lz4", data_dirs=["/a", "/b"], mode="0750"
    )
    ss.Producer(channel, linger_ms=5)
    ss.AsyncProducer({"a": channel}, producer_id="p", linger_ms=5)
    ss.AsyncProducer("c", linger_ms=5)
    ss.ProducerHandler(ss.Producer("c"), max_block_ms=5)
    assert_type(channel.options["keep_alive"], float)
    channel.put_transaction().put_many([ss.Event(b"x")])

    ss.Channel("c", memory_capacty=10)  # type: ignore[call-arg]
    ss.Channel("c", memory_capacity="many")  # type: ignore[arg-type]
    ss.Channel("c", compression="gzip")  # type: ignore[arg-type]
    channel.options["keepAlive"]  # type: ignore[typeddict-item]
    ss.Producer("c", lingerms=5)  # type: ignore[call-arg]
    ss.AsyncProducer("c", linger_ms=1.5)  # type: ignore[arg-type]
    ss.Producer(7)  # type: ignore[arg-type]
    ss.ProducerHandler(ss.Producer("c"), linger_ms=5)  # type: ignore[call-arg]


def what_a_take_gives(either: ss.Channel) -> None:
    """A take gives what the channel's events are."""
    assert_type(either.take_transaction().take(), Any | None)
    with ss.Channel[ss.Event]("events") as events, events.take_transaction() as tx:
        assert_type(tx.take(), ss.Event | None)
        assert_type(tx.take_many(2), list[ss.Event])
    rows: ss.Channel[dict[str, Any]] = ss.Channel("rows")
    assert_type(rows.another().take_transaction().take(), dict[str, Any] | None)
    what_a_take_gives(events)
    what_a_take_gives(rows)
    ss.Producer(rows)
    ss.Producer(events)
    assert_type(ss.Channel("either").take_transaction().take_many(2), list[Any])
