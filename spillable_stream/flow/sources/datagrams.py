"""What sources of datagrams share: a socket that is read when the last batch is stored."""

from __future__ import annotations

import asyncio
import socket
from typing import NamedTuple

import pyarrow as pa

from spillable_stream.flow.sources.network import NetworkSource, bound_socket
from spillable_stream.log_records import log_of

__all__ = ["Datagram", "DatagramSource"]

_log = log_of("spillable_stream.flow")
_MOST_DATAGRAMS = 1000
_LARGEST_BYTES = 1 << 16


class Datagram(NamedTuple):
    """One datagram.

    Args:
        data: its bytes.
        sender: the sender's address.
    """

    data: bytes
    sender: str


class DatagramSource(NetworkSource):
    """A source of datagrams: all that are there when it looks are one batch.

    Args:
        host: the address to listen on.
        port: the port; 0 for any that is free.
    """

    def __init__(self, host: str, port: int) -> None:
        super().__init__()
        self._address = (host, port)
        self._socket: socket.socket | None = None
        self._taking: asyncio.Task[None] | None = None
        self._is_stored = True  # all that it has read
        self.port: int = port

    def bind(self) -> list[socket.socket]:
        """Bind the address; see `NetworkSource.bind`."""
        return [bound_socket(*self._address, socket.SOCK_DGRAM)]

    async def listen(self, sockets: list[socket.socket]) -> None:
        """Begin to read; see `NetworkSource.listen`."""
        (self._socket,), self._is_stored = sockets, True
        self.port = self._socket.getsockname()[1]
        self._taking = asyncio.get_running_loop().create_task(self._watch_first())

    async def _watch_first(self) -> None:
        if await self.may_read():
            self._watch()

    def _watch(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().add_reader(self._socket, self._readable)

    def _readable(self) -> None:
        assert self._socket is not None
        asyncio.get_running_loop().remove_reader(self._socket)
        self._taking = asyncio.get_running_loop().create_task(self._read(self._socket))

    async def _read(self, open_socket: socket.socket) -> None:
        found: list[Datagram] = []
        try:
            while len(found) < _MOST_DATAGRAMS:
                data, address = open_socket.recvfrom(_LARGEST_BYTES)
                found.append(Datagram(data, address[0]))
        except BlockingIOError:
            pass
        except OSError as e:
            self.counters.event_read_fail += 1
            _log.of(self.name).warning("a datagram could not be read: %s", e)
        try:
            if found:
                self._is_stored = await self.put_held(await self.events(found), is_behind=not self._is_stored)
        except Exception:
            self.counters.generic_processing_fail += 1
            _log.of(self.name, count=len(found)).exception("%d datagrams are lost", len(found))
        if not self._stopping.is_set():
            self._watch()

    async def unlisten(self) -> None:
        """Stop reading when the batch under way is stored, and another one of what has come meanwhile."""
        if self._socket is None:
            return
        asyncio.get_running_loop().remove_reader(self._socket)
        try:
            if self._taking is not None:
                await self._taking
            asyncio.get_running_loop().remove_reader(self._socket)
            if await self.may_read():
                await self._read(self._socket)
        finally:
            self._socket.close()
            self._socket = None

    async def events(self, datagrams: list[Datagram]) -> pa.RecordBatch:
        """Return what came as events."""
        raise NotImplementedError
