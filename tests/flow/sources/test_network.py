from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from spillable_stream.errors import OptionError
from spillable_stream.flow.sources.http import Http
from spillable_stream.flow.sources.netcat import Netcat
from spillable_stream.flow.sources.netcat_udp import NetcatUdp
from spillable_stream.flow.sources.network import NetworkSource, bound_socket, server_tls
from tests.support.flow_processors import KeptBatches


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
