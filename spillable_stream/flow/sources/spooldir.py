"""The source ``spooldir``: the files that are put into a directory, each event once in each channel.

A file must not change once it is there. One that does, or that is not text, is set aside with the suffix ``.ASIDE``,
and the rest is read. A batch is events of one file; its number and a note go with it into the channels, as those of
`taildir`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

import pyarrow as pa

from spillable_stream.error_text import text_of
from spillable_stream.errors import OptionError, SpillableError, StorageError
from spillable_stream.flow.checked_arguments import Count, OneOf, Size, checked
from spillable_stream.flow.sources.base import BatchProcessor
from spillable_stream.flow.sources.event_columns import event_batch, path_header
from spillable_stream.flow.sources.file_watch import FileWatch
from spillable_stream.flow.sources.numbered_source import InFlightBatch, NumberedSource, packed_note, unpacked_note
from spillable_stream.flow.sources.spool_directory import NameTooLongError, spool_directory
from spillable_stream.flow.sources.spooled_file import Decoding, FilePart, FileState, SpooledFile, UnreadableFileError
from spillable_stream.log_records import log_of
from spillable_stream.shown_value import shown

__all__ = ["SpoolDir"]

_log = log_of("spillable_stream.flow")
_KIND = "spooldir"


@dataclass(frozen=True, slots=True, kw_only=True)
class _FileBatch(InFlightBatch):
    """A batch of a file.

    Args:
        path: the file.
        start: where the batch starts in it.
        state: what the file was.
    """

    path: str
    start: int
    state: FileState


class SpoolDir(NumberedSource[_FileBatch]):
    """Reads the files that are put into a directory, one after the other.

    A file is renamed, removed or noted when all its events are stored. An empty file is one empty event.

    Args:
        spool_dir: the directory. Write a file elsewhere on the same file system, and rename it into the directory.
        file_suffix: what the name of a file gets when it was read.
        delete_policy: ``never``, or ``immediate`` to remove it instead.
        file_header: whether events have a header with the path of their file.
        file_header_key: the name of this header.
        basename_header: whether events have a header with the name of their file.
        basename_header_key: the name of this header.
        include_pattern: which files are read: a regular expression of whole names.
        ignore_pattern: which of them are not.
        tracker_dir: where it is noted what was read, relative to the directory.
        tracking_policy: ``rename``, or ``tracker_dir`` to note it there and leave the files as they are.
        consume_order: ``oldest``, ``youngest`` or ``random``.
        poll_delay: the wait before the directory is listed again, in milliseconds.
        recursive_directory_search: whether directories below it are read, too.
        max_backoff: the longest wait for a channel that refuses, in milliseconds: 250 at first, then twice as long.
        batch_size: how many events one transaction has at most.
        input_charset: the character set of the files. One that is not UTF-8 is decoded as a whole, in memory.
        decode_error_policy: ``FAIL`` sets a file aside that has bytes of no character; ``REPLACE`` and ``IGNORE``.
        deserializer: ``LINE``, or ``BLOB`` for one event a file.
        deserializer_max_line_length: longer lines are cut into several events; in characters.
        deserializer_output_charset: the character set of the bodies.
        deserializer_max_blob_length: larger files are cut into several events; in bytes.

    Raises:
        OptionError: a pattern, a character set or the deserializer is not valid.
    """

    first_refused_wait: int = 250

    @checked
    def __init__(
        self,
        spool_dir: str | os.PathLike[str],
        *,
        file_suffix: str = ".COMPLETED",
        delete_policy: Annotated[str, OneOf("never", "immediate")] = "never",
        file_header: bool = False,
        file_header_key: str = "file",
        basename_header: bool = False,
        basename_header_key: str = "basename",
        include_pattern: str = "^.*$",
        ignore_pattern: str = "^$",
        tracker_dir: str = ".flumespool",
        tracking_policy: Annotated[str, OneOf("rename", "tracker_dir")] = "rename",
        consume_order: Annotated[str, OneOf("oldest", "youngest", "random")] = "oldest",
        poll_delay: Size = 500,
        recursive_directory_search: bool = False,
        max_backoff: Size = 4000,
        batch_size: Count = 100,
        input_charset: str = "UTF-8",
        decode_error_policy: Annotated[str, OneOf("FAIL", "REPLACE", "IGNORE")] = "FAIL",
        deserializer: str = "LINE",
        deserializer_max_line_length: Count = 2048,
        deserializer_output_charset: str = "UTF-8",
        deserializer_max_blob_length: Count = 100_000_000,
    ) -> None:
        super().__init__(batch_size, poll_delay, poll_delay)
        self.max_refused_wait = max_backoff
        self._directory = spool_directory(
            spool_dir, suffix=file_suffix, delete_policy=delete_policy, tracker_dir=tracker_dir,
            tracking_policy=tracking_policy, include=include_pattern, ignore=ignore_pattern, order=consume_order,
            recursive=recursive_directory_search,
        )  # fmt: skip
        self._watch = FileWatch([self._directory.path], self._directory.has_name, recursive=recursive_directory_search)
        self._file_header = file_header_key if file_header else ""
        self._basename_header = basename_header_key if basename_header else ""
        self._batch_size = batch_size
        blob_bytes = deserializer_max_blob_length if _is_blob(deserializer) else 0
        self._decoding = Decoding(
            input_charset, decode_error_policy, deserializer_output_charset, deserializer_max_line_length, blob_bytes
        )
        self._file: SpooledFile | None = None
        self._said: set[str] = set()  # of the directories that can't be listed

    # ── start and end ───────────────────────────────────────────────────────────────────────

    def open(self, processor: BatchProcessor) -> None:
        """Resume the file that was being read, and put again what a crash may have left in some channels only.

        Raises:
            NotAChannelError: the directory is not there.
            StorageError: it can't be written, or the file not be read now.
        """
        self._directory.check()
        self._file = self._held = None
        newest = processor.newest()
        self._number = 0 if newest is None else newest.number
        if newest is not None and newest.note:
            self._resume(newest.note, complete=newest.complete)

    def _resume(self, note: bytes, *, complete: bool) -> None:
        found = unpacked_note(note)
        if found.get("source") != _KIND:
            return
        path, start, end, state = found["path"], found["start"], found["end"], FileState(*found["state"])
        self._directory.was_begun(path)
        try:
            if not self._is_same(path, end, state, found.get("seal")):
                raise FileNotFoundError(path)  # another file of the same name
            if not complete:
                self._held = self._again(path, start, end, state)
            self._file = SpooledFile(path, self._decoding, end, state)
        except FileNotFoundError:
            if not complete:
                self.counters.event_read_fail += 1
                self._miss_part(path, start, end, "is gone")
        except UnreadableFileError as e:
            if isinstance(e.__cause__, PermissionError):
                raise StorageError(text_of(e)) from e  # this user read it before, and may do so again
            if not complete and self._held is None:
                self._miss_part(path, start, end, "is not what it was")
            self._set_aside(path, e)

    def _miss_part(self, path: str, start: int, end: int, why: str) -> None:
        """Say that some channels have a batch that can't be read again for the others."""
        self.miss(f"{path} {why}, and some channels have not got its bytes {start} to {end}")
        _log.of(self.name, file=path, offset=start).error(
            "the bytes %d to %d of %s may be in some channels only, and the file %s: they can't be read again. Look "
            "for a channel without them",
            start,
            end,
            path,
            why,
        )

    def _is_same(self, path: str, end: int, state: FileState, seal: int | None) -> bool:
        """Whether the file at a path is the one that was being read, though perhaps changed.

        The inode does not tell: a file system gives that of a removed file to a new one.

        Args:
            path: the path.
            end: how far it was read.
            state: what the file was.
            seal: what it had before ``end``; None if nobody wrote that down.
        """
        now = FileState.of(path)
        if now == state or now.inode != state.inode or seal is None:
            return now.inode == state.inode
        file = SpooledFile(path, self._decoding)
        try:
            return file.seal(end) == seal
        finally:
            file.close()

    def _again(self, path: str, start: int, end: int, state: FileState) -> _FileBatch:
        file = SpooledFile(path, self._decoding, start, state)
        try:
            bodies = []
            # A batch may have been smaller than one is now: what follows it comes with the next number.
            while (part := file.next(self._batch_size, end)) is not None:
                bodies.append(part.bodies)
            whole = pa.concat_arrays(bodies) if bodies else pa.array([], pa.binary())
            return replace(self._hold(file, FilePart(whole, start, end, file.seal(end))), is_repeated=True)
        finally:
            file.close()

    def close(self) -> None:
        """Close the file that is being read."""
        self._watch.close()
        self._close_file()

    def rest(self, seconds: float, stopping: threading.Event) -> None:
        """Wait, but not longer than until there is a file; see `PolledSource.rest`."""
        self._watch.wait(seconds, stopping)

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def lag(self) -> Mapping[str, float]:
        """Return how many files are in the directory that are not read to their end."""
        return {"LagFiles": self._directory.count()}

    # ── a round ─────────────────────────────────────────────────────────────────────────────

    def _go_back(self, held: _FileBatch) -> None:
        """See `NumberedSource._go_back`."""
        try:
            file = SpooledFile(held.path, self._decoding, held.start, held.state)
        except FileNotFoundError:
            self._close_file()  # it has gone meanwhile
        except UnreadableFileError as e:
            self._set_aside(held.path, e)
        else:
            self._close_file()
            self._file = file

    def _next(self) -> _FileBatch | None:
        """Return the next batch, or None when there is no other file."""
        while True:
            path = ""
            try:
                if self._file is None:
                    path = self._choose()
                    if not path:
                        return None
                    self._file = SpooledFile(path, self._decoding)
                path = self._file.path
                if (part := self._file.next(self._limit.events)) is not None:
                    return self._hold_next(self._file, part)
                self._complete(self._file)
            except FileNotFoundError:
                self._close_file()  # it has gone meanwhile
            except UnreadableFileError as e:
                self._set_aside(path, e)

    def _choose(self) -> str:
        """Return the file to read next, "" for none, and say once which directories can't be listed."""
        path = self._directory.choose() or ""
        for why in self._directory.unlisted - self._said:
            self._said.add(why)
            self.miss(why)
            _log.of(self.name).error("%s. The others are read", why)
        return path

    def _complete(self, file: SpooledFile) -> None:
        file.check()
        try:
            self._directory.complete(file.path)
        except FileExistsError as e:
            raise UnreadableFileError(
                f"{file.path} was read, and the name that it would get is taken: rename it"
            ) from e
        except NameTooLongError as e:
            raise UnreadableFileError(f"{file.path} was read, and {e}: choose a shorter fileSuffix") from e
        self._close_file()

    def _set_aside(self, path: str, e: UnreadableFileError) -> None:
        self._close_file()
        self.counters.event_read_fail += 1
        try:
            where = self._directory.set_aside(path)
        except SpillableError as refused:
            if os.path.exists(path):
                raise
            where = f"gone ({refused})"
        self.miss(f"{path} is set aside as {where}: {e}")
        _log.of(self.name, file=path).error("%s. It is set aside as %s, and the others are read", e, where)

    def _hold_next(self, file: SpooledFile, part: FilePart) -> _FileBatch:
        try:
            return self._hold(file, part)
        except BaseException:
            file.go_back(part)  # else the file would be done without them
            raise

    def _hold(self, file: SpooledFile, part: FilePart) -> _FileBatch:
        headers = {}
        if self._file_header:
            headers[self._file_header] = path_header(os.path.abspath(file.path))
        if self._basename_header:
            headers[self._basename_header] = path_header(os.path.basename(file.path))
        note = {
            "source": _KIND,
            "path": file.path,
            "start": part.start,
            "end": part.end,
            "state": list(file.state),
            "seal": part.seal,
        }
        batch = event_batch(self._encoded(part.bodies), headers)
        return _FileBatch(batch=batch, note=packed_note(note), path=file.path, start=part.start, state=file.state)

    def _encoded(self, bodies: pa.Array) -> pa.Array:
        """Return the bodies in the output's character set; they are in UTF-8, unless they are whole files."""
        charset = self._decoding.output_charset
        if self._decoding.blob_bytes or charset == "utf-8":
            return bodies
        return pa.array([b.decode().encode(charset, "replace") for b in bodies.to_pylist()], pa.binary())


def _is_blob(deserializer: str) -> bool:
    name = deserializer.lower()
    if name in ("blob", "blobdeserializer") or name.endswith("blobdeserializer$builder"):
        return True
    if name == "avro" or name.endswith("avroeventdeserializer$builder"):
        raise OptionError(
            "the deserializer AVRO is not supported; read the files with Spark's format `avro` and write them to the "
            "channel with `spillable`, or put what a reader of your own gives into the channel with a `Producer`"
        )
    if name != "line" and not name.endswith("linedeserializer$builder"):
        raise OptionError(f"there is no deserializer {shown(deserializer)}; give LINE or BlobDeserializer")
    return False
