"""What the syslog sources make of the bytes that come: messages, cut where they are too long, and who sent them."""

from __future__ import annotations

import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

from spillable_stream.flow.sources.syslog_parser import Message, SyslogParser

__all__ = ["SyslogReader"]

_MOST_NAMES = 1000  # of senders that are remembered: a datagram may say that it comes from anywhere


class SyslogReader:
    """Reads messages of senders. One thread at a time asks for headers.

    Args:
        event_size: the longest message in bytes.
        keep_fields: the fields that stay in the body; see `SyslogParser`.
        ip_header: the header that gets the sender's address; None for none.
        name_header: the header that gets the sender's host name; None for none.
        capitals: see `SyslogParser`.
        now: the clock, in seconds since 1970.

    Attributes:
        event_size: as given.

    Raises:
        OptionError: a field is not valid.
    """

    def __init__(
        self,
        event_size: int,
        keep_fields: str | Sequence[str],
        ip_header: str | None,
        name_header: str | None,
        *,
        capitals: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.event_size: int = event_size
        self._parser = SyslogParser(keep_fields, capitals=capitals, now=now)
        self._ip_header, self._name_header = ip_header, name_header
        self._names: OrderedDict[str, str] = OrderedDict()

    def headers(self, address: str) -> dict[str, str]:
        """Return the headers that say where a message comes from; a name service may take its time.

        Args:
            address: the sender's.
        """
        found = {self._ip_header: address} if self._ip_header else {}
        if self._name_header:
            found[self._name_header] = self._name(address)
        return found

    def _name(self, address: str) -> str:
        if (name := self._names.get(address)) is None:
            try:
                name = socket.gethostbyaddr(address)[0]
            except OSError:
                name = address
            self._names[address] = name
            if len(self._names) > _MOST_NAMES:
                self._names.popitem(last=False)
        return name

    def message(self, data: bytes, charset: str = "utf-8", *, is_cut: bool = False) -> Message:
        """Return a message that is not too long.

        Args:
            data: its bytes.
            charset: its character set.
            is_cut: whether it was longer.
        """
        if charset != "utf-8":
            data = data.decode(charset, "replace").encode()
        return self._parser.parse(data, is_cut=is_cut)

    def messages(self, line: bytes, charset: str, *, is_cut: bool = False) -> list[Message]:
        """Return the messages of a line: several if it is too long.

        Args:
            line: the line without its end.
            charset: its character set.
            is_cut: whether it is the end of one that was longer.
        """
        size = self.event_size
        if len(line) <= size:
            return [self.message(line, charset, is_cut=is_cut)]
        return [self.message(line[i : i + size], charset, is_cut=True) for i in range(0, len(line), size)]
