from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spillable_stream.errors import OptionError, PutTooLargeError, StorageError
from spillable_stream.flow.processor import ChannelProcessor
from spillable_stream.flow.sources import stream_source
from spillable_stream.flow.sources.held import lose_unstored
from spillable_stream.flow.sources.netcat import Netcat
from tests.support.failed_channels import failed_channel
from tests.support.flow_processors import KeptBatches, Routed
from tests.support.waiting import wait_until


@contextmanager
def listening(kept: KeptBatches, **options: Any) -> Iterator[Netcat]:
    source = Netcat("127.0.0.1", 0, **options)
    source.start(kept)
    try:
        yield source
    finally:
        source.stop()


@contextmanager
def client(source: Netcat) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", source.port), timeout=30) as connection:
        yield connection


def answer(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size and (data := connection.recv(1 << 16)):
        found += data
    return found


def answer_line(connection: socket.socket) -> bytes:
    found = b""
    while not found.endswith(b"\n") and (data := connection.recv(1 << 16)):
        found += data
    return found


def test_each_line_is_an_event_and_is_answered_when_it_is_stored() -> None:
    kept = KeptBatches()
    with listening(kept) as source, client(source) as c:
        c.sendall(b"one\ntwo\r\nthr")
        assert answer(c, 6) == b"OK\nOK\n"
        assert kept.bodies() == [b"one", b"two\r"]
        c.sendall(b"ee\n")
        assert answer(c, 3) == b"OK\n"
    assert kept.bodies() == [b"one", b"two\r", b"three"]


def test_lines_of_one_read_are_one_batch() -> None:
    kept = KeptBatches()
    with listening(kept) as source, client(source) as c:
        c.sendall(b"x\n" * 1000)
        answer(c, 3000)
    assert len(kept.bodies()) == 1000
    assert len(kept.batches[0]) < 10


@pytest.mark.parametrize("answers", [True, False])
def test_more_lines_than_a_transaction_holds_are_several_batches(answers: bool) -> None:
    kept = KeptBatches(most_events=100)
    lines = [b"%d" % i for i in range(250)]
    with listening(kept, ack_every_event=answers) as source, client(source) as connection:
        connection.sendall(b"\n".join(lines) + b"\n")
        wait_until(lambda: kept.bodies() == lines)
        assert not answers or answer(connection, 3 * 250) == b"OK\n" * 250
    assert max(b.num_rows for b in kept.batches[0]) == 100


def test_a_refused_batch_is_answered_with_the_reason() -> None:
    kept = KeptBatches()
    kept.full = {0}
    with listening(kept) as source, client(source) as c:
        c.sendall(b"one\n")
        assert answer(c, 52).startswith(b"FAILED: a batch is not in c0: the channel 0 is full\n")
        kept.full = set()
        c.sendall(b"one\n")
        assert answer(c, 3) == b"OK\n"
        assert source.counters.flume_counters()["ChannelWriteFail"] == 1
    assert kept.bodies() == [b"one"]


def test_lines_that_come_when_a_channel_has_failed_are_answered_with_the_reason(tmp_path: Path) -> None:
    failed = failed_channel(tmp_path / "c")
    source = Netcat("127.0.0.1", 0)
    source.start(ChannelProcessor({"c": failed}))
    with client(source) as c:
        for _ in range(2):
            c.sendall(b"one\n")
            assert answer_line(c).startswith(b"FAILED: ")
    source.stop()
    failed.close()


def test_a_line_at_which_an_interceptor_fails_is_answered_with_the_reason() -> None:
    class Fails(KeptBatches):
        def process(self, events: pa.RecordBatch, **how: Any) -> None:
            if events.column("body").to_pylist() == [b"bad"]:
                raise ZeroDivisionError("of its own")
            super().process(events, **how)

    kept = Fails()
    with listening(kept) as source, client(source) as c:
        c.sendall(b"bad\n")
        expected = b"FAILED: ZeroDivisionError: of its own\n"
        assert answer(c, len(expected)) == expected
        c.sendall(b"one\n")
        assert answer(c, 3) == b"OK\n"
        assert source.counters.generic_processing_fail == 1
    assert kept.bodies() == [b"one"]


def test_a_line_that_never_fits_is_refused_alone_with_the_reason() -> None:
    class Small(KeptBatches):
        def route(self, events: pa.RecordBatch) -> Routed:
            if sum(map(len, events.column("body").to_pylist())) > 4:
                raise PutTooLargeError("too large")
            return super().route(events)

    kept = Small()
    with listening(kept) as source, client(source) as c:
        c.sendall(b"one\ntwo\nthree\nfour\n")
        expected = b"OK\nOK\nFAILED: too large\nOK\n"
        assert answer(c, len(expected)) == expected
        counters = source.counters.flume_counters()
        assert (counters["EventReceivedCount"], counters["EventAcceptedCount"]) == (4, 3), "each is counted once"
    assert kept.bodies() == [b"one", b"two", b"four"]


def test_without_answers_a_refused_batch_is_held_until_it_is_stored() -> None:
    kept = KeptBatches()
    kept.full = {0}
    with listening(kept, ack_every_event=False) as source, client(source) as c:
        c.sendall(b"one\n")
        wait_until(lambda: source.counters.channel_write_fail >= 1)
        c.sendall(b"two\n")
        kept.full = set()
        wait_until(lambda: kept.bodies() == [b"one", b"two"])


def test_a_stop_counts_what_came_behind_a_batch_that_a_channel_refuses(caplog: pytest.LogCaptureFixture) -> None:
    kept = KeptBatches()
    kept.full = {0}
    with listening(kept, ack_every_event=False) as source, client(source) as c:
        c.sendall(b"one\ntwo\nthr")
        wait_until(lambda: source.counters.channel_write_fail >= 1)
        c.sendall(b"ee\nfour\nfi")
        source.stop()
        lose_unstored(source)
        assert "4 events are not stored, and lost" in caplog.text
        assert source.counters.flume_counters()["EventReceivedCount"] == 4
        assert "2 bytes are there, and they are dropped" in caplog.text
        assert source.counters.event_read_fail == 1


@pytest.mark.parametrize("letter", ["x", "ü"])
@pytest.mark.parametrize("answers", [True, False])
def test_a_line_that_is_too_long_is_refused_and_counted_and_those_behind_it_are_stored(
    caplog: pytest.LogCaptureFixture, letter: str, answers: bool
) -> None:
    """Its client is told also where lines are not answered, as Flume does; there only once: it may read nothing."""
    kept = KeptBatches()
    failed = b"FAILED: Event exceeds the maximum length (10 chars, including newline)\n"
    with listening(kept, max_line_length=10, ack_every_event=answers) as source, client(source) as c:
        c.sendall(f"{letter * 9}\n{letter * 10}\nnext\n{letter * 99}".encode())
        answered = b"OK\n" + failed + b"OK\n" + failed if answers else failed
        assert answer(c, len(answered)) == answered
        wait_until(lambda: source.counters.event_read_fail == 2)
        c.sendall(f"{letter}\nlast\n".encode())
        wait_until(lambda: len(kept.bodies()) == 3)
        c.shutdown(socket.SHUT_WR)
        assert answer(c, 1000) == (b"OK\n" if answers else b"")
    assert kept.bodies() == [(letter * 9).encode(), b"next", b"last"]
    assert caplog.text.count("127.0.0.1 sent a line of 10 characters or more") == 1
    assert "max-line-length" in caplog.text and source.counters.event_read_fail == 2


def test_bodies_are_utf_8_whatever_the_encoding() -> None:
    kept = KeptBatches()
    with listening(kept, encoding="ISO-8859-1") as source, client(source) as c:
        c.sendall(b"\xe4\n")
        answer(c, 3)
    assert kept.bodies() == ["ä".encode()]


def test_a_stop_answers_what_was_read_and_closes_the_connections() -> None:
    kept = KeptBatches()
    with listening(kept) as source, client(source) as c, client(source) as idle:
        c.sendall(b"one\n")
        answer(c, 3)
        source.stop()
        assert answer(c, 1) == answer(idle, 1) == b""
    assert not source.alive


@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_line_without_its_end_is_counted_and_named(
    is_stopped: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stream_source, "_LAST_READ_SECONDS", 0.1)
    kept = KeptBatches()
    with listening(kept) as source, client(source) as c:
        c.sendall(b"one\nhalf")
        answer(c, 3)
        if is_stopped:
            source.stop()
        else:
            c.shutdown(socket.SHUT_WR)
        assert answer(c, 1) == b""
    assert kept.bodies() == [b"one"]
    assert source.counters.event_read_fail == 1
    why = "the source was stopped" if is_stopped else "the connection ended"
    said = f"{why} before the line feed of the last line of 127.0.0.1 came: 4 bytes are there, and they are dropped"
    assert said in caplog.text


def test_a_stop_does_not_wait_for_a_client_that_does_not_read_its_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_source, "_LAST_READ_SECONDS", 0.05)
    kept, source = KeptBatches(), Netcat("127.0.0.1", 0)
    source.start(kept)
    with client(source) as connection:
        connection.setblocking(False)
        writes = threading.Thread(target=send_while_it_is_read, args=(connection, source), daemon=True)
        writes.start()
        wait_until(lambda: bool(source._answering) and not source._idle and not writes.is_alive())
        stops = threading.Thread(target=source.stop, daemon=True)
        stops.start()
        stops.join(30)
        has_ended = not stops.is_alive()
    stops.join(30)  # the client has gone
    assert has_ended


def send_while_it_is_read(connection: socket.socket, source: Netcat) -> None:
    """Send lines, and read no answer, until the other end reads no more."""
    refused = 0
    while refused < 50:
        try:
            connection.send(b"x\n" * 10_000)
            refused = 0
        except BlockingIOError:
            refused += bool(source._answering)
            select.select([], [connection], [], 0.02)


def test_a_port_in_use_and_an_address_of_nobody_are_refused() -> None:
    with listening(KeptBatches()) as source, pytest.raises(StorageError, match=f"on 127.0.0.1:{source.port}"):
        Netcat("127.0.0.1", source.port).start(KeptBatches())
    with pytest.raises(OptionError, match="correct bind"):
        Netcat("no such host", 0).start(KeptBatches())
    with pytest.raises(OptionError, match="character set"):
        Netcat("127.0.0.1", 0, encoding="none")
