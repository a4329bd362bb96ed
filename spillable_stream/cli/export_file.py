"""A resumable export of events to one file: parts beside it, each of them whole, which become the file at the end.

::

    OUT.partial/plan.json                 which channel, which events, which format
    OUT.partial/part-FIRST-LAST-COUNT     the events from FIRST to LAST, as lines or as an Arrow stream
    OUT                                   has its name when it is whole, and not before

An export that was interrupted continues behind its last part. It has the events that it was to have when it began,
however often it is interrupted.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from spillable_stream.channel.event import ID_COLUMN
from spillable_stream.cli.export_parts import ArrowPart, CsvPart, JsonPart, PartWriter
from spillable_stream.cli.export_plan import ExportFormat, ExportPlan
from spillable_stream.durable_names import sync_directory
from spillable_stream.errors import ChannelBusyError, OptionError, SchemaError, SpillableError, StorageError
from spillable_stream.format.packing import NONSENSE
from spillable_stream.format.types import NOT_ARROW
from spillable_stream.progress import UNTOLD, Meter, OnProgress

if TYPE_CHECKING:
    from spillable_stream.channel.channel import Channel

__all__ = ["Export"]

_PART_BYTES = 64 << 20
_PLAN = "plan.json"
_JOINED = "joined"
_AS_ARROW = ("parquet", "arrow")  # the formats whose parts are Arrow streams
_TEMPORARY = (_JOINED, "plan.tmp", "unfinished")


@dataclass(frozen=True, slots=True, order=True)
class _Part:
    """A whole part: its first and last event, how many it has, and its file."""

    first_id: int
    last_id: int
    count: int
    path: Path


def _part_of(path: Path) -> _Part:
    first_id, last_id, count = map(int, path.name.removeprefix("part-").split("-"))
    return _Part(first_id, last_id, count, path)


class Export:
    """Writes events of a channel to a file.

    Args:
        channel: the channel, which may only be looked at.
        out: the file.
        plan: what to export, unless there is an export to continue.

    Attributes:
        plan: what it exports.
        done_id: the last event that is in a whole part.
        read_id: the last event that was read.

    Raises:
        OptionError: there is an export of something else to continue.
    """

    def __init__(self, channel: Channel, out: Path, plan: ExportPlan) -> None:
        self._channel = channel
        self._out = out
        self._directory = out.with_name(out.name + ".partial")
        self._meter = UNTOLD
        self._is_joined = False
        self._replaced = _state_of(out)
        self._look(plan)

    def _look(self, wanted: ExportPlan) -> None:
        """Begin where the directory says that an export was."""
        self.plan: ExportPlan = self._begun(wanted) or wanted
        self.done_id: int = self.kept_id()
        self.read_id: int = self.done_id

    def _begun(self, wanted: ExportPlan) -> ExportPlan | None:
        """Return the plan of the export that was interrupted, if there is one."""
        try:
            found = ExportPlan(**json.loads((self._directory / _PLAN).read_text()))
        except FileNotFoundError:
            return None
        except (OSError, *NONSENSE) as e:
            raise OptionError(f"{self._directory / _PLAN} can't be read ({e}): remove {self._directory}") from e
        if found.asked() != wanted.asked():
            raise OptionError(
                f"{self._directory} is what remains of an export of {found.asked()}: continue that one, or remove the "
                "directory"
            )
        return found

    @property
    def is_whole(self) -> bool:
        """Whether the file has its name."""
        return self._is_joined and not (self._directory / _JOINED).exists()

    @property
    def replaces(self) -> bool:
        """Whether there is a file, which it replaces."""
        return self._replaced is not None

    def kept_id(self) -> int:
        """Return the event that an export would continue behind now; the one before the first if it would begin."""
        is_begun = (self._directory / _PLAN).exists()
        return max([self.plan.first_id - 1, *(part.last_id for part in self._parts() if is_begun)])

    def run(self, progress: OnProgress | None = None, *, any_file: bool = False) -> int:
        """Export what is not exported yet, and return how many events the file has.

        Args:
            progress: is told how far it is, in IDs of events; if it raises, the work ends.
            any_file: whether it replaces any file, rather than that which was there when this was made.

        Raises:
            ChannelBusyError: another export writes this file now, or somebody wrote it meanwhile.
            DataLossError: events left the channel before they were read.
            SchemaError: the format can't hold a value.
            StorageError: the disk refused; run it again.
        """
        if any_file:
            self._replaced = _ANY
        with _naming(self._out), self._alone():
            self._require_same()
            self._look(self.plan)  # again: another one may have ended meanwhile
            if not (self._directory / _PLAN).exists():
                self._clear()  # what a finished export left that was killed as it removed its parts
                sync_directory(self._directory)
                self._write_plan()
            self._meter = Meter("export", "events", progress)
            self._meter.begin(self.plan.last_id - self.plan.first_id + 1)
            while self.done_id < self.plan.last_id and self._write_part():
                pass
            return self._join()

    def _write_plan(self) -> None:
        _write_durably(self._directory / _PLAN, json.dumps(asdict(self.plan)).encode())

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the directory while the block runs: two exports would write into each other's parts."""
        self._directory.mkdir(exist_ok=True)
        descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_held = os.path.samestat(os.fstat(descriptor), os.stat(self._directory))
            except (BlockingIOError, FileNotFoundError):
                is_held = False
            if not is_held:
                raise ChannelBusyError(
                    f"another export is writing {self._out}: wait until it ends, or give another file"
                )
            yield
        finally:
            os.close(descriptor)

    def _require_same(self) -> None:
        """Refuse to replace another file than the one that was found, and perhaps asked about."""
        if self._replaced is _ANY or _state_of(self._out) == self._replaced:
            return
        with suppress(OSError):  # nothing was begun
            self._directory.rmdir()
        raise ChannelBusyError(f"{self._out} was written meanwhile, perhaps by another export: check it, and repeat")

    # ── parts ───────────────────────────────────────────────────────────────────────────────────

    def _parts(self) -> list[_Part]:
        """Return the whole parts, in order."""
        paths = self._directory.glob("part-*")
        return sorted(_part_of(path) for path in paths)

    def _write_part(self) -> bool:
        """Write the next part; tell whether there was an event for it."""
        first_id = count = size_bytes = 0
        temporary = self._directory / "unfinished"
        with _written(temporary) as file:
            writer = self._writer(file)
            for batch in self._channel.read(self.done_id + 1, self.plan.last_id):
                ids = batch.column(ID_COLUMN)
                writer.write(batch.select(self.plan.columns))
                first_id, self.read_id = first_id or ids[0].as_py(), ids[-1].as_py()
                count, size_bytes = count + batch.num_rows, size_bytes + batch.nbytes
                self._meter.reach(self.read_id - self.plan.first_id + 1)
                if size_bytes >= _PART_BYTES:
                    break
            writer.close()
        if not count:
            return False
        _rename_durably(temporary, self._directory / f"part-{first_id:020}-{self.read_id:020}-{count}")
        self.done_id = self.read_id
        return True

    def _columns(self) -> pa.Schema:
        all_columns = self._channel.schema.append(pa.field(ID_COLUMN, pa.int64()))
        return pa.schema([all_columns.field(name) for name in self.plan.columns])

    def _writer(self, file: IO[bytes]) -> PartWriter:
        if self.plan.format in _AS_ARROW:
            return ArrowPart(file, self._columns())
        return self._csv_writer(file) if self.plan.format == ExportFormat.CSV else JsonPart(file)

    def _csv_writer(self, file: IO[bytes]) -> CsvPart:
        return CsvPart(file, self.plan.delimiter)

    # ── the file ────────────────────────────────────────────────────────────────────────────────

    def _join(self) -> int:
        """Create the file of the parts, give it its name, remove the rest, and return how many events it has."""
        temporary, parts = self._directory / _JOINED, self._parts()
        with _written(temporary) as file:
            if self.plan.format in _AS_ARROW:
                self._join_arrow(file, parts)
            else:
                if self.plan.format == ExportFormat.CSV:
                    self._csv_writer(file).write_line(self.plan.columns)
                for part in parts:
                    with open(part.path, "rb") as contents:
                        shutil.copyfileobj(contents, file, 1 << 20)
        self._require_same()
        self._is_joined = True
        (self._directory / _PLAN).unlink()  # first: without it nothing continues, whichever parts are left
        sync_directory(self._directory)
        try:
            self._require_same()  # again, since that takes its time
        except ChannelBusyError:
            self._write_plan()
            raise
        os.replace(temporary, self._out)
        try:
            sync_directory(self._out.parent)
        except OSError as e:
            raise StorageError(
                f"{self._out} is whole, but the disk could not sync its name ({e.strerror}), so a power cut may take "
                "it away: check the disk, and export once more with --yes"
            ) from e
        self._clear()
        with suppress(OSError):  # something else is there, too
            self._directory.rmdir()
        return sum(part.count for part in parts)

    def _clear(self) -> None:
        for path in self._directory.iterdir():
            if path.name.startswith("part-") or path.name in _TEMPORARY:
                path.unlink()

    def _join_arrow(self, file: IO[bytes], parts: list[_Part]) -> None:
        with self._joiner(file) as writer:
            for part in parts:
                with pa.OSFile(str(part.path)) as contents:
                    for batch in pa.ipc.open_stream(contents):
                        writer.write_batch(batch)

    def _joiner(self, file: IO[bytes]) -> Any:
        """Return what has ``write_batch``, and ends the file at the end of a with block."""
        if self.plan.format == ExportFormat.ARROW:
            return pa.ipc.new_file(file, self._columns(), options=pa.ipc.IpcWriteOptions(compression="zstd"))
        from pyarrow import parquet

        return parquet.ParquetWriter(file, self._columns(), compression="zstd")


# ── files ───────────────────────────────────────────────────────────────────────────────────────


_State: TypeAlias = tuple[int, int, int, int] | None
_ANY = (0, 0, 0, 0)  # stands for any file, or none


def _state_of(file: Path) -> _State:
    """Return what tells a file from others of its name, and from itself once it is written; None: it is missing."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


@contextmanager
def _naming(out: Path) -> Iterator[None]:
    """Say which export the system, or Arrow, refused."""
    try:
        yield
    except SpillableError:
        raise
    except NOT_ARROW as e:
        if isinstance(e, OSError) and e.errno is not None:
            raise StorageError(f"exporting to {out} failed: {e.strerror or e}; run it again once that is fixed") from e
        why = f"{out} can't hold the events in this format ({e}); --format arrow holds all that a channel does"
        raise SchemaError(f"{why}. Remove {out}.partial") from e


@contextmanager
def _written(path: Path) -> Iterator[IO[bytes]]:
    """Write a file, and sync it; if that fails it is removed: a full disk needs the space."""
    try:
        with open(path, "wb") as file:
            yield file
            _sync(file)
    except BaseException:
        with suppress(OSError):
            path.unlink()
        raise


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _write_durably(path: Path, data: bytes) -> None:
    temporary = path.with_suffix(".tmp")
    with _written(temporary) as file:
        file.write(data)
    _rename_durably(temporary, path)


def _rename_durably(path: Path, to: Path) -> None:
    os.replace(path, to)
    sync_directory(to.parent)
