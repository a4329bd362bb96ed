"""Telling which events and transactions were in damaged bytes: the frames before and after them say it."""

from __future__ import annotations

from spillable_stream.format.frame import CONTROL_TYPES, FrameHeader, FrameType
from spillable_stream.integrity.findings import Finding, Findings, Severity
from spillable_stream.integrity.log_file import LogFile
from spillable_stream.integrity.partial_transactions import PartialTransactions
from spillable_stream.log.frames import Damage
from spillable_stream.state.channel_state import Pending
from spillable_stream.state.ranges import Range

__all__ = ["DamageFindings"]

_ENDED = {FrameType.COMMIT, FrameType.ROLLBACK, FrameType.FILE_HEADER}


class DamageFindings:
    """Adds the damage in logs to findings, in the order of the logs.

    Args:
        findings: where it is added.
        partial: where the transactions are added that lack frames.

    Attributes:
        files: the numbers of the files in which there is damage.
        before: the header of the last frame.
    """

    def __init__(self, findings: Findings, partial: PartialTransactions) -> None:
        self.files: set[int | str] = set()
        self._findings = findings
        self._partial = partial
        self.before: FrameHeader = FrameHeader(FrameType.FILE_HEADER, 0, 0, 0, 0, 0, 0, 0)
        self._hole: tuple[Finding, int] | None = None  # damage, and the next ID before it

    def add(self, file: LogFile, damage: Damage, text: str, next_id: int) -> None:
        """Add damage.

        Args:
            file: the file that it is in.
            damage: where it is.
            text: what it is.
            next_id: the ID that the next PUT should have.
        """
        header = damage.header
        events: tuple[Range, ...] = ()
        transactions = {header.transaction_id} if header else set()
        if header and header.type == FrameType.PUT:
            events = ((header.write_order_id, header.write_order_id + header.count - 1),)
        elif header is None and self.before.type not in _ENDED:
            transactions.add(self.before.transaction_id)
        found = tuple(sorted(transactions - {0}))
        finding = Finding(Severity.DAMAGE, file.path, text, damage.offset, damage.size, events, found)
        self._findings.add(finding)
        self.files.add(file.file_id)
        if header is None:
            self._hole = finding, next_id

    def add_missing(self, file: LogFile, text: str, next_id: int) -> None:
        """Add a file that is missing; the arguments are those of `add`."""
        finding = Finding(Severity.DAMAGE, file.path, text)
        self._findings.add(finding)
        self.files.add(file.file_id)
        self._hole = finding, next_id

    def add_repeated(self, file: LogFile, offset: int, text: str, events: tuple[Range, ...]) -> None:
        """Add an append that does not count, or not all of it, since the log before has such events.

        Args:
            file: the file that it is in.
            offset: where it is.
            text: what it is.
            events: the IDs that no other event has.
        """
        self._findings.add(Finding(Severity.DAMAGE, file.path, text, offset, None, events))
        self.files.add(file.file_id)

    def add_void(self, file: LogFile, events: tuple[Range, ...], last_id: int) -> None:
        """Add a slot that counts for nobody: its writer found that slots before it were lost.

        Args:
            file: the slot.
            events: those of the events in them that are known; others may have their IDs.
            last_id: the last ID that was in use before it, if it says that.
        """
        knew = f", which knew the events up to {last_id}," if last_id > 0 else ""
        text = f"the slot counts for nobody: its writer{knew} found that slots before it were lost"
        severity = Severity.DAMAGE if events else Severity.NOTE
        self._findings.add(Finding(severity, file.path, text, None, None, events))

    def follow(self, header: FrameHeader, pending: Pending | None) -> None:
        """Add to the last damage what a frame says of it.

        Args:
            header: the frame's header.
            pending: what was there of the frame's transaction before it.
        """
        if self._hole is not None:
            self._follow_hole(self._hole[0], header, pending)
        self.before = header

    def _follow_hole(self, finding: Finding, header: FrameHeader, pending: Pending | None) -> None:
        if header.type == FrameType.COMMIT:
            held = sum(put.count for _, _, put in pending.frames) if pending else 0
            if held < header.count and not (pending and pending.takes):
                self._findings.add(_about(finding, header.transaction_id))
                if held:
                    self._partial.add(header.transaction_id)
        if header.type == FrameType.PUT and header.write_order_id:
            self.close(header.write_order_id)
        elif header.type == FrameType.COMMIT and header.write_order_id:
            self.close(header.write_order_id + header.count)
        elif header.type in CONTROL_TYPES:
            self.close(0)

    def close(self, next_id: int) -> None:
        """Add the events to the last damage that were in it.

        Args:
            next_id: the ID of the first event after it; 0 if nothing says it.
        """
        if self._hole is not None:
            finding, before = self._hole
            self._hole = None
            if next_id > before:
                self._findings.add(_about(finding, 0, ((before, next_id - 1),)))


def _about(finding: Finding, transaction_id: int, events: tuple[Range, ...] = ()) -> Finding:
    transactions = (transaction_id,) if transaction_id else ()
    return Finding(finding.severity, finding.path, finding.text, finding.offset, finding.size, events, transactions)
