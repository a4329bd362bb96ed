"""The delayed events of a side file that no COMMIT names, for people: `verify` names it, and a repair keeps a copy.

Nothing proves that they were put, so they never come back by themselves. Whoever has put them knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path

import pyarrow as pa

from spillable_stream.errors import CorruptionError, OptionError
from spillable_stream.format.batch import decode_batch
from spillable_stream.format.file_names import delayed_name, seed_name
from spillable_stream.format.frame import HEADER_SIZE_BYTES, MOST_HEADER_BYTES, file_seed, message_of, parse_header
from spillable_stream.integrity.delayed_check import whole_pairs
from spillable_stream.log.frames import Readable
from spillable_stream.objects.store import ObjectMissingError, Store
from spillable_stream.objects.stored_object import StoredObject
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.delays import DelayedFile
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["unnamed_delays"]

_COPIES = "/files/"  # what comes before a key in quarantine
_GIVE = "give it as spillable verify and repair name it"


def unnamed_delays(
    channel: str, state: ChannelState, schemas: Sequence[pa.Schema], file: str, store: Store | None
) -> Iterator[tuple[Sequence[int], pa.RecordBatch]]:
    """Yield when delayed events are due and these, a frame at a time: all whole ones of a file that no COMMIT names.

    Args:
        channel: the channel's UUID.
        state: its state.
        schemas: its schemas, oldest first.
        file: the side file, or the copy of one in quarantine: its path; in a store its key.
        store: where the channel is; None for one on a disk.

    Raises:
        OptionError: there is no such file.
        CorruptionError: no delayed events of this channel can be read in it.
        StorageError: it can't be read.
    """
    name = Path(file).name if store is None else file.rpartition(_COPIES)[2]
    name = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")  # no file of a channel has another one
    is_object = store is not None or not name.startswith(delayed_name(0)[:-6])
    seed = file_seed(channel, seed_name(name) if is_object else name)
    known = {known.name or delayed_name(known.number): known.end for known in state.delays.files.values()}
    count = 0
    try:
        with _opened(file, store) as opened:
            for begin, frame, _ in whole_pairs(opened, seed, DelayedFile(0, 0, 0, opened.size(), 0, 0, 0)):
                count += 1
                if frame is None or begin < known.get(name, 0):
                    continue
                header = parse_header(opened.read(frame.offset, MOST_HEADER_BYTES), 0, seed)
                if header is not None and header.schema_id < len(schemas):
                    payload = pa.py_buffer(opened.read(frame.offset + HEADER_SIZE_BYTES, header.length))
                    yield frame.dues, decode_batch(message_of(header, payload), schemas[header.schema_id])
    except (FileNotFoundError, ObjectMissingError) as e:
        raise OptionError(f"there is no {file}; {_GIVE}") from e
    if not count:
        text = "it has no delayed events of this channel that can be read, or another name than it had in the channel"
        raise CorruptionError(text, file)


def _opened(file: str, store: Store | None) -> AbstractContextManager[Readable]:
    if store is not None:
        return nullcontext(StoredObject(store, file))
    fs, path = FileSystem(), Path(file)
    if why := fs.why_impossible(path):
        raise OptionError(f"{file} can't be read: {why}; {_GIVE}")
    return closing(fs.open(path, readonly=True))
