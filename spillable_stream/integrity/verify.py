"""`verify`: reads a channel, live or not, without changing it, and says what is wrong with it."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from spillable_stream.errors import ChannelBusyError, CorruptionError, SpillableError
from spillable_stream.format.file_names import parse_delayed
from spillable_stream.format.packing import MALFORMED
from spillable_stream.integrity.file_kinds import require_kinds
from spillable_stream.integrity.findings import Findings, Report, Severity
from spillable_stream.integrity.inspection import Inspection, inspect
from spillable_stream.integrity.object_verify import verify_objects
from spillable_stream.log.identity_file import require_directory
from spillable_stream.log.look_again import looks
from spillable_stream.objects.location import Location, channel_path
from spillable_stream.progress import Meter, OnProgress
from spillable_stream.storage.filesystem import FileSystem, given_file_system

__all__ = ["examine", "report_of", "verify"]


def verify(path: str | os.PathLike[str], *, fs: FileSystem | None = None, progress: OnProgress | None = None) -> Report:
    """Read everything in a channel, and return what is wrong where and what `repair` would have to give up.

    Nothing is written, created, locked or mapped; others may use the channel meanwhile.

    Args:
        path: the channel's directory, or its address in an object store.
        fs: the file system, for tests.
        progress: is told how far it is, in bytes, in this thread; if it raises, the work ends.

    Raises:
        ImportError: the address is of a cloud, and obstore is not installed.
        OptionError: it is not a path, or no channel can be at such an address.
        NotAChannelError: the path holds no channel.
        UnsupportedFormatError: a newer version wrote it.
        CorruptionError: it is so damaged that nothing says what it is, or one of its files is a directory or a link.
        ChannelBusyError: it changes faster than it can be read.
        StorageError: a file can't be read, or the store refused or failed.
    """
    meter = Meter("verify", "bytes", progress)
    place = channel_path(path)
    if isinstance(place, Location):
        report = verify_objects(place, meter)
    else:
        report = report_of(examine(given_file_system(fs), place, meter))
    meter.end()
    return report


def examine(fs: FileSystem, path: Path, meter: Meter) -> Inspection:
    """Inspect a channel, again while others change what was found wrong.

    Args:
        fs: the file system.
        path: the channel's directory.
        meter: counts the bytes that are read.

    Raises what `verify` raises.
    """
    require_directory(fs, path)
    require_kinds(fs, path)
    before: Inspection | None = None
    for look in looks(partial(_head, fs, path)):
        try:
            inspection = _inspect(fs, path, meter)
        except FileNotFoundError:  # another process created a checkpoint and deleted files meanwhile
            before = None
            continue
        if report_of(inspection).healthy or look.is_unmoved():
            return inspection
        if before is not None:
            if before.findings.all() == inspection.findings.all():
                return inspection
            if (settled := _settled(fs, before, inspection)) is not None:
                return settled
        before = inspection
    raise ChannelBusyError(f"{path} changes faster than it can be read; try again when less is put and taken")


def _settled(fs: FileSystem, before: Inspection, later: Inspection) -> Inspection | None:
    """Return an earlier inspection without the side files that were delivered while it read; None if more is wrong.

    Whoever removes a side file has published before that nothing waits in it any more. So one that is gone was missing
    only if a later look, whose state is newer, misses it too. A later look may miss others that were delivered since.
    """
    missed, still_missed = _missing_side_files(fs, before), _missing_side_files(fs, later)
    kept = [found for found in before.findings.all() if found.path not in missed - still_missed]
    damage = [found for found in kept if found.severity is Severity.DAMAGE]
    newer = {f for f in later.findings.all() if f.severity is Severity.DAMAGE and f.path not in still_missed - missed}
    if not missed - still_missed or set(damage) != newer:
        return None
    findings = Findings()
    for found in kept:
        findings.add(found)
    return replace(before, findings=findings)


def _missing_side_files(fs: FileSystem, inspection: Inspection) -> set[Path]:
    """Return the side files with damage that are gone."""
    return {
        found.path
        for found in inspection.findings.all()
        if found.severity is Severity.DAMAGE and parse_delayed(found.path.name) and not fs.exists(found.path)
    }


def _inspect(fs: FileSystem, path: Path, meter: Meter) -> Inspection:
    try:
        return inspect(fs, path, meter)
    except (FileNotFoundError, SpillableError):
        raise
    except (*MALFORMED, pa.ArrowException, OverflowError, RecursionError) as e:
        # A frame whose checksums are right and whose contents nobody wrote.
        raise CorruptionError(
            f"the channel can't be examined, nor repaired ({type(e).__name__}: {e}): restore it from a backup",
            str(path),
        ) from e


def _head(fs: FileSystem, path: Path) -> bytes:
    try:
        return fs.read_file(path / "head")
    except FileNotFoundError:
        return b""


def report_of(inspection: Inspection, quarantine: Path | None = None) -> Report:
    """Return the report of an inspection."""
    return Report(
        inspection.layout.path,
        inspection.layout.channel,
        inspection.findings.all(),
        inspection.loss,
        inspection.files,
        inspection.frames,
        inspection.read_bytes,
        inspection.unclaimed or inspection.unrepairable,
        quarantine,
        inspection.unowned,
    )
