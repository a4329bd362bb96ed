"""The channels that a query has written to: what of them tells that a batch would be lost, or stored twice.

Spark plans the write of each micro-batch anew, and a plan creates a channel that is missing. So a channel that was
deleted under its query would begin anew, with the later rows only, and nobody would be told. Each start of a query
makes a new run ID. So a query that is started again may write to another path, or to a new channel at the old one.

It may not, for the batch that it repeats: where the options sent the rows elsewhere before, channels may have that
batch to which the query does not write now. So the first batch of a run asks these.

::

    <checkpoint>/spillable-sink.json    {"run": …, "channels": {path: UUID}, "beside": {path: UUID}} of the last run,
                                        with optional channels beside; where the driver's host has the checkpoint
    this process                        the same, of its runs: for a checkpoint that is elsewhere

Spark has several processes that commit, and ends those that had nothing to do for a minute. So only the file knows all
of a run. It is durable before a channel that it did not have gets a batch, unless this process may not write there.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from spillable_stream.durable_names import is_not_ours
from spillable_stream.engine.port import SinkBatch
from spillable_stream.errors import NotAChannelError, OptionError, SpillableError
from spillable_stream.log_records import fields, log_of
from spillable_stream.spark.channel_pool import visit_to_read
from spillable_stream.spark.side_by_side import side_by_side
from spillable_stream.spark.sink.division import Answer, answer_of, division_with_places, stored_otherwise, what_to_do
from spillable_stream.spark.sink.spark_checkpoint import is_there, sync_path
from spillable_stream.system_errors import storage_error

__all__ = ["NOTE", "WrittenChannels"]

_log = log_of(__name__)

NOTE = "spillable-sink.json"
"""The name of the file in Spark's checkpoint."""

_MOST_RUNS = 1000
_LEFT_SECONDS = 3600.0  # a temporary file that is older was left by a process that died


class _Written(NamedTuple):
    """What a run has written to: the UUIDs of channels by path, and those of channels that promise nothing."""

    channels: Mapping[str, str]
    beside: Mapping[str, str]

    def with_more(self, channels: Mapping[str, str], beside: Mapping[str, str]) -> _Written:
        return _Written({**self.channels, **channels}, {**self.beside, **beside})


_NOTHING = _Written({}, {})

_known: dict[str, _Written] = {}  # by run; the oldest first


@dataclass(frozen=True, slots=True)
class WrittenChannels:
    """What a run of a query has written to.

    Args:
        run: the ID of the run; "" if Spark does not say it: then nothing is known.
        checkpoint: the query's checkpoint; None if it is not on this host.
    """

    run: str
    checkpoint: Path | None

    def require_same(self, channels: Mapping[str, str], batch_id: int) -> None:
        """Refuse to commit to a channel that is not the one that earlier batches of the run are in.

        Args:
            channels: the UUIDs of the channels that the batch is for, by path.
            batch_id: the batch.

        Raises:
            NotAChannelError: a channel was removed or replaced.
        """
        known = self._of_run().channels
        for path, uuid in channels.items():
            if (before := known.get(path, uuid)) != uuid:
                raise NotAChannelError(
                    f"{path} was removed or replaced while the query ran: the rows of earlier batches are in the "
                    f"channel {before}, and {uuid} is there now. The batch {batch_id} is not stored: put the earlier "
                    "channel back, or start the query again, which continues with the one that is there. That one may "
                    "be of this batch's plan: if it has no events, it can be removed"
                )

    def is_first_batch(self) -> bool:
        """Tell whether nothing is known of the run: only its first batch can be the repetition of one before it."""
        return self._of_run() == _NOTHING

    def refuse_stored_elsewhere(self, batch: SinkBatch, sink: SinkBatch, asked: Collection[str]) -> None:
        """Refuse the first batch of a run if the last one has stored it by other options, in a channel not asked yet.

        A channel that is gone, or can't be read, is passed over with a warning; an optional one that does not answer in
        a second, without one.

        Args:
            batch: the query's ID, and the batch's number.
            sink: by what the channels of the write remember it.
            asked: the UUIDs of the channels that have said already that they may have it.

        Raises:
            OptionError: a channel has the batch, or a later one.
        """
        noted = self._noted()[1]
        required, optional = ({p: uuid for p, uuid in sorted(known.items()) if uuid not in asked} for known in noted)
        answers = side_by_side([partial(_answer_of, place, uuid, batch) for place, uuid in required.items()])
        found = dict(zip(required, answers, strict=True))
        if optional:
            from spillable_stream.spark.sink.optional_channels import batches_beside  # which takes a while to import

            found |= batches_beside("a stream's former run", {place: place for place in optional})
        by = division_with_places(sink.query, batch.query)
        have = {
            place: one
            for place, answer in found.items()
            if answer is not None and answer.channel not in asked
            if (one := stored_otherwise(answer.batches, batch, by))
        }
        if have:
            last = max(one.batch_id for one in have.values())
            raise OptionError(
                f"{', '.join(have)} {'has' if len(have) == 1 else 'have'}, from {batch.query}, the batch {last}, and "
                "the query has other options now, by which none of its rows go there: they would be stored twice. "
                f"{what_to_do(batch, last, 'the path, the shards or the flow')}"
            )

    def note(self, channels: Mapping[str, str], beside: Mapping[str, str]) -> None:
        """Remember what the run writes to, before it does.

        Args:
            channels: the UUIDs of the channels that get a batch, by path.
            beside: those of channels that get some of it, and may be replaced.

        Raises:
            StorageError: the disk of the checkpoint failed or is full.
        """
        known = self._of_run()
        new = known.with_more(channels, beside)
        if not self.run or new == known:
            return
        if self.checkpoint is not None and is_there(self.checkpoint):
            _write(self.checkpoint, json.dumps({"run": self.run, **new._asdict()}))
        _known[self.run] = new
        if len(_known) > _MOST_RUNS:
            del _known[next(iter(_known))]

    def _of_run(self) -> _Written:
        """Return what is known of the run."""
        (run, noted), known = self._noted(), _known.get(self.run, _NOTHING)
        return noted.with_more(*known) if run == self.run else known

    def _noted(self) -> tuple[str, _Written]:
        """Return the run that the file names, and what it says of that."""
        if self.checkpoint is not None and self.run:
            with contextlib.suppress(ValueError, LookupError, TypeError):  # none, or one that was cut
                noted = json.loads(_read(self.checkpoint / NOTE))
                return str(noted["run"]), _Written(dict(noted["channels"]), dict(noted.get("beside", {})))
        return "", _NOTHING


def _answer_of(place: str, uuid: str, batch: SinkBatch) -> Answer | None:
    """Return what the channel at a place says of its batches; warn if it can't, or is not the one that was there."""
    answer, why_not = None, ""
    try:
        with visit_to_read(place) as channel:
            answer = answer_of(channel)
    except SpillableError as e:  # its disk may be away
        why_not = str(e)
    if answer is not None and answer.channel != uuid:
        why_not = f"the channel {uuid} is gone, and {answer.channel} is there now"
    if why_not:
        _log.warning(
            "%s, to which the query %s wrote before, can't say whether it has the batch %d, which may be stored twice "
            "now: %s",
            place,
            batch.query,
            batch.batch_id,
            why_not,
            extra=fields(place, query=batch.query),
        )
    return answer


def _read(note: Path) -> str:
    """Return a note; "" if there is none, or this process may not read it.

    Raises:
        StorageError: the disk failed.
    """
    with _failures_of_disk(f"can't read {note}"), contextlib.suppress(FileNotFoundError):
        return note.read_text(encoding="utf-8")
    return ""


def _write(directory: Path, text: str) -> None:
    """Replace the note durably, as far as this process may: it still knows what it may not write.

    Raises:
        StorageError: the disk failed.
    """
    what = f"can't note in {directory} which channels the query writes to"
    with _failures_of_disk(what):
        try:
            _replace(directory, text, what)
        except FileNotFoundError:  # another process took the file for one that was left
            _replace(directory, text, what)
        _sweep(directory)
        sync_path(directory)


def _replace(directory: Path, text: str, what: str) -> None:
    """Write a note into a file of its own, and rename it; other processes may do so at the same time."""
    written = directory / f".{NOTE}.{os.urandom(8).hex()}.tmp"
    try:
        with open(written, "x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            with _failures_of_disk(what):
                os.fsync(file.fileno())
        written.replace(directory / NOTE)
    except BaseException:
        with contextlib.suppress(OSError):
            written.unlink()
        raise


def _sweep(directory: Path) -> None:
    """Remove the files of processes that died while they noted."""
    for left in directory.glob(f".{NOTE}*.tmp"):
        with contextlib.suppress(OSError):  # others sweep, too, or own it
            if time.time() - left.stat().st_mtime > _LEFT_SECONDS:
                left.unlink()


@contextlib.contextmanager
def _failures_of_disk(what: str) -> Iterator[None]:
    """Raise a StorageError for what fails within the block, and pass over what this process may not do."""
    try:
        yield
    except OSError as e:
        if not is_not_ours(e):
            said = f"the batch is not stored: {what}, by which it is stored nowhere else if it comes again"
            raise storage_error(said, e, "check the disk") from e
