"""The sink ``logger``: logs events, as Flume's examples do."""

from __future__ import annotations

import logging

import pyarrow as pa
import pyarrow.compute as pc

from spillable_stream.flow.checked_arguments import Size, checked
from spillable_stream.flow.sinks.base import BatchSink, Taken
from spillable_stream.log_records import fields

__all__ = ["Logger"]

_log = logging.getLogger("spillable_stream.flow.events")
_BATCH_SIZE = 100
_COLUMNS = 16


class Logger(BatchSink):
    """Logs each event at level INFO: its headers, and the first bytes of its body in hexadecimal and as text.

    Args:
        max_bytes_to_log: how many bytes of a body are logged.
        channel: the name of the channel, for `Agent`.
    """

    @checked
    def __init__(self, *, max_bytes_to_log: Size = 16, channel: str = "") -> None:
        super().__init__(_BATCH_SIZE, channel)
        self._most = max_bytes_to_log

    def write(self, taken: Taken) -> None:
        """Log a batch; see `BatchSink.write`."""
        about = fields(component=self.name)
        if taken.batch.schema.names != ["headers", "body"]:
            for row in taken.batch.to_pylist():
                _log.info("Event: %s", row, extra=about)
            return
        bodies = taken.batch.column(1)
        firsts = pc.binary_slice(bodies, 0, self._most) if self._most else [pa.scalar(b"")] * len(bodies)
        for headers, first in zip(taken.batch.column(0).to_pylist(), firsts, strict=True):
            _log.info(
                "Event: { headers:%s body:%s }",
                _headers(headers),
                _dump(first.as_py() or b""),
                extra=about,
            )


def _headers(pairs: list[tuple[str, str]] | None) -> str:
    return "{" + ", ".join(f"{name}={value}" for name, value in pairs or ()) + "}"


def _dump(data: bytes) -> str:
    """Return bytes in hexadecimal, in 16 columns, and as text, a dot for what can't be shown; nothing of no bytes."""
    shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data)
    return f" {data.hex(' ').upper():<{_COLUMNS * 3}}{shown}" if data else ""
