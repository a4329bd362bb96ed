"""What a source has read and could not store before it was stopped: nobody can read it again."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from spillable_stream.flow.counters import SourceCounters
from spillable_stream.flow.routed_batch import RoutedBatch

__all__ = ["HeldPiece", "Unstored"]


@dataclass(slots=True)
class HeldPiece:
    """Some events that a source holds.

    Args:
        batch: the events, as they were read.
        counters: those in which they count as received.
        routed: their way into the channels, where one of these has its part or may have it; else they are routed anew.
    """

    batch: pa.RecordBatch
    counters: SourceCounters
    routed: RoutedBatch | None = None


class Unstored:
    """Keeps the pieces of a source that was stopped, in order, for one that is started in its place. Thread-safe.

    Both have the same one, so that a source which ends late still hands over what it held.
    """

    def __init__(self) -> None:
        self._pieces: deque[HeldPiece] = deque()
        self._why = ""
        self._is_closed = False
        self._mutex = threading.Lock()

    @property
    def events(self) -> int:
        """How many events it keeps."""
        with self._mutex:
            return sum(piece.batch.num_rows for piece in self._pieces)

    @property
    def why(self) -> str:
        """Why the last of them could not be stored; "" if it has kept none."""
        return self._why

    def add(self, pieces: Iterable[HeldPiece], why: str) -> bool:
        """Keep pieces behind the others, and tell whether it does: not where no source will be started any more.

        Args:
            pieces: the pieces.
            why: why they could not be stored; "" for the same reason as those before.
        """
        return self._add(pieces, why, is_first=False)

    def put_back(self, pieces: Iterable[HeldPiece], why: str) -> bool:
        """Keep what `take` gave, before the others; see `add`."""
        return self._add(pieces, why, is_first=True)

    def _add(self, pieces: Iterable[HeldPiece], why: str, *, is_first: bool) -> bool:
        with self._mutex:
            self._why = why or self._why
            if self._is_closed:
                return False
            if is_first:
                self._pieces.extendleft(reversed([*pieces]))
            else:
                self._pieces.extend(pieces)
            return True

    def take(self) -> deque[HeldPiece]:
        """Return all pieces, and keep them no more."""
        with self._mutex:
            taken, self._pieces = self._pieces, deque()
            return taken

    def close(self) -> deque[HeldPiece]:
        """Return all pieces, and keep none that come later: no source will be started any more."""
        with self._mutex:
            self._is_closed = True
        return self.take()
