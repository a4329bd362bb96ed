from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from spillable_stream.errors import OptionError, StorageError
from spillable_stream.flow.sources.http import Http
from spillable_stream.flow.sources.netcat import Netcat
from spillable_stream.flow.sources.netcat_udp import NetcatUdp
from spillable_stream.flow.sources.network import NetworkSource, bound_socket
from tests.support.flow_processors import KeptBatches
from tests.support.no_threads import no_threads
from tests.support.waiting import wait_until


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


def test_many_connections_that_a_full_channel_holds_up_do_not_hold_up_another_source() -> None:
    full, kept = KeptBatches(), KeptBatches()
    full.full = {0}
    held, answering = Netcat("127.0.0.1", 0, ack_every_event=False), Netcat("127.0.0.1", 0)
    held.start(full)
    answering.start(kept)
    with ExitStack() as stack:
        stack.callback(held.stop)
        stack.callback(answering.stop)
        for _ in range(20):
            stack.enter_context(socket.create_connection(("127.0.0.1", held.port))).sendall(b"1\n")
        wait_until(lambda: held.counters.channel_write_fail >= 16)
        client = stack.enter_context(socket.create_connection(("127.0.0.1", answering.port), timeout=30))
        client.sendall(b"1\n")
        assert client.recv(10) == b"OK\n"


def test_an_address_of_version_6_is_one_to_listen_on() -> None:
    with bound_socket("::1", 0) as six:
        assert six.getsockname()[1] > 0


@pytest.mark.parametrize("named", ["flow-put", "flow-network"])
def test_a_source_for_which_there_is_no_thread_leaves_nothing_and_can_be_started_later(named: str) -> None:
    source, kept = Netcat("127.0.0.1", 0), KeptBatches()
    bound: list[socket.socket] = []
    bind, before = source.bind, set(threading.enumerate())  # a timer of an earlier test may run yet

    def noted() -> list[socket.socket]:
        bound.extend(found := bind())
        return found

    source.bind = noted  # type: ignore[method-assign]
    with no_threads(named=named), pytest.raises(StorageError, match=r"can't start .*raise this user's limit"):
        source.start(kept)
    assert not source.alive and [s.fileno() for s in bound] == [-1]
    assert not [t.name for t in threading.enumerate() if t not in before]
    source.start(kept)
    with socket.create_connection(("127.0.0.1", source.port), timeout=30) as client, no_threads():
        client.sendall(b"1\n")
        assert client.recv(10) == b"OK\n", "the thread that is there"
    source.stop()
    assert kept.bodies() == [b"1"]


def test_a_connection_that_comes_before_what_was_held_is_stored_costs_nothing_and_is_read_later() -> None:
    """Each was accepted, and also one that its client had ended took memory and a descriptor for an hour."""
    refusing, before = KeptBatches(full={0}), Netcat("127.0.0.1", 0, ack_every_event=False)
    before.start(refusing)
    with socket.create_connection(("127.0.0.1", before.port)) as client:
        client.sendall(b"1\n")
        wait_until(lambda: before.counters.channel_write_fail)
    before.stop()
    source = Netcat("127.0.0.1", 0, ack_every_event=False)
    assert source.succeed(before, is_at_end=False)
    source.start(refusing)
    for i in range(2, 5):
        with socket.create_connection(("127.0.0.1", source.port)) as client:
            client.sendall(b"%d\n" % i)
    for _ in range(10):
        source._call(asyncio.sleep(0))
    assert source.counters.open_connection_count == 0
    refusing.full = set()
    wait_until(lambda: sorted(refusing.bodies()) == [b"1", b"2", b"3", b"4"])
    source.stop()


@pytest.mark.parametrize(
    "make",
    [lambda: Netcat("127.0.0.1", 0, ack_every_event=False), lambda: NetcatUdp(0, bind="127.0.0.1")],
    ids=["netcat", "netcatudp"],
)
def test_sources_that_follow_one_another_while_a_channel_refuses_hold_no_more_than_the_first_one(
    make: Callable[[], Any],
) -> None:
    """Each start anew read another batch, and memory filled for as long as the channel failed."""
    refusing, source = KeptBatches(full={0}), make()
    how = socket.SOCK_DGRAM if isinstance(source, NetcatUdp) else socket.SOCK_STREAM
    source.start(refusing)
    for _ in range(4):
        with socket.socket(socket.AF_INET, how) as client:
            client.connect(("127.0.0.1", source.port))
            client.sendall(b"1\n")
            wait_until(lambda source=source: source.counters.channel_write_fail)
            source.stop()
            assert source.unstored.events == 1
        before, source = source, make()
        assert source.succeed(before, is_at_end=False)
        source.start(refusing)
    with socket.socket(socket.AF_INET, how) as client:
        client.connect(("127.0.0.1", source.port))
        client.sendall(b"2\n")
        refusing.full = set()
        wait_until(lambda: refusing.bodies() == [b"1", b"2"])
        source.stop()
