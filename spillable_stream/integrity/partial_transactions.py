"""Which transactions are left in part: of the frames of one, some can be read, and others can't."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from spillable_stream.integrity.findings import Findings, Severity
from spillable_stream.state.ranges import Range, RangeSet

__all__ = ["PartialTransactions", "left_in_part"]


class PartialTransactions:
    """Collects transactions that may be left in part. The frames of each come one after the other."""

    def __init__(self) -> None:
        self._ids: set[int] = set()
        self._last: tuple[int, bool] | None = None
        self._is_hole = False

    def add_frame(self, transaction_id: int, is_whole: bool) -> None:
        """Add a PUT frame of a transaction, which can be read or not."""
        was = self._last or (0, is_whole)
        if was[0] == transaction_id and (self._is_hole or was[1] != is_whole):
            self._ids.add(transaction_id)
        self._last, self._is_hole = (transaction_id, is_whole), False

    def add_hole(self) -> None:
        """Add damage that nothing is known of."""
        self._is_hole = True

    def add(self, transaction_id: int) -> None:
        """Add a transaction that has whole frames, and others that are, or may be, in damaged bytes."""
        self._ids.add(transaction_id)

    def among(self, findings: Findings, gone: Iterable[Range]) -> set[int]:
        """Return those that have lost events.

        Args:
            findings: what was found; it says which events and transactions were in it.
            gone: the events that are gone.
        """
        lost, named = RangeSet(gone), set[int]()
        for found in findings.all():
            if found.severity is Severity.DAMAGE and any(any(lost.within(*events)) for events in found.events):
                named.update(found.transactions)
        return self._ids & named


def left_in_part(
    collected: Iterable[PartialTransactions], findings: Findings, gone: Collection[Range]
) -> tuple[int, ...]:
    """Return the transactions that have lost events and are left in part, in order.

    Args:
        collected: those that may be.
        findings: what was found.
        gone: the events that are gone.
    """
    return tuple(sorted({tx for one in collected for tx in one.among(findings, gone)}))
