from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
import uvicorn

from spillable_stream import Channel
from spillable_stream.errors import ChannelFullError, DeliveryError, OptionError, PutTooLargeError, StorageError
from spillable_stream.flow.processor import ChannelProcessor
from spillable_stream.flow.sources import http as http_module
from spillable_stream.flow.sources.base import BatchProcessor
from spillable_stream.flow.sources.http import Http
from spillable_stream.flow.sources.http_handlers import HttpRequest, JsonHandler
from tests.support.flow_processors import KeptBatches
from tests.support.waiting import wait_until


@contextmanager
def listening(kept: BatchProcessor, **options: Any) -> Iterator[tuple[Http, httpx.Client]]:
    source = Http(0, bind="127.0.0.1", **options)
    source.start(kept)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{source.port}", timeout=30, trust_env=False) as client:
            yield source, client
    finally:
        source.stop()


EVENTS = [{"headers": {"a": "1"}, "body": "one"}, {"body": "ü"}, {"headers": {}}]


@pytest.mark.parametrize("charset", ["", "utf-8", "UTF-16", "utf-32"])
def test_a_request_is_one_batch_and_is_answered_when_it_is_stored(charset: str) -> None:
    kept = KeptBatches()
    headers = {"Content-Type": f"application/json; charset={charset}" if charset else "application/json"}
    with listening(kept) as (_, client):
        body = json.dumps(EVENTS, ensure_ascii=False).encode(charset or "utf-8")
        assert client.post("/", content=body, headers=headers).status_code == 200
    assert kept.bodies() == [b"one", "ü".encode(), b""]
    assert kept.headers() == [{"a": "1"}, {}, {}]
    assert len(kept.batches[0]) == 1


def test_get_is_taken_as_post_at_any_path() -> None:
    kept = KeptBatches()
    with listening(kept) as (_, client):
        assert client.request("GET", "/any/path", content=json.dumps(EVENTS[:1])).status_code == 200
    assert kept.bodies() == [b"one"]


@pytest.mark.parametrize("body", ["{", '{"body": "x"}', '[{"body": [1]}]', '[{"headers": {"a": {}}}]', ""])
def test_a_malformed_request_is_answered_with_400_and_why(body: str) -> None:
    kept = KeptBatches()
    with listening(kept) as (source, client):
        answer = client.post("/", content=body)
        assert answer.status_code == 400
        assert "is not a JSON array" in answer.text
        assert source.counters.flume_counters()["EventReadFail"] == 1
        other = client.post("/", content="[]", headers={"Content-Type": "text/plain; charset=EBCDIC"})
        assert other.status_code == 400
    assert kept.batches[0] == []


def test_a_full_channel_is_answered_with_503_and_when_to_come_again() -> None:
    kept = KeptBatches()
    kept.full = {0}
    with listening(kept) as (_, client):
        answer = client.post("/", content=json.dumps(EVENTS))
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")


@pytest.mark.parametrize("key", [None, "client/1"])
def test_a_request_that_no_transaction_can_hold_is_answered_with_413_and_is_in_no_channel(
    tmp_path: Path, key: str | None
) -> None:
    with (
        Channel(tmp_path / "a", minimum_required_space=0) as a,
        Channel(tmp_path / "b", minimum_required_space=0, transaction_capacity=2) as b,
        ChannelProcessor({"a": a, "b": b}) as processor,
        listening(processor) as (source, client),
    ):
        headers = {"Idempotency-Key": key} if key else {}
        answer = client.post("/", content=json.dumps(EVENTS), headers=headers)
        assert (answer.status_code, "Retry-After" in answer.headers) == (413, False)
        assert answer.text == (
            "a batch has 3 events for the channel b, whose transaction_capacity is 2: send 2 at most, or raise "
            "transaction_capacity"
        )
        assert source.counters.flume_counters()["EventReadFail"] == 1
        assert client.post("/", content=json.dumps(EVENTS[:2]), headers=headers).status_code == 200
        assert a.stats().channel_size == b.stats().channel_size == 2


@pytest.mark.parametrize("key", [None, "client/1"])
def test_a_request_that_is_larger_than_a_channel_is_answered_with_413_and_is_in_no_channel(
    tmp_path: Path, key: str | None
) -> None:
    """It could be sent again forever: a 503 would say that it may fit later."""
    with (
        Channel(tmp_path / "a", minimum_required_space=0) as a,
        Channel(tmp_path / "b", memory_capacity=100, overflow_capacity=0, byte_capacity=1 << 20) as b,
        ChannelProcessor({"a": a, "b": b}) as processor,
        listening(processor) as (source, client),
    ):
        headers = {"Idempotency-Key": key} if key else {}
        large = [{"body": "x" * 300_000}]
        answer = client.post("/", content=json.dumps(large * 3), headers=headers)
        assert (answer.status_code, "Retry-After" in answer.headers) == (413, False)
        assert "3 events do not fit" in answer.text and answer.text.endswith(
            "Raise byte_capacity, or put fewer at once"
        )
        assert source.counters.flume_counters()["EventReadFail"] == 1
        assert client.post("/", content=json.dumps(large * 2), headers=headers).status_code == 200
        assert a.stats().channel_size == b.stats().channel_size == 2


def test_a_number_that_a_later_one_has_passed_over_is_answered_with_409(tmp_path: Path) -> None:
    with (
        Channel(tmp_path / "a", minimum_required_space=0) as a,
        ChannelProcessor({"a": a}) as processor,
        listening(processor) as (source, client),
    ):
        answers = [
            client.post("/", content=json.dumps(EVENTS), headers={"Idempotency-Key": f"client/{number}"})
            for number in (2, 1, 2)
        ]
        assert [answer.status_code for answer in answers] == [200, 409, 200]
        assert "send these events under the next one" in answers[1].text
        assert a.stats().channel_size == 3
        assert source.counters.flume_counters()["EventReadFail"] == 1


def test_a_channel_whose_capacity_was_lowered_refuses_for_good_too() -> None:
    class TooLarge(KeptBatches):
        def process(self, events: pa.RecordBatch, *, number: int | None = None, note: bytes = b"") -> None:
            raise DeliveryError("not in b", {"a": ChannelFullError("full"), "b": PutTooLargeError("too large")})

    with listening(TooLarge()) as (_, client):
        assert client.post("/", content=json.dumps(EVENTS)).status_code == 413


@pytest.mark.parametrize("error", [StorageError("the disk refused"), RuntimeError("a bug")])
def test_any_other_failure_is_answered_with_500(error: Exception) -> None:
    class Fails(KeptBatches):
        def process(self, events: pa.RecordBatch, *, number: int | None = None, note: bytes = b"") -> None:
            raise error

    with listening(Fails()) as (_, client):
        answer = client.post("/", content=json.dumps(EVENTS))
        assert answer.status_code == 500
        assert str(error) in answer.text


def test_a_request_with_a_key_is_stored_once_in_each_channel(tmp_path: Path) -> None:
    with (
        Channel(tmp_path / "a", minimum_required_space=0) as a,
        Channel(tmp_path / "b", minimum_required_space=0, memory_capacity=0, overflow_capacity=2, keep_alive=0) as b,
        ChannelProcessor({"a": a, "b": b}) as processor,
        listening(processor) as (_, client),
    ):

        def post(number: int, key: str) -> int:
            content = json.dumps([{"body": str(number)}])
            return client.post("/", content=content, headers={"Idempotency-Key": key}).status_code

        assert [post(n, f"client-7/{n}") for n in (1, 1, 2, 1)] == [200] * 4
        assert post(3, "client-7/3") == 503  # b is full, and a has it
        with b.take_transaction() as tx:
            assert [e.body for e in tx.take_many(2)] == [b"1", b"2"]
        assert post(3, "client-7/3") == 200
        wrong = ("1", "client/", "/1", "client/x", "client/0", f"client/{2**63}", "client/" + "9" * 5000)
        assert [post(0, key) for key in wrong] == [400] * len(wrong)
        with a.take_transaction() as of_a, b.take_transaction() as of_b:
            assert [e.body for e in of_a.take_many(9)] == [b"1", b"2", b"3"]
            assert [e.body for e in of_b.take_many(9)] == [b"3"]


def test_a_blob_is_the_body_as_it_is_with_the_parameters_as_headers() -> None:
    kept = KeptBatches()
    options = {"handler": "org.apache.flume.sink.solr.morphline.BlobHandler"}
    with listening(kept, **options, handler_properties={"mandatoryParameters": "a, b"}) as (_, client):
        assert client.post("/?a=1&b=2", content=b"\x00\xff").status_code == 200
        assert client.post("/?a=1", content=b"x").status_code == 400
    assert kept.bodies() == [b"\x00\xff"]
    assert kept.headers() == [{"a": "1", "b": "2"}]
    with listening(kept, **options) as (_, client):
        assert client.post("/", content=b"no parameters").status_code == 200


def test_a_stop_does_not_wait_for_a_request_that_is_half_sent() -> None:
    source = Http(0, bind="127.0.0.1")
    source.start(KeptBatches())
    with socket.create_connection(("127.0.0.1", source.port)) as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n[")
        wait_until(lambda: source._uploads)
        stop = threading.Thread(target=source.stop, daemon=True)
        stop.start()
        assert client.makefile("rb").readline().startswith(b"HTTP/1.1 503 ")
        stop.join(30)
        assert not stop.is_alive()


def test_a_request_whose_client_goes_before_all_of_it_is_there_is_counted_and_is_no_error_of_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kept = KeptBatches()
    with listening(kept) as (source, client):
        for head in (
            "Content-Length: 100\r\n\r\n[",
            "Transfer-Encoding: chunked\r\n\r\n5\r\n[{",
            "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        ):
            before = source.counters.event_read_fail
            with socket.create_connection(("127.0.0.1", source.port)) as gone:
                gone.sendall(f"POST / HTTP/1.1\r\nHost: x\r\n{head}".encode())
                wait_until(lambda: source._uploads or source.counters.event_read_fail > before)  # noqa: B023
            wait_until(lambda: source.counters.event_read_fail > before)  # noqa: B023
        assert client.post("/", content=json.dumps(EVENTS)).status_code == 200
    assert [r for r in caplog.records if r.levelname == "ERROR"] == []


def test_a_large_request_is_read_while_others_are_answered() -> None:
    release = threading.Event()

    class Reader(JsonHandler):
        def events(self, request: HttpRequest) -> pa.RecordBatch:
            assert len(request.body) < 100_000 or release.wait(30)
            return super().events(request)

    kept = KeptBatches()
    with listening(kept, handler=Reader()) as (_, client):
        large = json.dumps([{"body": "x" * 100_000}])
        post = threading.Thread(target=lambda: client.post("/", content=large))
        post.start()
        try:
            assert client.post("/", content=json.dumps(EVENTS[:1])).status_code == 200
        finally:
            release.set()
            post.join(30)
    assert [len(body) for body in kept.bodies()] == [3, 100_000]


def test_a_stop_answers_the_requests_under_way() -> None:
    release, answers = threading.Event(), []

    class Slow(KeptBatches):
        def process(self, events: pa.RecordBatch, *, number: int | None = None, note: bytes = b"") -> None:
            release.wait(30)
            super().process(events, number=number, note=note)

    kept = Slow()
    with listening(kept) as (source, client):
        post = threading.Thread(target=lambda: answers.append(client.post("/", content=json.dumps(EVENTS)).status_code))
        post.start()
        wait_until(lambda: source.counters.event_received_count == 3)
        stop = threading.Thread(target=source.stop)
        stop.start()
        release.set()
        stop.join(30)
        post.join(30)
    assert answers == [200]
    assert len(kept.bodies()) == 3


def test_a_port_in_use_and_an_unknown_handler_are_refused() -> None:
    with listening(KeptBatches()) as (source, _), pytest.raises(StorageError, match="can't listen"):
        Http(source.port, bind="127.0.0.1").start(KeptBatches())
    with pytest.raises(OptionError, match="handler"):
        Http(0, handler="com.acme.Handler")


def test_a_request_that_is_larger_than_memory_should_hold_is_answered_with_413_before_all_of_it_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_module, "_MOST_BODY_BYTES", 1000)
    kept, given = KeptBatches(), list[int]()

    def endless() -> Iterator[bytes]:
        while len(given) < 100_000:
            given.append(len(given))
            yield bytes(1 << 16)

    with listening(kept) as (source, client):
        with suppress(httpx.HTTPError):  # it may be told while it sends
            answer = client.post("/", content=endless())
            assert answer.status_code == 413 and "more than 1,000 bytes" in answer.text
        wait_until(lambda: source.counters.event_read_fail == 1)
        assert len(given) < 100_000, "the connection was closed"
        assert client.post("/", content=json.dumps(EVENTS[:1])).status_code == 200
    assert kept.bodies() == [b"one"]


def test_a_server_that_ended_by_itself_is_noticed_and_a_start_serves_again_at_the_same_port(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its supervisor took a source for alive whose server had ended."""
    kept = KeptBatches()
    with listening(kept) as (source, client):
        assert source.alive

        async def fails(server: uvicorn.Server, counter: int) -> bool:
            raise RuntimeError("a bug of the server")

        with monkeypatch.context() as patched:
            patched.setattr(uvicorn.Server, "on_tick", fails)
            wait_until(lambda: not source.alive)
        source._address = ("127.0.0.1", source.port)
        source.start(kept)
        assert source.alive and "Http: its server ended by itself" in caplog.text
        assert client.post("/", content=json.dumps(EVENTS)).status_code == 200
    assert not source.alive


def test_a_stop_does_not_wait_for_a_request_that_begins_while_it_is_being_stopped() -> None:
    """On a connection that was kept alive: the stop had ended the uploads that it saw, and waited for this one."""
    source, sent = Http(0, bind="127.0.0.1"), list[dict[str, Any]]()
    source._stopping.set()

    async def receive() -> None:
        raise AssertionError("it may never come")

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": []}
    asyncio.run(source._answer(scope, receive, send))
    assert sent[0]["status"] == 503
