"""Readers that are overtaken: the file that they read is used again under their eyes, at every moment of their read.

They read without the lock that keeps a file as it is, as whoever copies a file does, or a reader that opened it in the
moment in which it was freed. They must give the right bytes, or say that these are gone; and never call a file damaged.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from spillable_stream import Channel, CorruptionError, DataLossError, Event
from spillable_stream.format.extent import Extent
from spillable_stream.log import event_reader
from spillable_stream.log.event_reader import EventReader

_BODY_BYTES = 30_000  # larger than the first part of a file that a reader keeps
_EVENTS = 12
_OPTIONS = {"max_file_size": 8 * _BODY_BYTES, "spare_bytes": 64 * _BODY_BYTES, "minimum_required_space": 0}


def body(event_id: int) -> bytes:
    return b"%010d" % event_id * (_BODY_BYTES // 10)


def put(channel: Channel, count: int) -> None:
    for _ in range(count):
        with channel.put_transaction() as tx:
            tx.put(Event(body(channel.engine().follow().last_id + 1)))


def drain(channel: Channel) -> None:
    while True:
        with channel.take_transaction() as tx:
            if not tx.take_many(1000):
                return


def use_again(channel: Channel, puts: int) -> None:
    """Take everything, and write over its files; with 0 puts, only free them."""
    drain(channel)
    put(channel, puts)


def overtaken(channel: Channel, after_frames: int, puts: int) -> Iterator[str]:
    """Read some events, and have their files used again after so many frames; say what is wrong with the read."""
    put(channel, _EVENTS)
    last = channel.engine().follow().last_id
    reader: EventReader = channel.engine().reader()
    extents: list[Extent] = channel.engine().state.blocks.extents(last - _EVENTS + 1, last)
    expected, seen = last - _EVENTS + 1, 0
    try:
        for extent in extents:
            if seen == after_frames:
                use_again(channel, puts)
            for read in reader.read(extent):
                if (seen := seen + 1) == after_frames:
                    use_again(channel, puts)
                for value in read.batch.column("body"):
                    if read.first_id != expected or value.as_py() != body(expected):
                        yield f"event {expected} is {value.as_py()[:10]!r}, read as {read.first_id}"
                    expected += 1
    except DataLossError:
        pass
    except CorruptionError as e:
        yield f"{type(e).__name__}: {e}"
    finally:
        reader.close()
        drain(channel)


def wrongs_of_overtaken_readers(directory: Path) -> list[str]:
    """Return what was wrong when readers were overtaken, at every frame and by little and by much."""
    wrong: list[str] = []
    with (
        mock.patch.object(event_reader.FileLock, "try_acquire", _only_exclusive(event_reader.FileLock.try_acquire)),
        Channel(directory / "channel", **_OPTIONS) as channel,
    ):
        for puts in (0, 3, _EVENTS, 2 * _EVENTS):
            for after_frames in range(_EVENTS):
                wrong += overtaken(channel, after_frames, puts)
    return wrong


def _only_exclusive(real: object) -> object:
    """Return a lock that is never shared: a reader's is taken for granted, and nobody sees it."""

    def try_acquire(self: event_reader.FileLock, *, shared: bool = False) -> bool:
        is_data_file = self.path.name.startswith("log-")
        return True if shared and is_data_file else bool(real(self, shared=shared))  # type: ignore[operator]

    return try_acquire


def test_a_reader_that_is_overtaken_gives_no_wrong_byte_and_says_what_is_gone(shared_memory: Path) -> None:
    assert wrongs_of_overtaken_readers(shared_memory) == []
