"""The copies that a repair makes of what it found and changes: ``DIR/quarantine/<UTC time>``.

::

    report.json                 what was found, and what was given up; the last file that is written
    files/…                     every damaged file and every file that the repair changes, as it was
    damaged/NAME-OFFSET         every damaged stretch of a file by itself
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from spillable_stream.errors import StorageError
from spillable_stream.format.file_names import Tier
from spillable_stream.integrity.findings import Report
from spillable_stream.integrity.log_file import opened
from spillable_stream.log.layout import Layout
from spillable_stream.log_records import fields, log_of
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["RepairCopies", "memory_files"]

_log = log_of(__name__)

_PIECE_BYTES = 4 << 20


class RepairCopies:
    """One repair's copies, in a directory that is made at once."""

    def __init__(self, fs: FileSystem, layout: Layout) -> None:
        self._fs = fs
        self._layout = layout
        name = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        parent, number = layout.path / "quarantine", 1
        self._kept: set[Path] = set()
        self.path: Path = parent / name
        while fs.exists(self.path):
            number += 1
            self.path = parent / f"{name}-{number}"
        fs.make_directory(self.path)
        fs.sync_parents(self.path)  # another one may have been killed before it did

    def keep(self, report: Report, changed: Iterable[Path]) -> None:
        """Copy the damaged stretches and all files concerned, durably, and then the report.

        A file that has a copy keeps that.

        Args:
            report: what was found.
            changed: the files that the repair is going to change or remove.

        Raises:
            StorageError: something could not be copied; what this call wrote is gone.
        """
        before = set(self.path.rglob("*"))
        try:
            self._keep(report, changed)
        except BaseException:  # or each attempt on a full disk would leave less room for the next one
            with contextlib.suppress(OSError):
                for path in sorted({*self.path.rglob("*")} - before, reverse=True):  # what is deepest, first
                    path.rmdir() if path.is_dir() else path.unlink()
                if not before:
                    self.path.rmdir()
            raise

    def _keep(self, report: Report, changed: Iterable[Path]) -> None:
        concerned = {f.path for f in report.findings if f.severity != "note"}
        for path in sorted({*concerned, *changed} - self._kept):
            if self._fs.is_file(path):
                self._kept.add(path)
                with self._unless_backup(path):
                    target = self.path / "files" / self._place(path)
                    self._fs.make_directory(target.parent)
                    self._fs.copy_durably(path, target)
        for finding in report.findings:
            if finding.severity != "note" and finding.offset is not None and self._fs.is_file(finding.path):
                with self._unless_backup(finding.path):
                    self._cut_out(finding.path, finding.offset, finding.size)
        self._fs.write_atomically(
            self.path / "report.json", json.dumps(report.as_dict(), indent=1, sort_keys=True).encode() + b"\n"
        )

    @contextlib.contextmanager
    def _unless_backup(self, path: Path) -> Iterator[None]:
        """Let a copy fail of what is in ``backupCheckpointDir``: nothing may depend on that directory."""
        try:
            yield
        except (FileNotFoundError, StorageError) as e:
            if path.parent != self._layout.backup_checkpoint_dir:
                raise
            _log.warning("%s could not be copied: %s", path, e, extra=fields(self._layout.path, file=path))

    def _place(self, path: Path) -> Path:
        """Return where the copy of a file goes: by the role of its directory, wherever that is."""
        layout = self._layout
        roles = {directory: f"data-{i}" if i else "data" for i, directory in enumerate(layout.data_dirs)}
        roles |= {layout.path: ".", layout.memory: "memory", layout.path / "groups": "groups"}
        roles |= {layout.checkpoint_dir: "checkpoint"}
        if layout.backup_checkpoint_dir is not None:
            roles |= {layout.backup_checkpoint_dir: "backup"}
        return Path(roles.get(path.parent, "."), path.name)

    def _cut_out(self, path: Path, offset: int, size: int | None) -> None:
        target = self.path / "damaged" / f"{path.name}-{offset}"
        self._fs.make_directory(target.parent)
        with opened(self._fs, path) as source:
            end = source.size() if size is None else min(source.size(), offset + size)
            piece = self._fs.open(target, create=True)
            try:
                for at in range(offset, end, _PIECE_BYTES):
                    piece.write(at - offset, [source.read(at, min(_PIECE_BYTES, end - at))])
                piece.sync()
            finally:
                piece.close()
        self._fs.sync_directory(target.parent)


def memory_files(fs: FileSystem, layout: Layout) -> list[Path]:
    """Return the log files and segments of the memory tier."""
    files: list[int | str] = list(layout.log_files(fs, Tier.MEMORY))
    files += [name for name in layout.segments(fs) if layout.segment_file(name).parent == layout.memory]
    return [layout.file(f) for f in files]
