from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path

import pytest

from spillable_stream.errors import OptionError
from spillable_stream.flow.sources import stream_source
from spillable_stream.flow.sources.held import lose_unstored
from spillable_stream.flow.sources.syslog import MultiportSyslogTcp, SyslogTcp, SyslogUdp
from tests.support.flow_processors import KeptBatches, WaitingBatches
from tests.support.self_signed import self_signed
from tests.support.waiting import wait_until

MESSAGE = b"<34>1 2003-10-11T22:14:15Z host "


def test_tcp_messages_are_lines_and_a_longer_one_is_cut() -> None:
    kept, source = KeptBatches(), SyslogTcp(0, host="127.0.0.1", event_size=40, client_ip_header="ip")
    source.start(kept)
    try:
        with socket.create_connection(("127.0.0.1", source.port)) as c:
            c.sendall(MESSAGE + b"one\r\n" + MESSAGE + b"x" * 20 + b"\n" + MESSAGE + b"last")
        wait_until(lambda: len(kept.bodies()) == 4)
    finally:
        source.stop()
    assert kept.bodies() == [b"one", b"x" * 8, b"x" * 12, b"last"]
    statuses = [h.get("flume.syslog.status") for h in kept.headers()]
    assert statuses == [None, "Incomplete", "Incomplete", None]
    assert {h["ip"] for h in kept.headers()} == {"127.0.0.1"}


def test_a_full_channel_stops_the_reading_and_nothing_is_dropped() -> None:
    kept, source = KeptBatches(), SyslogTcp(0, host="127.0.0.1")
    kept.full = {0}
    source.start(kept)
    try:
        with socket.create_connection(("127.0.0.1", source.port)) as c:
            c.sendall(b"".join(MESSAGE + b"%d\n" % i for i in range(500)))
            wait_until(lambda: source.counters.channel_write_fail >= 1)
            kept.full = set()
            wait_until(lambda: len(kept.bodies()) == 500)
    finally:
        source.stop()
    assert kept.bodies() == [b"%d" % i for i in range(500)]


def test_a_stop_names_every_message_that_was_read_and_could_not_be_stored(caplog: pytest.LogCaptureFixture) -> None:
    kept, source = KeptBatches(), MultiportSyslogTcp([0], host="127.0.0.1", batch_size=10)
    kept.full = {0}
    source.start(kept)
    with socket.create_connection(("127.0.0.1", source.port)) as c:
        c.sendall(b"".join(MESSAGE + b"%d\n" % i for i in range(35)))
        wait_until(lambda: source.counters.channel_write_fail >= 1)
        c.sendall(MESSAGE + b"35\n" + MESSAGE + b"half of")
        source.stop()
    assert source.unstored.events == 37
    lose_unstored(source)
    assert "37 events are not stored, and lost" in caplog.text


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_message_whose_end_a_stop_cuts_off_is_stored_and_marked(
    is_busy: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The connection waits for more, or for its batch to be stored."""
    kept, source = WaitingBatches(), SyslogTcp(0, host="127.0.0.1")
    monkeypatch.setattr(stream_source, "_LAST_READ_SECONDS", 0.3)
    source.start(kept)
    with socket.create_connection(("127.0.0.1", source.port)) as c:
        c.sendall(MESSAGE + b"1\n" + MESSAGE + b"half of")
        assert kept.putting.wait(60)
        if not is_busy:
            kept.go_on.set()
            wait_until(lambda: source._idle and kept.bodies())
        stop = threading.Thread(target=source.stop)
        stop.start()
        wait_until(source._stopping.is_set)
        kept.go_on.set()
        stop.join(60)
    assert kept.bodies() == [b"1", b"half of"]
    assert [h.get("flume.syslog.status") for h in kept.headers()] == [None, "Incomplete"]
    assert source.counters.event_read_fail == 1
    assert "the source was stopped before the line feed of the last line of 127.0.0.1 came" in caplog.text


def test_several_ports_have_a_header_and_character_sets() -> None:
    kept = KeptBatches()
    source = MultiportSyslogTcp(
        [0, 0], host="127.0.0.1", port_header="port", charset_default="ISO-8859-1", batch_size=2
    )
    source.start(kept)
    try:
        for port in source.ports:
            with socket.create_connection(("127.0.0.1", port)) as c:
                c.sendall(b"<1>\xe4\n<1>b\n<1>c\n")
        wait_until(lambda: len(kept.bodies()) == 6)
    finally:
        source.stop()
    assert sorted(kept.bodies()) == sorted(["ä".encode(), b"b", b"c"] * 2)
    assert {h["port"] for h in kept.headers()} == {str(p) for p in source.ports}
    assert max(b.num_rows for b in kept.batches[0]) == 2
    assert "Priority" in kept.headers()[0]


def test_a_datagram_is_a_message() -> None:
    kept, source = KeptBatches(), SyslogUdp(0, host="127.0.0.1", event_size=35, client_hostname_header="sender")
    source.start(kept)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.sendto(MESSAGE + b"one\n", ("127.0.0.1", source.port))
            s.sendto(MESSAGE + b"longer", ("127.0.0.1", source.port))
        wait_until(lambda: len(kept.bodies()) == 2)
    finally:
        source.stop()
    assert kept.bodies() == [b"one", b"lon"]
    assert "sender" in kept.headers()[0]
    assert kept.headers()[1]["flume.syslog.status"] == "Incomplete"


def test_clients_can_be_made_to_use_tls(tmp_path: Path) -> None:
    pem = self_signed(tmp_path)
    kept, source = KeptBatches(), SyslogTcp(0, host="127.0.0.1", ssl=True, keystore=str(pem))
    source.start(kept)
    try:
        context = ssl.create_default_context(cafile=str(pem))
        plain = socket.create_connection(("127.0.0.1", source.port))
        with context.wrap_socket(plain, server_hostname="localhost") as c:
            c.sendall(b"<1>secret\n")
            wait_until(lambda: kept.bodies() == [b"secret"])
    finally:
        source.stop()


@pytest.mark.parametrize(
    "options", [{}, {"keystore": "x", "keystore_type": "JKS"}, {"keystore": "x.p12"}, {"keystore": "/no"}]
)
def test_a_keystore_that_cannot_be_used_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(OptionError):
        SyslogTcp(0, ssl=True, **options).start(KeptBatches())  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [3, 7, 25, 1000])
def test_a_message_that_is_too_long_is_cut_and_marked_the_same_however_it_comes(size: int) -> None:
    kept, source = KeptBatches(), SyslogTcp(0, host="127.0.0.1", event_size=10)
    text = b"0123456789abcdefghijkl\nshort\n0123456789abcdefghijkl"
    source.start(kept)
    with socket.create_connection(("127.0.0.1", source.port)) as c:
        for i in range(0, len(text), size):
            c.sendall(text[i : i + size])
            wait_until(lambda sent=i: len(kept.bodies()) >= sent // 23 * 3)
        c.shutdown(socket.SHUT_WR)
        wait_until(lambda: len(kept.bodies()) == 7)
    source.stop()
    long = [b"0123456789", b"abcdefghij", b"kl"]
    assert kept.bodies() == [*long, b"short", *long]
    assert [h["flume.syslog.status"] for h in kept.headers()] == [*["Incomplete"] * 3, "Invalid", *["Incomplete"] * 3]
