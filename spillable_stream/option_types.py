"""The options as types, for editors, type checkers and the package itself.

Made by scripts/make_option_types.py from the table in `spillable_stream.options`; change that, and run it again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypedDict

from spillable_stream.quantities import Duration, Milliseconds, Size

__all__ = ["ChannelKeywords", "ChannelOptions", "CreationOptions", "ProducerKeywords", "StoredOptions"]


class ChannelKeywords(TypedDict, total=False):
    """The options of `Channel`, as keyword arguments. None counts as not given."""

    transaction_capacity: int | None
    """The most events of one put or take transaction. A Spark micro-batch is bounded by Spark instead. Default:
    10_000."""

    memory_capacity: int | None
    """The most events that the memory tier holds; 0 for a channel that is on disk only. Default: 0."""

    byte_capacity: Size | None
    """The most memory that the memory tier takes, staged files apart. Default: of what is free, 1 GiB at most."""

    byte_capacity_buffer_percentage: int | None
    """The part of `byte_capacity` that is kept for everything but the events' own bytes. Default: 20."""

    avg_event_size: Size | None
    """A guess that decides the size of the memory tier's files; the limits count real bytes. Default: 500."""

    memory_dir: str | os.PathLike[str] | None
    """Where the memory tier goes, when it is created. Default: `/dev/shm`."""

    overflow_capacity: int | None
    """The most events on disk; 0 for a channel in memory only, but for events that a close moves to disk. Default:
    100_000_000."""

    overflow_timeout: Duration | None
    """How long a put waits for room in memory before it goes to disk, and `take()` for an event. Default: 3.0."""

    overflow_deactivation_threshold: int | None
    """How much memory must be free after a take before puts wait for room in memory again. Default: 5."""

    flush_on_close: bool | None
    """Whether the last handle to close cleanly moves the events in memory to disk. Default: True."""

    keep_alive: Duration | None
    """How long a commit waits for room in a full channel. Default: 3.0."""

    minimum_required_space: Size | None
    """Puts that would leave the file system less free space are refused; takes still work. Default: 500 MiB, or a tenth
    of the file system if that is less."""

    checkpoint_interval: Milliseconds | None
    """How old the last checkpoint may be before a commit creates a new one. Default: 30_000."""

    checkpoint_on_close: bool | None
    """Whether a clean close creates a checkpoint. Default: True."""

    max_file_size: Size | None
    """When a data file is full and the next one begins. Default: 67_108_864."""

    spare_bytes: Size | None
    """How many bytes of data files and segments whose events were taken are kept to be used again: a sync of what is
    written over other bytes is faster. They go when nothing is put for a second, at a close, and when space is short.
    Default: 268_435_456."""

    max_inline_bytes: Size | None
    """A larger put transaction is staged in a file; in memory, one of more than 64 MiB. So is a larger output of a task
    of Spark's sink: there the default is the channel's value, 256 KiB at most, and all tasks of a write send 256 MiB at
    most. Default: 4_194_304."""

    compression: Literal["none", "lz4", "zstd"] | None
    """How events are compressed, in both tiers. Default: "none"."""

    staging_ttl: Duration | None
    """How long the staged files of a Spark query that never committed them are kept. Default: 86400.0."""

    lock_timeout: Duration | None
    """How long a commit waits for other processes' commits, and an open for their recovery, before it gives up.
    Default: 30.0."""

    retention_ms: Milliseconds | None
    """The age up to which events stay readable after every group has taken them. With 0, and `retention_bytes` 0, they
    leave when they are taken. Default: 0."""

    retention_bytes: Size | None
    """How many bytes of events stay readable after every group has taken them. With 0, and `retention_ms` 0, they leave
    when they are taken. Default: 0."""

    retention_untaken: Literal["keep", "drop"] | None
    """Whether events that a group has yet to take stay beyond `retention_ms` and `retention_bytes`, or go too, and are
    reported to the group as removed. Default: "keep"."""

    auto_group_ttl: Duration | None
    """How long the position of a stream without `group` is kept while nobody reads it, counted while the channel is
    open. Default: 604800.0."""

    commit_interval: Milliseconds | None
    """In an object store: how much time there is between two appends of a handle, at least. Transactions that are
    committed meanwhile share the next one; fewer appends cost less. Default: 100."""

    commit_timeout: Duration | None
    """In an object store: how long a commit that gets no answer is tried again, before the handle makes sure that it
    will never count, or says that it does not know. Default: 30.0."""

    poll_interval: Milliseconds | None
    """In an object store: how long a reader that waits for events, or an idle Spark query, lets pass between two looks,
    at most. Each look is two GETs. Default: 1_000."""

    gc_delay: Duration | None
    """In an object store: how long objects stay that nobody needs any more, for readers that are slow. Default:
    3600.0."""

    data_dirs: str | Sequence[str | os.PathLike[str]] | None
    """Where the data files go; several spread them over disks. Default: `data` in the channel."""

    checkpoint_dir: str | os.PathLike[str] | None
    """Where the checkpoints go. Default: `checkpoint` in the channel."""

    backup_checkpoint_dir: str | os.PathLike[str] | None
    """A second place for every checkpoint, such as another disk. Default: none."""

    mode: int | str | None
    """The mode of everything that the channel creates, whatever the umask. 0770 admits the members of the Unix group of
    its directory; 0750 lets them only read. Default: "0700"."""

    durability: Literal["object", "local", "memory"] | None
    """In an object store: when a put is acknowledged. object: when it is in the store; local: when it is synced in the
    spool, on this host's disk; memory: when it is in the spool's memory tier. Default: "object"."""

    spool: str | os.PathLike[str] | None
    """In an object store, with the durability local or memory: where puts go first. A thread ships the events to the
    store, in order and each once."""

    cache_dir: str | os.PathLike[str] | None
    """Of an object store: where this host keeps what was read, so that it is asked for once. Any number of processes
    and channels may share it. With Spark it is a directory of each executor's host."""

    cache_bytes: Size | None
    """About how much `cache_dir` may take; what was read least recently goes first. Default: 1_073_741_824."""


class ProducerKeywords(TypedDict, total=False):
    """The options of `Producer`, as keyword arguments. None counts as not given."""

    ttl: Duration | None
    """For how long events count after their commit: takes pass over them after that. Default: forever."""

    total_size_in_bytes: Size | None
    """The most bytes that events and batches under way may hold; one batch may exceed it. Default: 104_857_600."""

    max_block_ms: Milliseconds | None
    """How long a send waits for room in a full buffer; 0: not at all. Default: 60_000."""

    io_thread_count: int | None
    """How many threads commit. Default: one per core."""

    batch_size_threshold_in_bytes: Size | None
    """The size at which a batch is shipped. Default: 524_288."""

    batch_count_threshold: int | None
    """The number of events at which a batch is shipped. Default: 4_096."""

    linger_ms: Milliseconds | None
    """How long a batch that is not full waits for more events. Default: 20 for channels of this host, 2,000 for other
    targets."""

    retries: int | None
    """How often a batch is retried after a failure that may pass. Default: 10."""

    max_reserved_attempts: int | None
    """How many attempts a result lists, the latest ones. Default: `retries` plus one."""

    base_retry_backoff_ms: Milliseconds | None
    """The longest wait before the first retry; it doubles for each further one. Default: 100."""

    max_retry_backoff_ms: Milliseconds | None
    """The longest wait before any retry. Default: 50_000."""

    adjust_shard_hash: bool | None
    """With several channels: true if a key is any text; false if it is the hash itself, 32 hexadecimal digits. Default:
    True."""

    buckets: int | None
    """With several channels: how many buckets the keys' hashes are divided into; the channels share them. Default:
    64."""

    context_headers: bool | None
    """Whether events get the headers `producer_id` and `producer_sequence`, which say their place in the order.
    Default: True."""


class StoredOptions(TypedDict):
    """The stored options of a channel, as `Channel.options` returns them."""

    transaction_capacity: int
    memory_capacity: int
    byte_capacity: int | None
    byte_capacity_buffer_percentage: int
    avg_event_size: int
    memory_dir: str | None
    overflow_capacity: int
    overflow_timeout: float
    overflow_deactivation_threshold: int
    flush_on_close: bool
    keep_alive: float
    minimum_required_space: int | None
    checkpoint_interval: int
    checkpoint_on_close: bool
    max_file_size: int
    spare_bytes: int
    max_inline_bytes: int
    compression: Literal["none", "lz4", "zstd"]
    staging_ttl: float
    lock_timeout: float
    retention_ms: int
    retention_bytes: int
    retention_untaken: Literal["keep", "drop"]
    auto_group_ttl: float
    commit_interval: int
    commit_timeout: float
    poll_interval: int
    gc_delay: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CreationOptions:
    """The options of a channel that are fixed when it is created."""

    data_dirs: list[str] | None = None
    checkpoint_dir: str | None = None
    backup_checkpoint_dir: str | None = None
    mode: str = "0700"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelOptions:
    """The stored options of a channel."""

    transaction_capacity: int = 10_000
    memory_capacity: int = 0
    byte_capacity: int | None = None
    byte_capacity_buffer_percentage: int = 20
    avg_event_size: int = 500
    memory_dir: str | None = None
    overflow_capacity: int = 100_000_000
    overflow_timeout: float = 3.0
    overflow_deactivation_threshold: int = 5
    flush_on_close: bool = True
    keep_alive: float = 3.0
    minimum_required_space: int | None = None
    checkpoint_interval: int = 30_000
    checkpoint_on_close: bool = True
    max_file_size: int = 67_108_864
    spare_bytes: int = 268_435_456
    max_inline_bytes: int = 4_194_304
    compression: Literal["none", "lz4", "zstd"] = "none"
    staging_ttl: float = 86400.0
    lock_timeout: float = 30.0
    retention_ms: int = 0
    retention_bytes: int = 0
    retention_untaken: Literal["keep", "drop"] = "keep"
    auto_group_ttl: float = 604800.0
    commit_interval: int = 100
    commit_timeout: float = 30.0
    poll_interval: int = 1_000
    gc_delay: float = 3600.0
    others: Mapping[str, Any] = field(default_factory=dict)
    """Options of a later version, which are kept as they are."""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> ChannelOptions:
        """Return the options that an image has, by keyword name, and the defaults of those that it does not have."""
        return cls().changed(values)

    def changed(self, values: Mapping[str, Any]) -> ChannelOptions:
        """Return the options with the values of a record, by keyword name."""
        known = {name: value for name, value in values.items() if name in _STORED}
        others = {name: value for name, value in values.items() if name not in _STORED}
        return replace(self, **known, others={**self.others, **others})

    def values(self) -> dict[str, Any]:
        """Return the options as an image has them: values by keyword name, in the table's order."""
        return {**{name: getattr(self, name) for name in _STORED}, **self.others}

    @property
    def keeps(self) -> bool:
        """Whether events stay readable after every group has taken them."""
        return bool(self.retention_ms or self.retention_bytes)

    def image(self) -> dict[str, Any]:
        """Return the values that a channel stores: options that came later only where they are not at their default."""
        return {name: value for name, value in self.values().items() if _LATER.get(name, _UNSET) != value}


_STORED = tuple(name for name in ChannelOptions.__slots__ if name != "others")
_UNSET = object()
_LATER: dict[str, Any] = {
    "spare_bytes": 268_435_456,
    "retention_ms": 0,
    "retention_bytes": 0,
    "retention_untaken": "keep",
    "auto_group_ttl": 604800.0,
    "commit_interval": 100,
    "commit_timeout": 30.0,
    "poll_interval": 1_000,
    "gc_delay": 3600.0,
}
