"""The copies that a repair makes in an object store: ``quarantine/<UTC time>/`` under the channel's root.

::

    report.json                 what was found, and what was given up; the last object that is written
    files/KEY                   every damaged object, and every object that the repair changes or removes, as it was
    damaged/KEY-OFFSET          every damaged stretch of an object by itself
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable

from spillable_stream.integrity.findings import Report, Severity
from spillable_stream.objects.salvage import QUARANTINE
from spillable_stream.objects.store import ObjectMissingError, Store, uploading

__all__ = ["ObjectRepairCopies"]

_PIECE_BYTES = 8 << 20


class ObjectRepairCopies:
    """One repair's copies.

    Attributes:
        prefix: what their keys begin with.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        name = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        self.prefix: str = f"{QUARANTINE}{name}"
        number = 1
        while next(iter(store.list(f"{self.prefix}/")), None) is not None:
            number += 1
            self.prefix = f"{QUARANTINE}{name}-{number}"

    @property
    def address(self) -> str:
        """Where they are, for people."""
        return f"{self._store.root}/{self.prefix}"

    def keep(self, report: Report, changed: Iterable[str]) -> None:
        """Copy the damaged stretches and all objects concerned, and then write the report.

        Args:
            report: what was found.
            changed: the keys of the objects that the repair is going to change or remove.

        Raises:
            StoreError: something could not be copied; nothing but these copies was written.
        """
        concerned = [f for f in report.findings if f.severity is not Severity.NOTE]
        for key in sorted({*(str(f.path) for f in concerned), *changed}):
            self._copy(key, 0, None, f"files/{key}")
        for finding in concerned:
            if finding.offset is not None and finding.size:
                key = str(finding.path)
                self._copy(key, finding.offset, finding.offset + finding.size, f"damaged/{key}-{finding.offset}")
        text = json.dumps(report.as_dict(), indent=1, sort_keys=True) + "\n"
        self._store.replace(f"{self.prefix}/report.json", text.encode())

    def _copy(self, key: str, begin: int, end: int | None, name: str) -> None:
        """Copy a part of an object; nothing if it is not there."""
        target, at = f"{self.prefix}/{name}", begin
        try:
            piece = self._piece(key, at, end)
        except ObjectMissingError:
            return
        if len(piece) < _PIECE_BYTES:
            self._store.replace(target, piece)
            return
        with uploading(self._store, target) as upload:
            while piece:
                upload.write(piece)
                at += len(piece)
                piece = self._piece(key, at, end)

    def _piece(self, key: str, at: int, end: int | None) -> bytes:
        until = at + _PIECE_BYTES if end is None else min(end, at + _PIECE_BYTES)
        return bytes(self._store.get_range(key, at, until)) if until > at else b""
