from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import Channel, Event
from spillable_stream.channel.take_transaction import TakeTransaction
from spillable_stream.errors import OptionError, StorageError
from spillable_stream.flow.sinks.http import HttpSink
from spillable_stream.flow.sources.base import Status

got: list[tuple[bytes, str]] = []
status = 200


class Server(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        got.append((body, self.headers["Spillable-Event-Id"]))
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    got.clear()
    yield f"http://127.0.0.1:{server.server_port}/x"
    server.shutdown()
    server.server_close()


@pytest.fixture
def channel(open_channel: Callable[..., Channel]) -> Channel:
    channel = open_channel()
    with channel.put_transaction() as tx:
        tx.put_many([Event(b"one"), Event(b""), Event(b"two")])
    return channel


def test_each_event_is_posted_with_its_id_and_an_empty_one_is_not(endpoint: str, channel: Channel) -> None:
    sink = HttpSink(endpoint, rollback={"2XX": False}, backoff={"200": False}, increment_metrics={"2xx": True})
    sink.open(channel)
    assert [sink.process() for _ in range(4)] == [Status.READY] * 3 + [Status.BACKOFF]
    assert got == [(b"one", f"{channel.uuid}/1"), (b"two", f"{channel.uuid}/3")]
    assert sink.counters.flume_counters()["EventDrainSuccessCount"] == 2
    sink.close()


def test_by_default_a_200_is_sent_again_as_flume_does_and_is_named(
    endpoint: str, channel: Channel, caplog: pytest.LogCaptureFixture
) -> None:
    sink = HttpSink(endpoint)
    sink.open(channel)
    assert [sink.process() for _ in range(2)] == [Status.BACKOFF] * 2
    assert [body for body, _ in got] == [b"one", b"one"]
    assert caplog.text.count("the event is sent again; see rollback.200") == 1
    sink.in_group = True
    with pytest.raises(StorageError, match="another sink of the group"):
        sink.process()


def test_a_status_counts_before_its_class(endpoint: str, channel: Channel) -> None:
    global status
    sink = HttpSink(endpoint, rollback={"503": False, "5XX": True}, backoff={"5XX": False})
    sink.open(channel)
    try:
        status = 500
        assert sink.process() is Status.READY
        status = 503
        assert sink.process() is Status.READY
    finally:
        status = 200
    assert channel.stats().channel_size == 2


@pytest.mark.parametrize(("answer", "rollback", "is_dead"), [
    (400, {}, True), (422, {"2XX": False}, True), (404, {}, False), (503, {}, False), (400, {"4XX": True}, False),
])  # fmt: skip
def test_an_event_that_the_server_finds_wrong_is_a_dead_letter(
    endpoint: str, channel: Channel, tmp_path: Path, answer: int, rollback: dict[str, bool], is_dead: bool
) -> None:
    global status
    sink = HttpSink(endpoint, rollback=rollback)
    with Channel(tmp_path / "dead", minimum_required_space=0) as dead:
        sink.name, sink.dead_letter = "a1.k1", dead
        sink.open(channel)
        try:
            status = answer
            assert sink.process() is (Status.READY if is_dead else Status.BACKOFF)
        finally:
            status = 200
        with dead.take_transaction() as tx:
            letters = tx.take_many(2)
    assert channel.stats().channel_size == (2 if is_dead else 3)
    assert len(letters) == is_dead
    for letter in letters:
        assert letter.body == b"one" and letter.headers["deadletter.id"] == "1"
        assert letter.headers["deadletter.error"] == f"{endpoint} answered {answer}"


def test_a_dead_letter_is_there_once_though_its_take_was_not_committed(
    endpoint: str, channel: Channel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    global status
    with Channel(tmp_path / "dead", minimum_required_space=0) as dead:
        for crashes in (True, False):
            sink = HttpSink(endpoint, rollback={"2XX": False})
            sink.name, sink.dead_letter = "a1.k1", dead
            sink.open(channel)
            status = 400
            try:
                with monkeypatch.context() as patched:
                    if crashes:
                        patched.setattr(TakeTransaction, "commit", crash)
                        with pytest.raises(StorageError, match="crash"):
                            sink.process()
                    else:
                        assert sink.process() is Status.READY
            finally:
                status = 200
        assert dead.stats().channel_size == 1
    assert channel.stats().channel_size == 2
    assert [body for body, _ in got] == [b"one"]


def crash(*_: object) -> None:
    raise StorageError("crash")


def test_a_server_that_does_not_answer_gets_the_event_again(channel: Channel) -> None:
    sink = HttpSink("http://127.0.0.1:9/", connect_timeout=1000)
    sink.open(channel)
    with pytest.raises(StorageError, match="does not answer"):
        sink.process()
    assert channel.stats().channel_size == 3
    assert sink.counters.flume_counters()["ConnectionFailedCount"] == 1


@pytest.fixture
def gate() -> Iterator[Gate]:
    server = Gate(("127.0.0.1", 0), GatedServer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


class Gate(ThreadingHTTPServer):
    """Answers when a number of requests is there, with the status of each body."""

    daemon_threads = True
    barrier = threading.Barrier(1)

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.statuses: dict[bytes, int] = {}
        self.bodies: list[bytes] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"


class GatedServer(BaseHTTPRequestHandler):
    server: Gate

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.barrier.wait(30)
        self.server.bodies.append(body)
        self.send_response(self.server.statuses.get(body, 200))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def filled(open_channel: Callable[..., Channel], count: int) -> Channel:
    channel = open_channel()
    with channel.put_transaction() as tx:
        tx.put_many([Event(str(n).encode()) for n in range(count)])
    return channel


def test_requests_are_in_flight_at_once_as_many_as_go_well(gate: Gate, open_channel: Callable[..., Channel]) -> None:
    channel = filled(open_channel, 9)
    sink = HttpSink(gate.address, rollback={"2XX": False}, max_requests=3)
    sink.open(channel)
    for in_flight in (1, 2, 3, 3):
        gate.barrier = threading.Barrier(in_flight)
        sink.process()
    sink.close()
    assert sorted(gate.bodies) == [str(n).encode() for n in range(9)]
    assert channel.stats().channel_size == 0


def test_what_was_accepted_is_not_sent_again_with_what_was_not(
    gate: Gate, open_channel: Callable[..., Channel]
) -> None:
    channel = filled(open_channel, 3)
    sink = HttpSink(gate.address, rollback={"2XX": False}, max_requests=8)
    sink.open(channel)
    sink.process()
    gate.statuses = {b"1": 503}
    sink.process()
    assert channel.stats().channel_size == 2
    gate.statuses = {}
    gate.bodies.clear()
    sink.process()
    sink.process()
    sink.close()
    assert gate.bodies == [b"1"]
    assert channel.stats().channel_size == 0
    assert sink.counters.event_write_fail == 1


@pytest.mark.parametrize("refuses", ["the dead letters' channel", "the commit"])
def test_what_was_accepted_is_not_sent_again_where_something_else_is_refused(
    gate: Gate, open_channel: Callable[..., Channel], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, refuses: str
) -> None:
    channel = filled(open_channel, 3)
    with Channel(tmp_path / "dead", minimum_required_space=0) as dead:
        sink = HttpSink(gate.address, rollback={"2XX": False}, max_requests=8)
        sink.dead_letter = dead
        sink.open(channel)
        sink.process()
        gate.statuses = {b"1": 400}
        refused = HttpSink if refuses == "the dead letters' channel" else TakeTransaction
        with monkeypatch.context() as patched, pytest.raises(StorageError, match="crash"):
            patched.setattr(refused, "bury" if refused is HttpSink else "commit", crash)
            sink.process()
        sink.process()
        sink.close()
        assert gate.bodies.count(b"2") == 1
        assert dead.stats().channel_size == 1
    assert channel.stats().channel_size == 0


@pytest.mark.parametrize(
    "endpoint",
    ["h:80", "http://", "http:///x", "http://[bad", "http://h:99999/x", "http://h:x/", "ftp://h/", "http://h\n/"],
)
def test_an_endpoint_that_names_no_server_is_refused(endpoint: str) -> None:
    with pytest.raises(OptionError, match="endpoint must be an address such as http://host:8080/events, not "):
        HttpSink(endpoint)
    for good in ("http://h", "HTTPS://h:8080/x?y=z", "http://[::1]:80/", "http://user:p@h/"):
        HttpSink(good)


@pytest.mark.parametrize("header", ["content_type_header", "accept_header"])
@pytest.mark.parametrize("value", ["text/plain\r\nX-Other: 1", "text/\N{LATIN SMALL LETTER U WITH DIAERESIS}"])
def test_a_header_that_no_request_can_have_is_refused(header: str, value: str) -> None:
    with pytest.raises(OptionError, match="must be printable ASCII"):
        HttpSink("http://h", **{header: value})
