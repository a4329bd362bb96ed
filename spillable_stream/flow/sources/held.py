"""Batches that a source without numbers holds until they are stored, also beyond its end: nobody can read them again.

::

    put ──refused──▶ held ── 0.1 s, 0.2 s … 4 s ──▶ put again ── … ──▶ stored
                      │
                stopped, tried once ──▶ unstored ──▶ put by the source that is started in its place, before all else
                                           └──▶ lost, counted and named, where none is started
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable

import pyarrow as pa

from spillable_stream.counted import counted
from spillable_stream.error_text import text_of, type_and_text
from spillable_stream.errors import TOO_LARGE, SpillableError
from spillable_stream.flow.failures import FAILURES
from spillable_stream.flow.pieces import halves
from spillable_stream.flow.processor import ChannelProcessor
from spillable_stream.flow.routed_batch import RoutedBatch
from spillable_stream.flow.sources.base import BatchProcessor, SourceBase
from spillable_stream.flow.sources.unstored import HeldPiece
from spillable_stream.log_records import log_of

__all__ = ["fitting", "lose_unstored", "put_held", "put_unstored", "said_of"]

_log = log_of("spillable_stream.flow")

_FIRST_WAIT_SECONDS = 0.1
_LONGEST_WAIT_SECONDS = 4.0


def fitting(processor: BatchProcessor, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Return a batch in pieces that fit a transaction of each channel: a read may bring more than one can hold."""
    most = processor.most_events
    return [batch.slice(start, most) for start in range(0, batch.num_rows, most)]


def said_of(error: BaseException) -> str:
    """Return what an error says; with its type, where it is of somebody's own class."""
    return text_of(error) if isinstance(error, SpillableError) else type_and_text(error)


def put_held(
    source: SourceBase,
    processor: BatchProcessor,
    batch: pa.RecordBatch,
    stopping: threading.Event,
    *,
    is_behind: bool = False,
) -> bool:
    """Put a batch, again and again while a channel refuses or an interceptor fails; nothing is read meanwhile.

    One that is too large for a transaction of a channel, or for a channel, is put in pieces. An event that is alone too
    large for a channel is lost, and named in the log: what comes behind it does not wait forever.

    Args:
        source: the source, for its counters and its name.
        processor: where the batch goes.
        batch: the events.
        stopping: set when the source is being stopped: then it is tried once.
        is_behind: whether it was read behind one that is not stored: then it is not tried, and keeps its place.

    Returns:
        Whether the batch is stored; if not, the source is being stopped, and `SourceBase.unstored` has the rest of it.
    """
    source.counters.received(batch.num_rows)
    if is_behind:
        _leave(source, [HeldPiece(batch, source.counters)], "")
        return False
    pieces = deque(HeldPiece(piece, source.counters) for piece in fitting(processor, batch))
    if (why := _put_pieces(source, processor, pieces, stopping)) is None:
        return True
    _leave(source, pieces, why)
    return False


def put_unstored(source: SourceBase, processor: BatchProcessor, stopping: threading.Event) -> bool:
    """Put what the source before this one could not store, before anything that this one reads; see `put_held`.

    Args:
        source: the source, which is being started.
        processor: where its batches go.
        stopping: set when it is being stopped.

    Returns:
        Whether all of that is stored; if not, the source is being stopped, and what is left is kept once more.
    """
    pieces = source.unstored.take()
    if not pieces:
        return True
    for piece in pieces:
        if piece.counters is not source.counters:
            piece.counters = source.counters
            source.counters.received(piece.batch.num_rows)
        _adopt(source, processor, piece)
    events = _events(piece for piece in pieces if piece.routed is None or piece.routed.is_incomplete)
    if (why := _put_pieces(source, processor, pieces, stopping)) is not None:
        if not source.unstored.put_back(pieces, why):
            _say_lost(source, _events(pieces), why)
        return False
    if events:
        _log.of(source.name, count=events).warning(
            "%s stored now, which a channel had refused before the source was started again",
            counted(events, "event", "are"),
        )
    return True


def _adopt(source: SourceBase, processor: BatchProcessor, piece: HeldPiece) -> None:
    """Let a processor deliver what another one has put into some of the channels, or may have."""
    routed = piece.routed
    if routed is None or not isinstance(processor, ChannelProcessor):
        return
    was_in_doubt, lost = bool(routed.in_doubt), processor.adopt(routed)
    if routed.is_nowhere:  # the channel that may have it is gone, and others get all of it
        piece.routed = None
    elif lost and was_in_doubt and not routed.in_doubt:
        _say_missed(source, lost, "may be lost: a storage failure hit the channel, which the source has no more")
    elif lost:
        _say_lost(source, lost, "the source has their channel no more, and others have what came with them")
    if was_in_doubt and (piece.routed is None or routed.in_doubt):
        events = piece.batch.num_rows
        _log.of(source.name, count=events).warning(
            "%s put again, and may come twice: a storage failure left it open whether a channel has them",
            counted(events, "event", "are"),
        )


def lose_unstored(source: SourceBase) -> None:
    """Count and name what a source could not store, since none is started in its place; also what it gives up later."""
    if pieces := source.unstored.close():
        _say_lost(source, _events(pieces), source.unstored.why)


def _leave(source: SourceBase, pieces: Iterable[HeldPiece], why: str) -> None:
    left = [*pieces]
    if not source.unstored.add(left, why):
        _say_lost(source, _events(left), source.unstored.why)
    elif why:
        _log.of(source.name, count=_events(left)).warning(
            "%s not stored as the source is stopped, and kept, with what came behind, for one in its place: %s",
            counted(_events(left), "event", "are"),
            why,
        )


def _say_lost(source: SourceBase, events: int, why: str) -> None:
    _say_missed(source, events, f"{'is' if events == 1 else 'are'} not stored, and lost: {why}")


def _say_missed(source: SourceBase, events: int, what: str) -> None:
    text = f"{counted(events, 'event')} {what}"
    source.miss(text)
    _log.of(source.name, count=events).error("%s", text)


def _events(pieces: Iterable[HeldPiece]) -> int:
    return sum(piece.batch.num_rows for piece in pieces)


def _put_pieces(
    source: SourceBase, processor: BatchProcessor, pieces: deque[HeldPiece], stopping: threading.Event
) -> str | None:
    """Put pieces, and take out those that are stored; return why the rest is not, where the source is being stopped."""
    while pieces:
        piece = pieces[0]
        try:
            _put_piece(source, processor, piece, stopping)
        except TOO_LARGE as e:
            pieces.popleft()
            if piece.batch.num_rows > 1:
                pieces.extendleft(HeldPiece(half, piece.counters) for half in reversed(halves(piece.batch)))
            else:
                _lose(source, e)
        except FAILURES as e:
            return said_of(e)
        else:
            pieces.popleft()
    return None


def _lose(source: SourceBase, error: SpillableError) -> None:
    """Name an event that is too large for a channel, and that nobody can read again."""
    source.counters.event_read_fail += 1
    source.miss(f"an event is lost, because it is too large for a channel: {error}")
    _log.of(source.name, count=1).error(
        "an event is lost, because it is too large for a channel: %s. Or give the source a deadLetter channel, which "
        "gets such events",
        error,
    )


def _put_piece(source: SourceBase, processor: BatchProcessor, piece: HeldPiece, stopping: threading.Event) -> None:
    """Put a piece of a batch.

    Raises:
        PutTooLargeError: a channel could not hold it if it were empty; no channel has any of it. Likewise for the
            other errors of `TOO_LARGE`.
        Exception, SystemExit: the source is being stopped, and a channel refused, or an interceptor or the selector
            raised.
    """
    wait_seconds, routed = _FIRST_WAIT_SECONDS, piece.routed
    while True:
        try:
            routed = routed or processor.route(piece.batch)
            processor.deliver(routed)
        except TOO_LARGE:  # also of one that waited, whose channel was given less room meanwhile
            source.counters.pauses.end(id(piece))
            raise
        except FAILURES as e:  # also one of an interceptor's own: the batch must not be lost for it
            is_refused = isinstance(e, SpillableError)
            source.counters.channel_write_fail += is_refused
            source.counters.generic_processing_fail += not is_refused
            source.counters.pauses.begin(id(piece), type_and_text(e))
            if stopping.is_set():
                source.counters.pauses.end(id(piece))
                is_somewhere = isinstance(routed, RoutedBatch) and not routed.is_nowhere
                piece.routed = routed if is_somewhere else None
                raise
            _log.of(source.name).warning(
                "a batch waits, and nothing is read meanwhile: %s",
                said_of(e),
                exc_info=None if is_refused or wait_seconds > _FIRST_WAIT_SECONDS else e,
            )
            stopping.wait(wait_seconds)
            wait_seconds = min(2 * wait_seconds, _LONGEST_WAIT_SECONDS)
        else:
            source.counters.pauses.end(id(piece))
            source.counters.accepted(piece.batch.num_rows)
            return
