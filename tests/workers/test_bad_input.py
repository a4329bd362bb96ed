"""Workers and delays that are asked for wrongly: a sentence says so, and nothing changes, wherever the channel is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spillable_stream import Channel, Event, OptionError, SchemaError, SpillableError, WorkerTimeoutError
from tests.lab.children import wait_until
from tests.support.events import peek, put
from tests.support.object_channels import URL, stores_in_memory
from tests.support.spools import open_spooled

Open = Callable[..., Channel]

SCHEMA = pa.schema([("n", pa.int64())])


@pytest.fixture(params=["a directory", "a store", "a spool"])
def open_one(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Open channels of one kind, by a name; they are closed at the end."""
    opened: list[Channel] = []

    def open_one(name: str, **options: Any) -> Channel:
        if request.param == "a directory":
            channel = Channel(tmp_path / name, minimum_required_space=0, **options)
        elif request.param == "a store":
            channel = Channel(f"{URL}-{name}", commit_interval=0, **options)
        else:
            channel = open_spooled(tmp_path / f"spool-{name}", f"{URL}-{name}", **options)
        opened.append(channel)
        return channel

    with stores_in_memory():
        yield open_one
        for channel in opened:
            channel.close()


def figures(channel: Channel) -> tuple[object, ...]:
    """Return all that a wrong call could change."""
    assert wait_until(lambda: not (spool := channel.stats().spool) or not spool.events), "it ships all it has"
    stats = channel.stats()
    return stats.channel_size, stats.transactions, stats.delayed, stats.groups, stats.workers


async def coroutine_function(event: object) -> None:
    """Do nothing, in asyncio."""


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"dead_letter": "itself"}, OptionError, r"^dead_letter is .* itself; use another channel$"),
        ({"dead_letter": "typed"}, SchemaError, "must be an event channel"),
        ({"function": coroutine_function}, OptionError, r"is a coroutine function; run it with async_worker$"),
        ({"function": 5}, OptionError, r"^a worker needs a function, not int$"),
        ({"channel": "typed"}, OptionError, r"is a typed channel, whose worker needs batch_size"),
        ({"group": "../g"}, OptionError, "^group must be"),
        ({"max_attempts": 0}, OptionError, "^max_attempts must be"),
        ({"threads": 0}, OptionError, "^threads must be"),
        ({"timeout": 0}, OptionError, "^timeout must be"),
        ({"backoff": -1}, OptionError, "^backoff must be"),
        ({"batch_size": 0}, OptionError, "^batch_size must be"),
    ],
)
def test_a_worker_that_can_t_be_is_refused(
    open_one: Open, options: dict[str, Any], error: type[SpillableError], says: str
) -> None:
    channels = {"itself": open_one("events"), "typed": open_one("typed", schema=SCHEMA)}
    put(channels["itself"], b"a", b"b")
    given: dict[str, Any] = {"group": "g", "function": print, **options}
    channel = channels[given.pop("channel", "itself")]
    if "dead_letter" in given:
        given["dead_letter"] = channels[given["dead_letter"]]
    before = [figures(one) for one in channels.values()]
    with pytest.raises(error, match=says) as caught:
        channel.worker(given.pop("group"), given.pop("function"), **given)
    assert "\n" not in str(caught.value)
    assert [figures(one) for one in channels.values()] == before


@pytest.mark.parametrize(
    ("delay", "says"),
    [
        (
            {"deliver_after": -1},
            "^deliver_after must be seconds, or a number with ms, s, m, h or d, 0 or more, or a timedelta, not -1",
        ),
        ({"deliver_after": timedelta(seconds=-1)}, "0 or more"),
        ({"deliver_after": float("nan")}, "^deliver_after must be .* not nan"),
        ({"deliver_after": "5 weeks"}, "^deliver_after must be .* not '5 weeks'"),
        ({"deliver_after": timedelta(days=367)}, "^an event waits at most a year"),
        ({"deliver_at": datetime(2100, 1, 1, tzinfo=UTC)}, "^an event waits at most a year .*, not until 2100"),
        ({"deliver_at": datetime(2030, 1, 1)}, "has no time zone; give it one"),
        ({"deliver_at": 5}, "^deliver_at is 5; give a datetime with its time zone"),
        ({"deliver_after": 1, "deliver_at": datetime(2100, 1, 1, tzinfo=UTC)}, "both given; give one of them"),
    ],
)
def test_a_delay_that_can_t_be_is_refused_and_nothing_is_put(open_one: Open, delay: dict[str, Any], says: str) -> None:
    channel = open_one("events")
    before = figures(channel)
    with channel.put_transaction() as tx:
        with pytest.raises(OptionError, match=says) as caught:
            tx.put(Event(b"a"), **delay)
        with pytest.raises(OptionError, match=says):
            tx.put_many([Event(b"a"), Event(b"b")], **delay)
        with pytest.raises(OptionError, match=says):
            tx.put_batch(pa.RecordBatch.from_pylist([{"headers": {}, "body": b"a"}]), **delay)
    assert str(caught.value).endswith("Nothing was put") and "\n" not in str(caught.value)
    assert figures(channel) == before


@pytest.mark.parametrize("delay", [{"deliver_after": 0}, {"deliver_at": datetime(2020, 1, 1, tzinfo=UTC)}])
def test_a_delay_that_is_over_is_none(open_one: Open, delay: dict[str, Any]) -> None:
    channel = open_one("events")
    with channel.put_transaction() as tx:
        tx.put(Event(b"a"), **delay)
    assert wait_until(lambda: peek(channel) == [b"a"]), "a spool ships it"
    assert channel.stats().delayed.events == 0


def test_a_function_that_never_returns_stops_its_worker_and_takes_nothing(open_one: Open) -> None:
    channel, forever = open_one("events"), threading.Event()
    put(channel, *[b"%d" % i for i in range(10)])
    assert wait_until(lambda: len(peek(channel)) == 10)
    worker = channel.worker("g", lambda _: forever.wait(), max_attempts=100, backoff=0, timeout=0.01)
    with pytest.raises(WorkerTimeoutError, match=r"^10 calls of .* have not returned within 0.01 s, .*End the process"):
        worker.run(stop_timeout_seconds=5.0)
    forever.set()
    assert wait_until(lambda: not worker.stats().left_calls)
    assert len(peek(channel, group="g")) == 10
