from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from spillable_stream.flow.sources import stream_source
from spillable_stream.flow.sources.netcat import Netcat
from spillable_stream.flow.sources.syslog import SyslogTcp
from tests.support.flow_processors import KeptBatches, WaitingBatches
from tests.support.waiting import wait_until


def test_a_stop_stores_what_had_come_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, source = WaitingBatches(), SyslogTcp(0, host="127.0.0.1")
    for patience in ("_LAST_READ_SECONDS", "_SILENCE_SECONDS"):  # a busy machine may need more than a second
        monkeypatch.setattr(f"spillable_stream.flow.sources.stream_source.{patience}", 60.0)
    source.start(kept)
    messages = [b"<1>%d" % i for i in range(30_000)]
    with socket.create_connection(("127.0.0.1", source.port)) as client:
        client.sendall(b"\n".join(messages) + b"\n")
        client.shutdown(socket.SHUT_WR)  # so that nobody waits for more
        assert kept.putting.wait(60)
        stop = threading.Thread(target=source.stop)
        stop.start()
        wait_until(source._stopping.is_set)
        kept.go_on.set()
        stop.join(60)
    assert kept.bodies() == [m.removeprefix(b"<1>") for m in messages]


@pytest.mark.parametrize("came_before", [True, False], ids=["bytes-then-stop", "stop-then-bytes"])
def test_a_stop_drops_nothing_that_comes_in_the_same_round_of_the_loop(came_before: bool) -> None:
    async def read_all() -> tuple[list[bytes], bool]:
        source, reader = Netcat("127.0.0.1", 0), asyncio.StreamReader()
        reading = asyncio.create_task(source.read(reader))
        await asyncio.sleep(0)
        assert source._idle == {reading}

        def come() -> None:
            reader.feed_data(b"the last bytes")
            reader.feed_eof()

        if came_before:
            come()
        source._stopping.set()
        await source.unlisten()
        if not came_before:
            come()
        read = [await reading, await source.read(reader)]
        return read, reader.at_eof()  # a last message without a newline is whole then

    assert asyncio.run(read_all()) == ([b"the last bytes", b""], True)


async def last_bytes(
    monkeypatch: pytest.MonkeyPatch, come: Callable[[int, asyncio.StreamReader], None], *, is_within_line: bool
) -> list[bytes]:
    """Return what a connection reads after a stop, if something may come after each silence."""
    source, reader, silences, wait_for = Netcat("127.0.0.1", 0), asyncio.StreamReader(), 0, asyncio.wait_for

    async def be_silent(reading: Any, seconds: float) -> Any:
        nonlocal silences
        if not reader._buffer and silences < 5:  # type: ignore[attr-defined]
            reading.close()
            silences += 1
            come(silences, reader)
            raise TimeoutError
        return await wait_for(reading, seconds)

    monkeypatch.setattr(asyncio, "wait_for", be_silent)
    monkeypatch.setattr(stream_source, "_LAST_READ_SECONDS", 600.0)
    source._stopping.set()
    await source.unlisten()
    found = [await source.read(reader, is_within_line=is_within_line)]
    monkeypatch.setattr(asyncio, "wait_for", wait_for)
    return [*found, bytes(reader._buffer)]  # type: ignore[attr-defined]


def test_a_stop_waits_for_the_end_of_a_line_that_has_begun_though_the_client_is_silent_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def come(silences: int, reader: asyncio.StreamReader) -> None:
        if silences == 5:
            reader.feed_data(b"its end\n")

    assert asyncio.run(last_bytes(monkeypatch, come, is_within_line=True)) == [b"its end\n", b""]


def test_bytes_that_came_together_with_the_end_of_a_silence_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def come(silences: int, reader: asyncio.StreamReader) -> None:
        if silences == 1:  # the loop was busy, and took the silence for one though they were there
            reader.feed_data(b"the last line\n")

    assert asyncio.run(last_bytes(monkeypatch, come, is_within_line=False)) == [b"the last line\n", b""]


def test_a_stop_does_not_wait_for_a_client_that_sends_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spillable_stream.flow.sources.stream_source._LAST_READ_SECONDS", 0.0)
    source, ended = Netcat("127.0.0.1", 0, ack_every_event=False), threading.Event()

    def send() -> None:
        with socket.create_connection(("127.0.0.1", source.port)) as client, suppress(OSError):
            while not ended.is_set():
                client.sendall(b"x\n" * 1000)

    source.start(KeptBatches())
    sending = threading.Thread(target=send, daemon=True)
    sending.start()
    wait_until(lambda: source.counters.event_accepted_count)
    stop = threading.Thread(target=source.stop, daemon=True)
    stop.start()
    stop.join(60)
    assert not stop.is_alive()
    ended.set()
    sending.join(60)
