"""The source ``netcat``: lines over TCP, each answered when it is stored."""

from __future__ import annotations

import asyncio

import pyarrow as pa

from spillable_stream.errors import TOO_LARGE, SpillableError
from spillable_stream.flow.charsets import charset_name
from spillable_stream.flow.checked_arguments import Count, Port, checked
from spillable_stream.flow.pieces import halves
from spillable_stream.flow.sources.event_columns import event_batch
from spillable_stream.flow.sources.held import fitting, said_of
from spillable_stream.flow.sources.netcat_lines import NetcatLines
from spillable_stream.flow.sources.stream_source import StreamSource
from spillable_stream.log_records import log_of

__all__ = ["Netcat"]

_log = log_of("spillable_stream.flow")


class Netcat(StreamSource):
    """Takes lines over TCP: what came with one read is one batch, and each line is answered ``OK`` after its commit.

    With answers, a batch that a channel refuses is answered ``FAILED: reason``, line by line, and the client may repeat
    it. Without, the batch is held and the connection is not read.

    Args:
        bind: the address to listen on.
        port: the port; 0 for any that is free, see `port`.
        max_line_length: the longest line in characters, with its end; a longer one is refused, and counted.
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
        lines, is_first_long = NetcatLines(self._longest, self._encoding), True
        is_stored, until = True, float("inf")
        while data := await self.read(reader, is_within_line=bool(lines.held_bytes), until=until):
            for run in lines.add(data):
                if len(run.bodies) and not (is_stored := await self._store(writer, run.bodies, is_stored)):
                    until = min(until, self.last_moment())
                if run.is_before_long:
                    await self._refuse_long(writer, is_first_long)
                    is_first_long = False
        if lines.held_bytes:
            self.tell_cut(reader, writer, lines.held_bytes, "they are dropped")

    async def _refuse_long(self, writer: asyncio.StreamWriter, is_first: bool) -> None:
        """Count a line that is too long, and tell its client; the first one also where lines are not answered."""
        self.counters.event_read_fail += 1
        if is_first:
            _log.of(self.name).warning(
                "%s sent a line of %d characters or more, which is dropped, and further ones of its connection are "
                "only counted: raise max-line-length",
                writer.get_extra_info("peername")[0],
                self._longest,
            )
        if is_first or self._answers:  # a client that expects no answers may read none
            reason = f"Event exceeds the maximum length ({self._longest} chars, including newline)"
            await self.answer(writer, f"FAILED: {reason}\n".encode())

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
                self.counters.will_come_again(batch.num_rows)
                for half in halves(batch):
                    await self._put_and_answer(writer, half)
                return
            if not isinstance(e, SpillableError):
                self.counters.generic_processing_fail += 1
                _log.of(self.name).exception("lines are refused")
            reason = " ".join(said_of(e).split())
            await self._answer(writer, f"FAILED: {reason}\n".encode() * batch.num_rows)
        else:
            await self._answer(writer, b"OK\n" * batch.num_rows)

    async def _answer(self, writer: asyncio.StreamWriter, answer: bytes) -> None:
        if self._answers:
            await self.answer(writer, answer)
