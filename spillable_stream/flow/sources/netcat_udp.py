"""The source ``netcatudp``: datagrams, each an event up to its first line feed."""

from __future__ import annotations

import pyarrow as pa

from spillable_stream.flow.checked_arguments import Port, checked
from spillable_stream.flow.sources.datagrams import Datagram, DatagramSource
from spillable_stream.flow.sources.event_columns import events_of

__all__ = ["NetcatUdp"]


class NetcatUdp(DatagramSource):
    """Takes datagrams: the bytes up to the first line feed are an event.

    While a batch waits for a full channel nothing is read. What the kernel's buffer can't hold meanwhile is lost, as
    datagrams are.

    Args:
        port: the port; 0 for any that is free, see `port`.
        bind: the address to listen on.
        remote_address: the header that gets the sender's address; none by default.
    """

    @checked
    def __init__(self, port: Port, *, bind: str = "0.0.0.0", remote_address: str | None = None) -> None:
        super().__init__(bind, port)
        self._remote_address = remote_address

    async def events(self, datagrams: list[Datagram]) -> pa.RecordBatch:
        """Return what came as events; see `DatagramSource.events`."""
        bodies = [d.data.partition(b"\n")[0] for d in datagrams]
        headers = [{self._remote_address: d.sender} if self._remote_address else {} for d in datagrams]
        return events_of(bodies, headers)
