from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from spillable_stream.errors import OptionError, StorageError
from spillable_stream.flow.sources import network
from spillable_stream.flow.sources.http import Http
from spillable_stream.flow.sources.netcat import Netcat
from spillable_stream.flow.sources.netcat_udp import NetcatUdp
from spillable_stream.flow.sources.network import NetworkSource, bound_socket, server_tls
from spillable_stream.flow.sources.syslog import SyslogTcp
from tests.support.flow_processors import KeptBatches, Routed
from tests.support.no_threads import no_threads
from tests.support.waiting import wait_until


def test_all_sources_share_one_loop_which_ends_with_the_last() -> None:
    def loops() -> int:
        return sum(t.name == "flow-network" for t in threading.enumerate())

    sources = [Netcat("127.0.0.1", 0) for _ in range(3)]
    for source in sources:
        source.start(KeptBatches())
    assert loops() == 1
    assert len({s.port for s in sources}) == 3
    for source in sources:
        source.stop()
        source.stop()
    assert loops() == 0


def test_a_source_can_be_started_again_and_one_that_failed_leaves_nothing() -> None:
    source = Netcat("no such host", 0)
    with pytest.raises(OptionError):
        source.start(KeptBatches())
    assert not source.alive
    source = Netcat("127.0.0.1", 0)
    for _ in range(2):
        source.start(KeptBatches())
        assert source.alive
        source.stop()


@pytest.mark.parametrize(
    "hangs",
    [lambda: Netcat("slow", 0), lambda: NetcatUdp(0, bind="slow"), lambda: Http(0, bind="slow")],
    ids=["netcat", "netcatudp", "http"],
)
def test_a_name_service_that_does_not_answer_one_source_does_not_hold_up_another_one(
    hangs: Callable[[], NetworkSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answer, resolve = threading.Event(), threading.Event(), socket.getaddrinfo

    def slow(host: Any, *args: Any, **kwargs: Any) -> Any:
        if host == "slow":
            asked.set()
            assert answer.wait(60)
            host = "127.0.0.1"
        return resolve(host, *args, **kwargs)

    running, starting = Netcat("127.0.0.1", 0), hangs()
    running.start(KeptBatches())
    monkeypatch.setattr(socket, "getaddrinfo", slow)
    start = threading.Thread(target=starting.start, args=(KeptBatches(),), daemon=True)
    start.start()
    try:
        assert asked.wait(60)
        with socket.create_connection(("127.0.0.1", running.port), timeout=30) as client:
            client.sendall(b"1\n")
            assert client.recv(10) == b"OK\n"
    finally:
        answer.set()
        start.join(60)
    assert starting.alive
    starting.stop()
    running.stop()


def test_a_stop_stores_what_had_come_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, source, putting, go_on = KeptBatches(), SyslogTcp(0, host="127.0.0.1"), threading.Event(), threading.Event()
    deliver = kept.deliver

    def wait_and_deliver(routed: Routed) -> None:
        putting.set()
        assert go_on.wait(60)
        deliver(routed)

    monkeypatch.setattr(kept, "deliver", wait_and_deliver)
    for patience in ("_LAST_READ_SECONDS", "_SILENCE_SECONDS"):  # a busy machine may need more than a second
        monkeypatch.setattr(f"spillable_stream.flow.sources.network.{patience}", 60.0)
    source.start(kept)
    messages = [b"<1>%d" % i for i in range(30_000)]
    with socket.create_connection(("127.0.0.1", source.port)) as client:
        client.sendall(b"\n".join(messages) + b"\n")
        client.shutdown(socket.SHUT_WR)  # so that nobody waits for more
        assert putting.wait(60)
        stop = threading.Thread(target=source.stop)
        stop.start()
        wait_until(source._stopping.is_set)
        go_on.set()
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
    monkeypatch.setattr(network, "_LAST_READ_SECONDS", 600.0)
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
    monkeypatch.setattr("spillable_stream.flow.sources.network._LAST_READ_SECONDS", 0.0)
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


def test_a_server_without_tls_needs_no_keystore() -> None:
    assert server_tls(False, None, None, None) is None


@pytest.mark.parametrize(
    ("keystore", "kind", "way"),
    [
        ("x", "JKS", "keytool"),
        ("x.jks", None, "keytool"),
        ("x.p12", None, "openssl pkcs12"),
        ("x", "PKCS12", "openssl pkcs12"),
    ],
)
def test_a_keystore_of_javas_is_refused_with_the_command_that_converts_it(
    keystore: str, kind: str | None, way: str
) -> None:
    with pytest.raises(OptionError, match=way):
        server_tls(True, keystore, None, kind)


def test_an_address_of_version_6_is_one_to_listen_on() -> None:
    with bound_socket("::1", 0) as six:
        assert six.getsockname()[1] > 0


@pytest.mark.parametrize("named", ["flow-put", "flow-network"])
def test_a_source_for_which_there_is_no_thread_leaves_nothing_and_can_be_started_later(named: str) -> None:
    source, kept = Netcat("127.0.0.1", 0), KeptBatches()
    bound: list[socket.socket] = []
    bind = source.bind

    def noted() -> list[socket.socket]:
        bound.extend(found := bind())
        return found

    source.bind = noted  # type: ignore[method-assign]
    with no_threads(named=named), pytest.raises(StorageError, match=r"can't start .*raise this user's limit"):
        source.start(kept)
    assert not source.alive and [s.fileno() for s in bound] == [-1]
    assert not [t.name for t in threading.enumerate() if t.name.startswith("flow-")]
    source.start(kept)
    with socket.create_connection(("127.0.0.1", source.port), timeout=30) as client, no_threads():
        client.sendall(b"1\n")
        assert client.recv(10) == b"OK\n", "the thread that is there"
    source.stop()
    assert kept.bodies() == [b"1"]
