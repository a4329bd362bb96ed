"""What is given to the public functions with a wrong type or value is refused there, by its name, in one sentence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import spillable_stream as ss
from spillable_stream import dead_letters, flow

NAIVE = datetime(2020, 1, 1)
NAN, INFINITE, HUGE = float("nan"), float("inf"), 10**30
SURROGATE, NUL = "\ud800", "\0"

# Of each kind of argument what is none, of any type that people give by mistake.
NO_FLAG = (None, "false", 0, 1, 3.7, b"x", [], NAIVE)
NO_FLAG_OR_NONE = NO_FLAG[1:]
NO_FUNCTION = ("x", 5, True, b"x", Path("x"), [], {}, NAIVE)
NO_TEXT = (5, NAN, True, b"x", Path("x"), [], {}, SURROGATE, NAIVE)
NO_NAME = (None, "", *NO_TEXT, NUL)
NO_PATH = (None, "", 5, NAN, True, b"x", [], {}, NUL, SURROGATE, NAIVE)
NO_DIRECTORY = (5, NAN, True, b"x", {}, NUL, SURROGATE, NAIVE, "")
NO_COUNT = (None, "5", 0, -1, NAN, INFINITE, 3.7, True, b"x", Path("x"), [], NAIVE)
NO_SIZE = ("64MB", *(value for value in NO_COUNT if value != "5"))
NO_SECONDS = ("soon", -1, NAN, True, b"x", Path("x"), [], NAIVE)
NO_TIME = ("soon", -1, NAN, True, b"x", Path("x"), [], HUGE, NAIVE, timedelta(seconds=-1))
NO_MOMENT = (5, "2020-01-01", NAN, True, b"x", NAIVE, timedelta(1))
NO_MILLISECONDS = ("soon", -2, NAN, 3.7, True, b"x", [], NAIVE)
NO_OBJECT = ("x", 5, True, b"x", Path("x"), [], {}, NAIVE)
NO_EVENT = (None, "x", b"x", 5, NAN, [], {}, NAIVE)
NO_ROWS = (None, "x", b"x", 5, [], [1], {}, NAIVE)
NO_EVENTS = (None, "x", b"x", 5, NAN, [1], ["x"], NAIVE)
NO_PLACE = (None, "x", -1, HUGE, NAN, 3.7, True, b"x", [], NAIVE, timedelta(seconds=-1))
NO_OPTION = ("x", "", -1, NAN, INFINITE, 3.7, True, b"x", Path("x"), [], {}, HUGE, NAIVE)


class World:
    """A channel with an event, a producer, and what else the calls need; each call of a table gets it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.channel = ss.Channel(directory / "channel", minimum_required_space=0)
        self.typed = ss.Channel(directory / "typed", schema=pa.schema([("n", pa.int64())]), minimum_required_space=0)
        with self.channel.put_transaction() as tx:
            tx.put(ss.Event(b"x"))
        self.channel.port().create_group("g", "1")
        self.producer = ss.Producer(self.channel, producer_id="p")
        self.sharing = ss.Producer([self.channel, directory / "second"])
        self.named = ss.Producer({"a": self.channel})

    def open(self, **options: Any) -> None:
        ss.Channel(self.directory / "new", minimum_required_space=0, **options).close()

    def put(self, *given: Any, call: str = "put", **options: Any) -> None:
        with self.channel.put_transaction() as tx:
            getattr(tx, call)(*given, **options)

    def put_row(self, *given: Any, call: str = "put") -> None:
        with self.typed.put_transaction() as tx:
            getattr(tx, call)(*given)

    def take(self, call: str, *given: Any) -> None:
        with self.channel.take_transaction("g") as tx:
            getattr(tx, call)(*given)

    def close(self) -> None:
        for thing in (self.producer, self.sharing, self.named, self.channel, self.typed):
            thing.close()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("world"))
    yield made
    made.close()


async def coroutine(_: object) -> None:
    pass


def send_async(w: World, **given: Any) -> None:
    async def send() -> None:
        async with ss.AsyncProducer(w.channel) as producer:
            await producer.send(b"x", **given)

    asyncio.run(send())


def send_many_async(w: World, events: Any) -> None:
    async def send() -> None:
        async with ss.AsyncProducer(w.channel) as producer:
            await producer.send_many(events)

    asyncio.run(send())


Call = Callable[[World, Any], object]
CHANNEL: dict[str, tuple[Call, tuple[Any, ...]]] = {
    "Channel(path)": (lambda w, v: ss.Channel(v), NO_PATH),
    "Channel(schema=)": (lambda w, v: w.open(schema=v), NO_OBJECT),
    "Channel(create=)": (lambda w, v: w.open(create=v), NO_FLAG),
    "Channel(readonly=)": (lambda w, v: w.open(readonly=v), NO_FLAG),
    "Channel(fs=)": (lambda w, v: w.open(fs=v), NO_OBJECT),
    "Channel(progress=)": (lambda w, v: w.open(progress=v), NO_FUNCTION),
    "Channel(transaction_capacity=)": (lambda w, v: w.open(transaction_capacity=v), NO_OPTION),
    "Channel(keep_alive=)": (lambda w, v: w.open(keep_alive=v), (*NO_TIME, "x", INFINITE)),
    "Channel(flush_on_close=)": (lambda w, v: w.open(flush_on_close=v), ("x", 5, NAN, b"x", [])),
    "Channel(compression=)": (lambda w, v: w.open(compression=v), NO_OPTION),
    "Channel(memory_dir=)": (lambda w, v: w.open(memory_dir=v), NO_DIRECTORY),
    "Channel(data_dirs=)": (lambda w, v: w.open(data_dirs=v), (*NO_DIRECTORY, Path("x"), (1,), [b"x"])),
    "Channel(checkpoint_dir=)": (lambda w, v: w.open(checkpoint_dir=v), (*NO_DIRECTORY, [])),
    "Channel(backup_checkpoint_dir=)": (lambda w, v: w.open(backup_checkpoint_dir=v), (*NO_DIRECTORY, [])),
    "Channel.from_config(path)": (lambda w, v: ss.Channel.from_config(v), NO_PATH),
    "Channel.from_config(name)": (lambda w, v: ss.Channel.from_config(w.directory / "none.ini", v), NO_TEXT),
    "take_transaction(group)": (lambda w, v: w.channel.take_transaction(v), NO_NAME),
    "consumer(group)": (lambda w, v: w.channel.consumer(v), NO_NAME),
    "consumer(owner_timeout_seconds=)": (
        lambda w, v: w.channel.consumer("new", owner_timeout_seconds=v), NO_SECONDS),
    "consumer(starting=)": (lambda w, v: w.channel.consumer("new", starting=v), (*NO_NAME, 5, "-1", "x")),
    "consumer(resume=)": (lambda w, v: w.channel.consumer("new", resume=v), NO_FLAG),
    "consumer(note=)": (lambda w, v: w.channel.consumer("new", note=v), (None, *NO_TEXT)),
    "consumer(create=)": (lambda w, v: w.channel.consumer("new", create=v), NO_FUNCTION),
    "worker(group)": (lambda w, v: w.channel.worker(v, print), NO_NAME),
    "worker(function)": (lambda w, v: w.channel.worker("g", v), (None, *NO_FUNCTION)),
    "worker(batch_size=)": (lambda w, v: w.channel.worker("g", print, batch_size=v), NO_COUNT[1:]),
    "worker(max_attempts=)": (lambda w, v: w.channel.worker("g", print, max_attempts=v), NO_COUNT),
    "worker(backoff=)": (lambda w, v: w.channel.worker("g", print, backoff=v), (None, *NO_SECONDS, -1)),
    "worker(dead_letter=)": (lambda w, v: w.channel.worker("g", print, dead_letter=v), NO_PATH[1:]),
    "worker(threads=)": (lambda w, v: w.channel.worker("g", print, threads=v), (*NO_COUNT, HUGE)),
    "worker(timeout=)": (lambda w, v: w.channel.worker("g", print, timeout=v), (*NO_SECONDS, 0, -1)),
    "worker.run(until_empty=)": (lambda w, v: w.channel.worker("g", print).run(until_empty=v), NO_FLAG),
    "worker.run(stop_timeout_seconds=)": (
        lambda w, v: w.channel.worker("g", print).run(stop_timeout_seconds=v),
        (None, *NO_SECONDS),
    ),
    "async_worker(function)": (lambda w, v: w.channel.async_worker("g", v), (None, print, *NO_FUNCTION)),
    "async_worker(timeout=)": (lambda w, v: w.channel.async_worker("g", coroutine, timeout=v), (*NO_SECONDS, 0, -1)),
    "drop_group": (lambda w, v: w.channel.drop_group(v), NO_NAME),
    "seek(group)": (lambda w, v: w.channel.seek(v, "latest"), NO_NAME),
    "seek(to)": (lambda w, v: w.channel.seek("g", v), NO_PLACE),
    "read(start)": (lambda w, v: list(w.channel.read(v)), NO_PLACE[1:]),
    "read(end)": (lambda w, v: list(w.channel.read(end=v)), NO_PLACE[1:]),
    "read(group)": (lambda w, v: list(w.channel.read(group=v)), NO_NAME[1:]),
    "read(max_bytes=)": (lambda w, v: list(w.channel.read(max_bytes=v)), NO_SIZE),
    "head(n)": (lambda w, v: w.channel.head(v), NO_COUNT),
    "tail(n)": (lambda w, v: w.channel.tail(v), NO_COUNT),
    "last_batch": (lambda w, v: w.channel.last_batch(v), (None, *NO_TEXT)),
    "evolve": (lambda w, v: w.typed.evolve(v), (None, *NO_OBJECT)),
    "due_ms(deliver_after)": (lambda w, v: w.channel.due_ms(v, None), NO_TIME),
    "due_ms(deliver_at)": (lambda w, v: w.channel.due_ms(None, v), NO_MOMENT),
    "close(checkpoint=)": (lambda w, v: w.channel.close(checkpoint=v), NO_FLAG_OR_NONE),
    "close(flush=)": (lambda w, v: w.channel.close(flush=v), NO_FLAG_OR_NONE),
}  # fmt: skip
TRANSACTIONS: dict[str, tuple[Call, tuple[Any, ...]]] = {
    "put(event)": (lambda w, v: w.put(v), NO_EVENT),
    "put(row)": (lambda w, v: w.put_row(v), NO_EVENT[:-2]),
    "put(ttl=)": (lambda w, v: w.put(ss.Event(b""), ttl=v), (*NO_TIME, 0, INFINITE)),
    "put(deliver_after=)": (lambda w, v: w.put(ss.Event(b""), deliver_after=v), NO_TIME),
    "put(deliver_at=)": (lambda w, v: w.put(ss.Event(b""), deliver_at=v), NO_MOMENT),
    "put_many": (lambda w, v: w.put(v, call="put_many"), NO_EVENTS),
    "put_many of rows": (lambda w, v: w.put_row(v, call="put_many"), NO_EVENTS),
    "put_batch": (lambda w, v: w.put(v, call="put_batch"), NO_ROWS),
    "Event(body)": (lambda w, v: w.put(ss.Event(v)), (None, "x", 5, [], {}, Path("x"))),
    "Event(headers)": (lambda w, v: w.put(ss.Event(b"", v)), ("x", 5, [("a", "b")], {"a": 1}, {1: "a"}, {"a": b"x"})),
    "take(timeout_seconds)": (lambda w, v: w.take("take", v), NO_SECONDS),
    "take_many(limit)": (lambda w, v: w.take("take_many", v), NO_COUNT),
    "take_batch(limit)": (lambda w, v: w.take("take_batch", v), NO_COUNT),
    "Consumer.claim": (lambda w, v: w.channel.consumer("c").claim(v), NO_COUNT),
    "Consumer.seek": (lambda w, v: w.channel.consumer("c").seek(v), (None, "5", -1, NAN, 3.7, True, b"x", [], NAIVE)),
    "Consumer.write_note": (lambda w, v: w.channel.consumer("c").write_note(v), (None, *NO_TEXT)),
}  # fmt: skip
PRODUCERS: dict[str, tuple[Call, tuple[Any, ...]]] = {
    "Producer(target)": (
        lambda w, v: ss.Producer(v), (None, 5, NAN, True, b"x", [], {}, NAIVE, [5], {"a": 5}, {5: "x"})),
    "Producer(producer_id=)": (lambda w, v: ss.Producer(w.channel, producer_id=v), NO_NAME[1:]),
    "Producer(dead_letter=)": (lambda w, v: ss.Producer(w.channel, dead_letter=v), NO_PATH[1:]),
    "Producer(clock=)": (lambda w, v: ss.Producer(w.channel, clock=v), NO_OBJECT),
    "Producer(rng=)": (lambda w, v: ss.Producer(w.channel, rng=v), NO_OBJECT),
    "Producer(retries=)": (lambda w, v: ss.Producer(w.channel, retries=v), NO_OPTION),
    "send(event)": (lambda w, v: w.producer.send(v), (None, "x", 5, NAN, [], {}, NAIVE)),
    "send(headers)": (lambda w, v: w.producer.send(b"x", v), ("x", 5, [], {"a": 1}, {1: "a"})),
    "send(key=) of one channel": (lambda w, v: w.producer.send(b"x", key=v), (5, "x", b"x", [])),
    "send(key=) of channels that share": (lambda w, v: w.sharing.send(b"x", key=v), NO_TEXT),
    "send(key=) of channels by name": (lambda w, v: w.named.send(b"x", key=v), (None, "x", *NO_TEXT)),
    "send(callback=)": (lambda w, v: w.producer.send(b"x", callback=v), NO_FUNCTION),
    "send(max_block_ms=)": (lambda w, v: w.producer.send(ss.Event(b"x"), max_block_ms=v), NO_MILLISECONDS),
    "send(ttl=)": (lambda w, v: w.producer.send(b"x", ttl=v), (*NO_TIME, 0)),
    "send(deliver_after=)": (lambda w, v: w.producer.send(b"x", deliver_after=v), NO_TIME),
    "send(deliver_at=)": (lambda w, v: w.producer.send(b"x", deliver_at=v), NO_MOMENT),
    "send_many(events)": (lambda w, v: w.producer.send_many(v), (None, "x", b"x", 5, [], [1], ["x"], NAIVE)),
    "send_many(sequence=)": (lambda w, v: w.producer.send_many([b"x"], sequence=v), NO_COUNT[1:]),
    "send_many(callback=)": (lambda w, v: w.producer.send_many([b"x"], callback=v), NO_FUNCTION),
    "send_many(max_block_ms=)": (lambda w, v: w.producer.send_many([b"x"], max_block_ms=v), NO_MILLISECONDS),
    "send_batch(batch)": (lambda w, v: w.producer.send_batch(v), NO_ROWS),
    "flush(timeout_seconds)": (lambda w, v: w.producer.flush(v), NO_SECONDS),
    "close(timeout_seconds)": (lambda w, v: w.producer.close(v), NO_SECONDS),
    "AsyncProducer.send(deliver_after=)": (lambda w, v: send_async(w, deliver_after=v), NO_TIME),
    "AsyncProducer.send(callback=)": (lambda w, v: send_async(w, callback=v), NO_FUNCTION),
    "AsyncProducer.send_many(events)": (lambda w, v: send_many_async(w, v), (*NO_EVENTS, [])),
    "ProducerHandler(producer)": (lambda w, v: ss.ProducerHandler(v), (None, *NO_OBJECT)),
    "ProducerHandler(key=)": (lambda w, v: ss.ProducerHandler(w.producer, key=v), NO_TEXT),
    "ProducerHandler(max_block_ms=)": (
        lambda w, v: ss.ProducerHandler(w.producer, max_block_ms=v), (None, INFINITE, -1, "soon", NAN, True, b"x", [])),
    "ProducerHandler(flush_timeout_seconds=)": (
        lambda w, v: ss.ProducerHandler(w.producer, flush_timeout_seconds=v), (None, INFINITE, *NO_SECONDS)),
}  # fmt: skip
TOOLS: dict[str, tuple[Call, tuple[Any, ...]]] = {
    "backup(channel)": (lambda w, v: ss.backup(v, w.directory / "b"), NO_PATH),
    "backup(to)": (lambda w, v: ss.backup(w.channel, v), NO_PATH),
    "backup(progress=)": (lambda w, v: ss.backup(w.channel, w.directory / "b", progress=v), NO_FUNCTION),
    "restore(copy)": (lambda w, v: ss.restore(v, w.directory / "r"), NO_PATH),
    "restore(to)": (lambda w, v: ss.restore(w.directory / "none", v), NO_PATH),
    "restore(new_identity=)": (lambda w, v: ss.restore("b", "r", new_identity=v), NO_FLAG),
    "restore(may_replace=)": (lambda w, v: ss.restore("b", "r", may_replace=v), NO_FUNCTION),
    "verify(path)": (lambda w, v: ss.verify(v), NO_PATH),
    "verify(fs=)": (lambda w, v: ss.verify(w.channel.path, fs=v), NO_OBJECT),
    "verify(progress=)": (lambda w, v: ss.verify(w.channel.path, progress=v), NO_FUNCTION),
    "repair(path)": (lambda w, v: ss.repair(v), NO_PATH),
    "repair(fs=)": (lambda w, v: ss.repair(w.channel.path, fs=v), NO_OBJECT),
    "dead_letters.replay(dead)": (lambda w, v: dead_letters.replay(v, w.channel), NO_PATH),
    "dead_letters.replay(to)": (lambda w, v: dead_letters.replay(w.channel, v), NO_PATH),
    "dead_letters.replay(group=)": (lambda w, v: dead_letters.replay(w.channel, w.typed, group=v), NO_NAME),
    "serve_metrics(channels)": (lambda w, v: ss.serve_metrics(v), (None, "x", b"x", 5, [], [5], [None], Path("x"))),
    "serve_metrics(port)": (lambda w, v: ss.serve_metrics([w.channel], v), (None, "5", -1, NAN, True, b"x", HUGE)),
    "serve_metrics(host=)": (lambda w, v: ss.serve_metrics([w.channel], host=v), (None, *NO_TEXT)),
    "otel_metrics(provider)": (lambda w, v: ss.otel_metrics([w.channel], v), NO_OBJECT),
    "register_credentials(name)": (lambda w, v: ss.register_credentials(v, print), (None, "", *NO_TEXT)),
    "register_credentials(factory)": (lambda w, v: ss.register_credentials("x", v), (None, *NO_FUNCTION)),
    "Retry(after=)": (lambda w, v: ss.Retry(after=v), (*NO_SECONDS, timedelta(seconds=-1))),
    "flow.load(paths)": (lambda w, v: flow.load(v), (None, *NO_PATH[2:], [None])),
    "Agent(name=)": (lambda w, v: flow.Agent(name=v), (None, *NO_TEXT)),
    "Agent(shutdown_timeout_seconds=)": (
        lambda w, v: flow.Agent(shutdown_timeout_seconds=v), (None, *NO_SECONDS)),
    "listener(spark)": (lambda w, v: ss.listener(v), (None, *NO_OBJECT)),
    "register(spark)": (lambda w, v: ss.register(v), (None, *NO_OBJECT)),
    "ChannelProcessor(channels)": (lambda w, v: flow.ChannelProcessor(v), (None, *NO_OBJECT, {"a": 5}, {5: None})),
    "ChannelProcessor(selector)": (
        lambda w, v: flow.ChannelProcessor({"c": w.channel}, selector=v), NO_OBJECT),
    "ChannelProcessor(dead_letter=)": (
        lambda w, v: flow.ChannelProcessor({"c": w.channel}, dead_letter=v), NO_OBJECT),
    "ChannelProcessor(times=)": (
        lambda w, v: flow.ChannelProcessor({"c": w.channel}, times=v), (*NO_OBJECT[:-2], {"c": 5}, NAIVE)),
}  # fmt: skip
ALL = CHANNEL | TRANSACTIONS | PRODUCERS | TOOLS


@pytest.mark.parametrize("name", ALL)
def test_a_wrong_argument_is_refused_where_it_comes_in(
    world: World, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world.directory)
    call, values = ALL[name]
    before = {p.name for p in world.directory.iterdir()}
    for value in values:
        with pytest.raises((ss.OptionError, ss.SchemaError)) as caught:
            call(world, value)
            pytest.fail(f"{value!r} was accepted")
        assert "\n" not in str(caught.value) or isinstance(caught.value, ss.SchemaError)
    assert {p.name for p in world.directory.iterdir()} <= before | {"new", "second"}, "something was created"


def test_no_text_counts_as_a_flag(tmp_path: Path) -> None:
    """As "false" would count as true, a script's own text would open a channel to write that it meant to look at."""
    with pytest.raises(ss.OptionError, match="readonly must be True or False, not 'false'"):
        ss.Channel(tmp_path / "c", readonly="false")  # type: ignore[arg-type]
