"""How events are divided among files: paths with escapes, names, and when a file is full."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import tzinfo
from itertools import compress
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spillable_stream.flow.escapes import PathEscapes, Rounding
from spillable_stream.flow.java_dates import time_zone
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.format.views import without_others

__all__ = ["BucketPart", "Bucketing", "Names", "RollRules", "Times"]

_NO_TIME = (
    "the path needs a time, and they have no header timestamp that says one in milliseconds since 1970: add the "
    "interceptor timestamp, or set useLocalTimeStamp"
)
_NO_PATH = (
    "their headers make a path that no file can have, as a name in it is too long, is that of a file, or has a colon "
    "on HDFS: change them with an interceptor"
)


class BucketPart(NamedTuple):
    """Events that go to one place.

    Args:
        place: the directory and what the names of its files begin with.
        batch: the events.
        ids: their write-order IDs.
    """

    place: str
    batch: pa.RecordBatch
    ids: pa.Array


@dataclass(frozen=True, slots=True)
class Times:
    """Which time the path of an event shows.

    Args:
        zone_name: its zone; empty for the host's.
        rounding: to what it is rounded down; None for not at all.
        is_clock: whether it is that of the clock rather than the header ``timestamp``.
    """

    zone_name: str = ""
    rounding: Rounding | None = None
    is_clock: bool = False

    @classmethod
    def of_options(
        cls, time_zone: str | None, round_unit: str | None, round_value: int, *, use_local_time_stamp: bool
    ) -> Times:
        """Return what the options of a sink say.

        Args:
            time_zone: the name of the zone; None for the host's.
            round_unit: the unit to which the time is rounded down; None for not at all.
            round_value: to a multiple of how many of it.
            use_local_time_stamp: whether the time is that of the clock.
        """
        return cls(time_zone or "", Rounding(round_value, round_unit) if round_unit else None, use_local_time_stamp)

    @property
    def zone(self) -> tzinfo | None:
        """The zone; None for the host's.

        Raises:
            OptionError: there is none of this name.
        """
        return time_zone(self.zone_name)


class Bucketing:
    """Divides events by their paths.

    Args:
        path: the directory and the beginning of names, with escapes.
        times: which time it shows.
        takes: whether files can have the names that a place gives them.

    Raises:
        OptionError: there is no such zone, or the path or the rounding is not valid.
    """

    def __init__(self, path: str, times: Times, takes: Callable[[str], bool] = lambda place: True) -> None:
        self._takes = takes
        self._escapes = PathEscapes(path, zone=times.zone, rounding=times.rounding, use_local_timestamp=times.is_clock)

    def divide(self, batch: pa.RecordBatch, ids: pa.Array) -> tuple[list[BucketPart], list[tuple[BucketPart, str]]]:
        """Return the events by place, in order, and those that no file can have, with the reasons."""
        if not batch.schema.equals(EVENT_SCHEMA):  # a typed channel has no headers
            return [BucketPart(self._escapes.expand({}, int(time.time() * 1000)), batch, ids)], []
        found = self._escapes.bucket(batch)
        if len(found.paths) == 1 and not len(found.untimed):
            parts = [BucketPart(found.paths[0], batch, ids)]
        else:
            parts = [
                BucketPart(p, batch.take(rows), ids.take(rows)) for p, rows in zip(found.paths, found.rows, strict=True)
            ]
        misfits = []
        if len(found.untimed):
            misfits.append((BucketPart("", batch.take(found.untimed), ids.take(found.untimed)), _NO_TIME))
        if self._escapes.has_headers:
            taken = [self._takes(part.place) for part in parts]  # once: another program may change that meanwhile
            misfits += [(part, _NO_PATH) for part, is_taken in zip(parts, taken, strict=True) if not is_taken]
            parts = list(compress(parts, taken))
        return parts, misfits


@dataclass(frozen=True, slots=True)
class Names:
    """The names of files.

    Args:
        suffix: what a name ends with.
        in_use_prefix: what it begins with while the file is written.
        in_use_suffix: what it ends with until then.
    """

    suffix: str = ""
    in_use_prefix: str = ""
    in_use_suffix: str = ".tmp"

    def final(self, place: str, counter: int) -> str:
        """Return the path of a file."""
        return f"{place}.{counter}{self.suffix}"

    def in_use(self, final: str) -> str:
        """Return its path while it is written."""
        directory, slash, name = final.rpartition("/")
        return f"{directory}{slash}{self.in_use_prefix}{name}{self.in_use_suffix}"

    def final_of(self, in_use: str) -> str:
        """Return the path of a file by the one that it has while it is written."""
        directory, slash, name = in_use.rpartition("/")
        return f"{directory}{slash}{name.removeprefix(self.in_use_prefix).removesuffix(self.in_use_suffix)}"


@dataclass(frozen=True, slots=True)
class RollRules:
    """When a file is full: before the event that would follow a limit. With 0 there is none.

    Args:
        interval_seconds: after how many seconds.
        size_bytes: after how many bytes of bodies.
        count: after how many events.
        idle_seconds: after how many seconds without an event it is closed.
    """

    interval_seconds: float = 30
    size_bytes: int = 1024
    count: int = 10
    idle_seconds: float = 0

    def pieces(
        self, batch: pa.RecordBatch, ids: pa.Array, events: int, body_bytes: int
    ) -> Iterator[tuple[pa.RecordBatch, pa.Array, int]]:
        """Yield the events by file: those that the open file gets, which may be none, then those of others.

        Args:
            batch: the events.
            ids: their IDs.
            events: how many events the open file has.
            body_bytes: how many bytes of bodies it has.

        Yields:
            Events, their IDs, and the bytes of their bodies.
        """
        ends = np.cumsum(_sizes(batch))
        start = 0
        while True:
            last = batch.num_rows
            before = int(ends[start - 1]) if start else 0
            if self.count:
                last = min(last, start + max(0, self.count - events))
            if self.size_bytes:
                full = int(np.searchsorted(ends, self.size_bytes - body_bytes + before)) + 1
                last = min(last, full if body_bytes < self.size_bytes else start)
            size = (int(ends[last - 1]) - before) if last > start else 0
            yield batch.slice(start, last - start), ids.slice(start, last - start), size
            if last == batch.num_rows:
                return
            start, events, body_bytes = last, 0, 0

    def is_over(self, opened_at: float, written_at: float, now: float) -> bool:
        """Whether a file must be closed because of the time, in monotonic seconds."""
        return now >= self.ends_at(opened_at, written_at)

    def ends_at(self, opened_at: float, written_at: float) -> float:
        """Return when a file is closed because of the time."""
        interval = opened_at + self.interval_seconds if self.interval_seconds else float("inf")
        return min(interval, written_at + self.idle_seconds if self.idle_seconds else float("inf"))


def _sizes(batch: pa.RecordBatch) -> np.ndarray:
    index = batch.schema.get_field_index("body")
    if index < 0 or batch.schema.field(index).type != pa.binary():
        return np.full(batch.num_rows, without_others(batch).nbytes // max(1, batch.num_rows), np.int64)
    lengths = pc.fill_null(pc.binary_length(batch.column(index)), 0)
    return np.asarray(lengths.to_numpy(zero_copy_only=False), np.int64)
