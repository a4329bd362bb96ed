"""The source ``netcat``: lines over TCP, each answered when it is stored."""

from __future__ import annotations

import asyncio

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spillable_stream.errors import SpillableError
from spillable_stream.flow.charsets import charset_name
from spillable_stream.flow.checked_arguments import Count, Port, checked
from spillable_stream.flow.part_room import TOO_LARGE
from spillable_stream.flow.pieces import halves
from spillable_stream.flow.sources.event_columns import event_batch
from spillable_stream.flow.sources.held import fitting, said_of
from spillable_stream.flow.sources.lines import split_lines
from spillable_stream.flow.sources.stream_source import StreamSource
from spillable_stream.log_records import fields, log_of

__all__ = ["Netcat"]

_log = log_of("spillable_stream.flow")


class Netcat(StreamSource):
    """Takes lines over TCP: what came with one read is one batch, and each line is answered ``OK`` after its commit.

    With answers, a batch that a channel refuses is answered ``FAILED: reason``, line by line, and the client may repeat
    it. Without, the batch is held and the connection is not read.

    Args:
        bind: the address to listen on.
        port: the port; 0 for any that is free, see `port`.
        max_line_length: the longest line in characters, with its end; a longer one closes the connection.
        ack_every_event: whether lines are answered.
        encoding: the character set of the lines; bodies are UTF-8.

    Raises:
        OptionError: there is no such character set.
    """

    @checked
    def __init__(
        self,
        bind: str,
        port: Port,
        *,
        max_line_length: Count = 512,
        ack_every_event: bool = True,
        encoding: str = "utf-8",
    ) -> None:
        super().__init__([(bind, port)])
        self._longest = max_line_length
        self._answers = ack_every_event
        self._encoding = charset_name(encoding)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection; see `StreamSource.serve`."""
        held, is_stored, until = b"", True, float("inf")
        while data := await self.read(reader, is_within_line=bool(held), until=until):
            lines = split_lines(held + data, drop_cr=False)
            held = (held + data)[lines.size_bytes :]
            bodies, is_long = self._until_long(lines.bodies, held)
            if len(bodies) and not (is_stored := await self._store(writer, bodies, is_stored)):
                until = min(until, self.last_moment())
            if is_long:
                await self._refuse_long(writer)
                return
        if held:
            self.tell_cut(reader, writer, len(held), "they are dropped")

    async def _refuse_long(self, writer: asyncio.StreamWriter) -> None:
        """Count and name a line that is too long, and tell its client, also where lines are not answered."""
        self.counters.event_read_fail += 1
        _log.warning(
            "%s: %s sent a line of %d characters or more, and its connection is closed: raise max-line-length",
            self.name, writer.get_extra_info("peername")[0], self._longest,
            extra=fields(component=self.name),
        )  # fmt: skip
        reason = f"Event exceeds the maximum length ({self._longest} chars, including newline)"
        await self.answer(writer, f"FAILED: {reason}\n".encode())

    def _until_long(self, bodies: pa.Array, rest: bytes) -> tuple[pa.Array, bool]:
        """Return the lines before the first one that is too long, and whether there is one."""
        if len(bodies):
            bodies = self._decoded(bodies)
            lengths = pc.binary_length(bodies).to_numpy(zero_copy_only=False)
            if int(lengths.max()) >= self._longest:
                lengths = np.array([len(b.decode(errors="replace")) for b in bodies.to_pylist()])
            if (too_long := np.flatnonzero(lengths >= self._longest)).size:
                return bodies.slice(0, int(too_long[0])), True
        return bodies, len(rest) >= self._longest and len(rest.decode(self._encoding, "replace")) >= self._longest

    def _decoded(self, bodies: pa.Array) -> pa.Array:
        if self._encoding == "utf-8":
            return bodies
        return pa.array([b.decode(self._encoding, "replace").encode() for b in bodies.to_pylist()], pa.binary())

    async def _store(self, writer: asyncio.StreamWriter, bodies: pa.Array, is_stored: bool) -> bool:
        """Put lines, and tell whether they are stored or their client knows; they are kept where others are not."""
        batch = event_batch(bodies)
        if not self._answers:
            return await self.put_held(batch, is_behind=not is_stored)
        assert self._processor is not None
        for piece in fitting(self._processor, batch):
            await self._put_and_answer(writer, piece)
        return True

    async def _put_and_answer(self, writer: asyncio.StreamWriter, batch: pa.RecordBatch) -> None:
        try:
            await self.put(batch)
        except Exception as e:
            if isinstance(e, TOO_LARGE) and batch.num_rows > 1:
                for half in halves(batch):
                    await self._put_and_answer(writer, half)
                return
            if not isinstance(e, SpillableError):
                self.counters.generic_processing_fail += 1
                _log.exception("%s: lines are refused", self.name, extra=fields(component=self.name))
            reason = " ".join(said_of(e).split())
            await self._answer(writer, f"FAILED: {reason}\n".encode() * batch.num_rows)
        else:
            await self._answer(writer, b"OK\n" * batch.num_rows)

    async def _answer(self, writer: asyncio.StreamWriter, answer: bytes) -> None:
        if self._answers:
            await self.answer(writer, answer)
