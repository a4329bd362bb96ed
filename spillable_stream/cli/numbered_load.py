"""Loads that can be run again: each row of an input is stored once, however often the load was interrupted.

A load is a producer of the channel whose batches the application numbers: a batch's number is the number of the last
row that it stores, and its fingerprint is a digest of all rows up to there. So a load that is run again knows from the
channel alone how many rows are stored, in one commit with the rows themselves. It reads these again, compares the
digest, and continues with the next row; it may divide the rest otherwise. An input that begins otherwise than the one
that is stored is refused.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spillable_stream.counted import counted
from spillable_stream.errors import (
    CommitOutcomeUnknownError,
    OptionError,
    ProducerBusyError,
    ProducerSequenceError,
    SchemaError,
    SpillableError,
)
from spillable_stream.format.numbered_batch import NumberedBatch, Numbers
from spillable_stream.names import NAME, is_name
from spillable_stream.producer.fingerprint import fingerprint
from spillable_stream.progress import UNTOLD, Meter, OnProgress
from spillable_stream.shown_value import shown

if TYPE_CHECKING:
    from spillable_stream.channel.channel import Channel
    from spillable_stream.cli.load_input import Input
    from spillable_stream.engine.port import ProducerClaim

__all__ = ["Load", "LoadReport", "RowDigest", "load_name"]

_UNIT_ROWS = 4096
_TRANSACTION_BYTES = 4 << 20


def load_name(file: str, name: str | None) -> str:
    """Return by which producer's ID a channel remembers a load.

    Args:
        file: the path of the input; a file is known by where it is, not by what is in it.
        name: the name that the load was given; None for the file's own.

    Raises:
        OptionError: no load can have this name.
    """
    if name is None:
        name = hashlib.sha256(os.fsencode(os.path.realpath(file))).hexdigest()[:32]
    found = f"load-{name}"
    if not name or not is_name(found):
        raise OptionError(f"--name {shown(name)} can't name a load: with 'load-' before it, it must be {NAME}")
    return found


class RowDigest:
    """A digest of rows, 1 to 2^32-1, that is the same however they are divided into batches.

    Whole units of rows are chained; the rows behind the last of them count by themselves. A column without a value in
    a unit does not count: the channel may have got it since the rows were stored.
    """

    def __init__(self) -> None:
        self._chained = 0
        self._rest: list[pa.RecordBatch] = []
        self._rest_rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the next rows."""
        start = 0
        while self._rest_rows + batch.num_rows - start >= _UNIT_ROWS:
            rows = _UNIT_ROWS - self._rest_rows
            self._rest.append(batch.slice(start, rows))
            self._chained = self._with_rest()
            self._rest, self._rest_rows = [], 0
            start += rows
        if start < batch.num_rows:
            self._rest.append(batch.slice(start))
            self._rest_rows += batch.num_rows - start

    def value(self) -> int:
        """Return the digest of all rows so far."""
        return (self._with_rest() if self._rest else self._chained) or 1

    def _with_rest(self) -> int:
        if len(self._rest) > 1:
            self._rest = [_joined(self._rest)]
        unit = self._rest[0]
        filled = [
            name
            for name, column in zip(unit.schema.names, unit.columns, strict=True)
            if column.null_count < len(column)
        ]
        said = repr((unit.num_rows, filled, fingerprint(unit.select(filled)) if filled else 0))
        return zlib.crc32(said.encode(errors="surrogatepass"), self._chained)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What a load did.

    Args:
        stored: how many events it stored.
        skipped: how many rows of the input an earlier run had stored.
        first_id: the write-order ID of the first event that it stored; 0 if it stored none, or all of them wait.
        last_id: that of the last one; 0 if there is none.
        name: by which ID the channel remembers the load; "" for one that can't be run again.
        unsettled: how many more events may be stored, by a commit whose outcome is not known.
    """

    stored: int
    skipped: int
    first_id: int
    last_id: int
    name: str
    unsettled: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return it for a JSON object, which says of unsettled events only where there are any."""
        return {name: value for name, value in asdict(self).items() if value or name != "unsettled"}


class Load:
    """Puts the rows of an input into a channel.

    Args:
        channel: where to.
        source: the input.
        convert: makes events of a batch of the input.
        name: by which ID the channel remembers the load (`load_name`); "" for one that can't be run again.
        ttl: the events' ttl, in seconds; None for none.
        deliver_after: in how many seconds the events are due; None for now.
        called: what messages call the input.

    Attributes:
        stored: how many events it has stored.
        skipped: how many rows it has found stored by an earlier run.
        unsettled: how many more events may be stored, by a commit whose outcome is not known.
    """

    def __init__(
        self,
        channel: Channel,
        source: Input,
        convert: Callable[[pa.RecordBatch], pa.RecordBatch],
        name: str = "",
        ttl: float | None = None,
        deliver_after: float | None = None,
        called: str = "the input",
    ) -> None:
        self._called = called
        self._deliver_after = deliver_after
        self.name: str = name
        self.stored: int = 0
        self.skipped: int = 0
        self.unsettled: int = 0
        self._before = 0  # rows that earlier runs had stored
        self._channel = channel
        self._convert = convert
        self._source = source
        self._ttl = ttl
        self._digest = RowDigest()
        self._meter = UNTOLD
        self._first_id = self._last_id = 0
        options = channel.options
        tiers = options["memory_capacity"], options["overflow_capacity"]
        self._most_rows = min(options["transaction_capacity"], max(tiers))

    def run(self, progress: OnProgress | None = None) -> LoadReport:
        """Load what is not stored yet.

        Args:
            progress: is told after each commit how much of the input is read; if it raises, the work ends.

        Raises:
            ProducerBusyError: another process runs this load now.
            ProducerSequenceError: the input begins otherwise than the one that is stored; nothing was stored.
            SchemaError: the input does not fit the channel, or its format; what came before that is stored.
        """
        claim = self._claim()
        self._meter = Meter("load", self._source.unit, progress)
        try:
            self._meter.begin(self._source.size)
            batches = self._source.batches()
            for batch in self._parts(batches if claim is None else self._behind_stored(batches)):
                self._commit(batch)
                self._meter.reach(self._source.done)
        finally:
            if claim is not None:
                claim.release()
        return self.report()

    def report(self) -> LoadReport:
        """Return what it has stored, as far as its commits have said so."""
        return LoadReport(self.stored, self._before, self._first_id, self._last_id, self.name, self.unsettled)

    def _claim(self) -> ProducerClaim | None:
        try:
            return self._channel.put_port().claim_producer(self.name) if self.name else None
        except ProducerBusyError as e:
            who, _, _ = str(e).partition(";")
            raise ProducerBusyError(
                f"another process is running this load ({who}): wait until it ends, and run this again, which continues"
            ) from e

    def so_far(self) -> LoadReport:
        """Return what it did by now, also by a commit that was interrupted; the channel is open."""
        stored = self.rows_stored() - self._before
        unsettled = 0 if self.name else self.unsettled
        return LoadReport(stored, self._before, self._first_id, self._last_id, self.name, unsettled)

    def rows_stored(self) -> int:
        """Return how many rows of the input the channel has by now; the channel is open."""
        if not self.name:
            return self.stored
        with self._channel.put_port().snapshot() as state:
            return state.producers.last(self.name)

    # ── what is stored already ──────────────────────────────────────────────────────────────────

    def _behind_stored(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows that no earlier run has stored, once those before them have proven to be the same."""
        with self._channel.put_port().snapshot() as state:
            last = self._before = state.producers.last(self.name)
        for batch in batches:
            rows = min(batch.num_rows, last - self.skipped)
            if rows:
                self._digest.add(batch.slice(0, rows))
                self.skipped += rows
                self._meter.reach(self._source.done)
                if self.skipped == last:
                    self._require_same(last)
            if rows < batch.num_rows:
                yield batch.slice(rows)
        if self.skipped < last:
            raise self._changed(f"it has {counted(self.skipped, 'row')}, and {last:,} were stored", last)

    def _require_same(self, last: int) -> None:
        with self._channel.put_port().snapshot() as state:
            try:
                state.producers.answer(self.name, Numbers(last, last, self._digest.value()))
            except ProducerSequenceError as e:
                raise self._changed(f"the first {counted(last, 'row', 'are')} not what is stored", last) from e

    def _changed(self, how: str, last: int) -> ProducerSequenceError:
        return ProducerSequenceError(
            f"{self._called} has changed since {self._channel.path} stored {counted(last, 'row')} of it: {how}. "
            "Nothing more was stored. Restore it, or load what it is now under another --name"
        )

    # ── what is not ─────────────────────────────────────────────────────────────────────────────

    def _parts(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches of the size of a transaction; smaller ones where the input has no more for now, or a fault."""
        waiting: list[pa.RecordBatch] = []
        rows = size_bytes = 0
        fault: SchemaError | None = None
        try:
            for batch in batches:
                for part in self._divided(batch):
                    is_full = rows + part.num_rows > self._most_rows or size_bytes + part.nbytes > _TRANSACTION_BYTES
                    if rows and is_full:
                        yield _joined(waiting)
                        waiting, rows, size_bytes = [], 0, 0
                    waiting.append(part)
                    rows += part.num_rows
                    size_bytes += part.nbytes
                if rows and not self._source.has_more_now():
                    yield _joined(waiting)
                    waiting, rows, size_bytes = [], 0, 0
        except SchemaError as e:
            fault = e
        if rows:
            yield _joined(waiting)
        if fault is not None:
            raise fault

    def _divided(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield a batch in parts that a transaction can hold."""
        each = max(1, batch.nbytes // max(1, batch.num_rows))
        step = max(1, min(self._most_rows, _TRANSACTION_BYTES // each))
        for start in range(0, batch.num_rows, step):
            yield batch.slice(start, step)

    def _commit(self, batch: pa.RecordBatch) -> None:
        tx = self._channel.put_transaction()
        stored = self.skipped + self.stored
        if self.name:
            self._digest.add(batch)
            last = stored + batch.num_rows
            tx.producer = NumberedBatch(self.name, Numbers(stored + 1, last, self._digest.value()))
            tx.follows = stored
        try:
            with tx:
                tx.put_batch(self._convert(batch), ttl=self._ttl, deliver_after=self._deliver_after)
                self.unsettled = batch.num_rows
        except SpillableError as e:
            if not isinstance(e, CommitOutcomeUnknownError):
                self.unsettled = 0
            raise
        self.stored, self.unsettled = self.stored + batch.num_rows, 0
        if tx.committed.last_id >= tx.committed.first_id:  # those that wait have no IDs yet
            self._first_id = self._first_id or tx.committed.first_id
            self._last_id = tx.committed.last_id
