"""The sources ``syslogtcp``, ``syslogudp`` and ``multiport_syslogtcp``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

import pyarrow as pa

from spillable_stream.errors import OptionError
from spillable_stream.flow.charsets import charset_name
from spillable_stream.flow.checked_arguments import Count, Port, Within, checked
from spillable_stream.flow.sources.datagrams import Datagram, DatagramSource
from spillable_stream.flow.sources.event_columns import events_of
from spillable_stream.flow.sources.server_tls import server_tls
from spillable_stream.flow.sources.stream_source import StreamSource
from spillable_stream.flow.sources.syslog_parser import Message
from spillable_stream.flow.sources.syslog_reader import SyslogReader
from spillable_stream.shown_value import shown

__all__ = ["MultiportSyslogTcp", "SyslogTcp", "SyslogUdp"]


class MultiportSyslogTcp(StreamSource):
    """Takes syslog over TCP, on several ports. A read is one batch, however many messages it has.

    There are no answers in the protocol: while a channel is full the connection is not read, so the sender waits.

    Args:
        ports: the ports; 0 for any that is free, see `ports`.
        host: the address to listen on.
        event_size: the longest message in bytes; a longer one is cut, and marked.
        keep_fields: the fields that stay in the body: ``all``, ``none``, or some of priority, version, timestamp and
            hostname.
        client_ip_header: the header that gets the sender's address; none by default.
        client_hostname_header: the header that gets the sender's host name; none by default.
        batch_size: how many messages one transaction has at most.
        port_header: the header that gets the port; none by default.
        charset_default: the character set of the messages; bodies are UTF-8.
        charset_port: the character sets of ports.
        ssl: whether clients must use TLS.
        keystore: the certificate and its key, a PEM file.
        keystore_password: the key's password.
        keystore_type: ``PEM``.
        now: the clock, in seconds since 1970; for tests.

    Raises:
        OptionError: a field, a character set or the keystore is not valid.
    """

    capitals = True

    @checked
    def __init__(
        self,
        ports: Sequence[Port],
        *,
        host: str = "0.0.0.0",
        event_size: Annotated[int, Within(10)] = 2500,
        keep_fields: str | Sequence[str] = "none",
        client_ip_header: str | None = None,
        client_hostname_header: str | None = None,
        batch_size: Count = 100,
        port_header: str | None = None,
        charset_default: str = "UTF-8",
        charset_port: Mapping[str, str] | None = None,
        ssl: bool = False,
        keystore: str | None = None,
        keystore_password: str | None = None,
        keystore_type: str | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        chosen = [port for port in ports if port]  # any number of 0, each of which is a port that is free
        if not ports or len(set(chosen)) < len(chosen):
            raise OptionError(f"ports must be one or more ports, each once, not {shown(ports)}")
        tls = server_tls(ssl, keystore, keystore_password, keystore_type)
        super().__init__([(host, port) for port in ports], tls)
        self._syslog = SyslogReader(
            event_size, keep_fields, client_ip_header, client_hostname_header, capitals=self.capitals, now=now
        )
        self._batch_size, self._port_header = batch_size, port_header
        self._charsets = {_port_of(p): charset_name(name) for p, name in (charset_port or {}).items()}
        self._charset = charset_name(charset_default)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection; see `StreamSource.serve`."""
        address, port = writer.get_extra_info("peername")[0], writer.get_extra_info("sockname")[1]
        headers = await self.in_thread(lambda: self._syslog.headers(address))
        if self._port_header:
            headers[self._port_header] = str(port)
        charset, size = self._charsets.get(port, self._charset), self._syslog.event_size
        held, is_stored, until = b"", True, float("inf")
        is_rest = False  # whether what is held is the rest of a line that was too long
        while data := await self.read(reader, is_within_line=bool(held), until=until):
            held += data
            *lines, held = held.split(b"\n")
            messages: list[Message] = []
            for line in lines:
                messages += self._syslog.messages(line.removesuffix(b"\r"), charset, is_cut=is_rest)
                is_rest = False
            while len(held) > size:
                messages.append(self._syslog.message(held[:size], charset, is_cut=True))
                held, is_rest = held[size:], True
            if not (is_stored := await self._put_all(messages, headers, is_stored)):
                until = min(until, self.last_moment())
        if held:
            is_cut = not reader.at_eof()  # a client that is there would have sent more of it, but for the stop
            if is_cut:
                self.tell_cut(reader, writer, len(held), "they are an event that is marked as incomplete")
            last = self._syslog.message(held, charset, is_cut=is_cut or is_rest)
            await self._put_all([last], headers, is_stored)

    async def _put_all(self, messages: list[Message], headers: dict[str, str], is_stored: bool) -> bool:
        """Put messages, and tell whether they are stored; they are kept where those before them are not."""
        for i in range(0, len(messages), self._batch_size):
            batch = _batch(messages[i : i + self._batch_size], headers)
            is_stored = await self.put_held(batch, is_behind=not is_stored)
        return is_stored


class SyslogTcp(MultiportSyslogTcp):
    """Takes syslog over TCP, on one port; see `MultiportSyslogTcp`.

    Args:
        port: the port; 0 for any that is free, see `port`.
        host: as in `MultiportSyslogTcp`, like all that follow.
        event_size: the longest message in bytes.
        keep_fields: the fields that stay in the body.
        client_ip_header: the header that gets the sender's address.
        client_hostname_header: the header that gets the sender's host name.
        ssl: whether clients must use TLS.
        keystore: the certificate and its key, a PEM file.
        keystore_password: the key's password.
        keystore_type: ``PEM``.
        now: the clock, in seconds since 1970; for tests.

    Raises:
        OptionError: a field or the keystore is not valid.
    """

    capitals = False

    @checked
    def __init__(
        self,
        port: Port,
        *,
        host: str = "0.0.0.0",
        event_size: Annotated[int, Within(10)] = 2500,
        keep_fields: str | Sequence[str] = "none",
        client_ip_header: str | None = None,
        client_hostname_header: str | None = None,
        ssl: bool = False,
        keystore: str | None = None,
        keystore_password: str | None = None,
        keystore_type: str | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(
            [port], host=host, event_size=event_size, keep_fields=keep_fields, client_ip_header=client_ip_header,
            client_hostname_header=client_hostname_header, batch_size=1000, ssl=ssl, keystore=keystore,
            keystore_password=keystore_password, keystore_type=keystore_type, now=now,
        )  # fmt: skip


class SyslogUdp(DatagramSource):
    """Takes syslog over UDP: a datagram is a message.

    Args:
        port: the port; 0 for any that is free, see `port`.
        host: the address to listen on.
        event_size: the longest message in bytes; a longer one is cut, and marked.
        keep_fields: the fields that stay in the body: ``all``, ``none``, or some of priority, version, timestamp and
            hostname.
        client_ip_header: the header that gets the sender's address; none by default.
        client_hostname_header: the header that gets the sender's host name; none by default.
        now: the clock, in seconds since 1970; for tests.

    Raises:
        OptionError: a field is not valid.
    """

    @checked
    def __init__(
        self,
        port: Port,
        *,
        host: str = "0.0.0.0",
        event_size: Annotated[int, Within(10)] = 2500,
        keep_fields: str | Sequence[str] = "none",
        client_ip_header: str | None = None,
        client_hostname_header: str | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(host, port)
        self._syslog = SyslogReader(event_size, keep_fields, client_ip_header, client_hostname_header, now=now)

    async def events(self, datagrams: list[Datagram]) -> pa.RecordBatch:
        """Return what came as events; see `DatagramSource.events`."""
        senders = {d.sender for d in datagrams}
        headers = await self.in_thread(lambda: {sender: self._syslog.headers(sender) for sender in senders})
        bodies, all_headers, size = [], [], self._syslog.event_size
        for d in datagrams:
            data = d.data.rstrip(b"\r\n\x00")
            message = self._syslog.message(data[:size], is_cut=len(data) > size)
            bodies.append(message.body)
            all_headers.append(message.headers | headers[d.sender])
        return events_of(bodies, all_headers)


def _batch(messages: list[Message], headers: dict[str, str]) -> pa.RecordBatch:
    return events_of([m.body for m in messages], [m.headers | headers for m in messages])


def _port_of(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= 65535):
        raise OptionError(f"a key of charset_port must be a port, as 5140, not {shown(text)}")
    return int(text)
