"""The options of a read, typed: what `parse_options` found in Spark's strings, and the defaults of the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from pyspark.sql.types import DataType

from spillable_stream.channel.read_cache import divide_cache_options
from spillable_stream.engine.port import DiskCache
from spillable_stream.errors import OptionError
from spillable_stream.options import BATCH, SOURCE, defaults
from spillable_stream.spark.metadata import metadata_types

__all__ = ["BatchOptions", "ReadOptions", "StreamOptions"]


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """What streams and batch reads have in common. `spillable_stream.options` says what each option means.

    Args:
        cache: where each executor's host keeps what it reads of a store; None: nowhere.
        of_set: no option: whether a set of channels is read.
    """

    starting_offsets: str
    starting_timestamp: int | None
    fail_on_data_loss: bool
    on_corruption: str
    min_partitions: int | None
    max_events_per_partition: int | None
    metadata: bool
    cache: DiskCache | None = None
    of_set: bool = False

    @property
    def metadata_types(self) -> Mapping[str, DataType]:
        """The metadata columns of the read, with their types in Spark."""
        return metadata_types(is_wanted=self.metadata, of_set=self.of_set)

    @property
    def passes_damage(self) -> bool:
        """Whether a read continues without the events that can't be read."""
        return self.on_corruption == "quarantine"


@dataclass(frozen=True, kw_only=True)
class StreamOptions(ReadOptions):
    """The options of a streaming source. Without a ``group``, the stream has a position of its own."""

    group: str | None
    reset_group: bool
    max_events_per_trigger: int | None
    max_bytes_per_trigger: int | None
    min_events_per_trigger: int | None
    max_trigger_delay: float
    create_if_missing: bool
    async_progress_tracking_enabled: bool
    owner_timeout: float

    @classmethod
    def of(cls, given: Mapping[str, Any] | None = None, *, in_store: bool = True) -> Self:
        """Return the options of a stream.

        Args:
            given: those that were given, by keyword name, with values as `parse_options` returns them.
            in_store: whether what is read is in an object store.

        Raises:
            OptionError: ``resetGroup`` without a ``group``, or a cache of what is on a disk.
        """
        found = cls(**_with_cache({**defaults(SOURCE), **(given or {})}, in_store=in_store))
        if found.reset_group and found.group is None:
            raise OptionError("resetGroup needs a group: a stream without group has a position of its own")
        return found


@dataclass(frozen=True, kw_only=True)
class BatchOptions(ReadOptions):
    """The options of a batch read. With a ``group``, it reads only what that group has yet to take."""

    group: str | None
    ending_offsets: str
    ending_timestamp: int | None

    @classmethod
    def of(cls, given: Mapping[str, Any] | None = None, *, in_store: bool = True) -> Self:
        """Return the options of a batch read.

        Args:
            given: those that were given, by keyword name, with values as `parse_options` returns them.
            in_store: whether what is read is in an object store.

        Raises:
            OptionError: a cache of what is on a disk, or a time to end that is before the one to start.
        """
        found = cls(**_with_cache({**defaults(BATCH), **(given or {})}, in_store=in_store))
        start, end = found.starting_timestamp, found.ending_timestamp
        if start is not None and end is not None and start > end:
            from spillable_stream.channel.seek_target import shown_time  # tasks have these options too

            raise OptionError(
                f"startingTimestamp, {shown_time(start)}, is later than endingTimestamp, {shown_time(end)}: a read "
                "can't end before it begins; give it an earlier start or a later end"
            )
        return found


def _with_cache(options: dict[str, Any], *, in_store: bool) -> dict[str, Any]:
    """Return options with the read cache in place of its options."""
    rest, cache = divide_cache_options(options, in_store=in_store)
    return {**rest, "cache": cache}
