"""Every option once: name, type, default, range and meaning.

Spark's options, keyword arguments, configuration files and the tables of the documentation all
come from here. Names are Flume's where Flume has the option; a keyword argument is the same name
in snake_case; names are compared without case and underscores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from spillable_stream.errors import OptionError
from spillable_stream.names import APPLICATION, NAME, parse_application, parse_name
from spillable_stream.option_names import keyword_of, named_like, nearest_name
from spillable_stream.option_parsers import (
    REFUSED,
    WrongValueError,
    boolean,
    columns,
    delay,
    directories,
    directory,
    directory_of_this_host,
    duration,
    duration_above_zero,
    duration_of_a_second,
    integer,
    milliseconds,
    mode,
    not_empty,
    offset,
    one_of,
    or_zero,
    path,
    power_of_two,
    size,
    timestamp,
)
from spillable_stream.quantities import DURATION_RANGE, MILLISECONDS_RANGE, SIZE_RANGE
from spillable_stream.shown_value import shown

__all__ = [
    "BATCH",
    "BUCKETS",
    "CHANNEL",
    "CREATION",
    "HANDLE",
    "MOST_BUCKETS",
    "OPTIONS",
    "PRODUCER",
    "SINK",
    "SOURCE",
    "Option",
    "defaults",
    "keyword_of",
    "parse_options",
]

CHANNEL = "channel"  # stored in the channel; a later open may change it
CREATION = "creation"  # fixed when the channel is created
HANDLE = "handle"  # of one handle of a channel; stored nowhere
SOURCE = "source"  # of one Spark read
SINK = "sink"  # of one Spark write
BATCH = "batch"  # of one Spark batch read
PRODUCER = "producer"  # of one producer; by the names that the Aliyun LOG Java Producer has, in snake_case

BUCKETS, MOST_BUCKETS = 64, 512  # of the hashes of keys (`spillable_stream.sharding`)

_LEAST_OF_A_NAME = 4  # letters of a part of a name that say which one was meant

_SCOPES = {
    CHANNEL: "channel",
    CREATION: "new channel",
    HANDLE: "channel's handle",
    SOURCE: "streaming source",
    SINK: "sink",
    BATCH: "batch read",
    PRODUCER: "producer",
}


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    Args:
        name: its name, in Flume's camelCase.
        scopes: where it may be given: some of "channel", "creation", "handle", "source", "sink", "batch",
            "producer".
        default: the value when it is not given.
        parse: turns a string or value into the option's type (`spillable_stream.option_parsers`).
        range: what is allowed, for people.
        doc: what it does.
        scope_defaults: other defaults in some scopes.
        alias: another name for it, Kafka's.
        stored_at_default: whether a channel stores it also where it has its default. An option that came later is
            not: a channel that does not use it is on disk what it was before.
    """

    name: str
    scopes: tuple[str, ...]
    default: Any
    parse: Callable[[Any], Any]
    range: str
    doc: str
    scope_defaults: Mapping[str, Any] = field(default_factory=dict)
    alias: str = ""
    stored_at_default: bool = True

    def default_in(self, scope: str) -> Any:
        """Return the default in a scope."""
        return self.scope_defaults.get(scope, self.default)

    @property
    def keyword(self) -> str:
        """The option as a keyword argument."""
        return keyword_of(self.name)

    @property
    def given_type(self) -> str:
        """The type, as an annotation, that a type checker asks of a value that is given."""
        return str(self.parse.__annotations__["value"])

    @property
    def parsed_type(self) -> str:
        """The type, as an annotation, of a value that was parsed."""
        return str(self.parse.__annotations__["return"])


_MIB = 1 << 20
_MOST_MILLISECONDS = 100 * 365 * 86_400_000
_AT_LEAST_1 = "an integer of at least 1"
_AT_LEAST_0 = "an integer of at least 0"
_BOOLEAN = "true or false"
_SECONDS = f"{DURATION_RANGE}; 0 or more"
_FROM_A_SECOND = f"{DURATION_RANGE}; a second or more"
_MILLISECONDS = f"{MILLISECONDS_RANGE}; 1 or more"
_DIRECTORY = "a directory"
_OFFSETS = 'a write-order ID, or an offset as Spark shows it: `{"writeOrderId": 7}`'
_TIME = "milliseconds since 1970, or an ISO 8601 time with its zone: `2026-11-21T08:00:00Z`"

OPTIONS: tuple[Option, ...] = (
    Option("transactionCapacity", (CHANNEL,), 10_000, integer(1), _AT_LEAST_1,
           "The most events of one put or take transaction. A Spark micro-batch is bounded by Spark instead."),
    Option("memoryCapacity", (CHANNEL,), 0, integer(0), _AT_LEAST_0,
           "The most events that the memory tier holds; 0 for a channel that is on disk only."),
    Option("byteCapacity", (CHANNEL,), None, size(1 << 20), f"{SIZE_RANGE}; 2^20 or more",
           "The most memory that the memory tier takes, staged files apart. Default: of what is free, 1 GiB at most."),
    Option("byteCapacityBufferPercentage", (CHANNEL,), 20, integer(0, 99), "a percentage, 0 to 99",
           "The part of `byteCapacity` that is kept for everything but the events' own bytes."),
    Option("avgEventSize", (CHANNEL,), 500, size(1, 1 << 30), f"{SIZE_RANGE}; 1 to 2^30",
           "A guess that decides the size of the memory tier's files; the limits count real bytes."),
    Option("memoryDir", (CHANNEL,), None, directory, _DIRECTORY,
           "Where the memory tier goes, when it is created. Default: `/dev/shm`."),
    Option("overflowCapacity", (CHANNEL,), 100_000_000, integer(0), _AT_LEAST_0,
           "The most events on disk; 0 for a channel in memory only, but for events that a close moves to disk."),
    Option("overflowTimeout", (CHANNEL,), 3.0, duration, _SECONDS,
           "How long a put waits for room in memory before it goes to disk, and `take()` for an event."),
    Option("overflowDeactivationThreshold", (CHANNEL,), 5, integer(0, 100), "a percentage, 0 to 100",
           "How much memory must be free after a take before puts wait for room in memory again."),
    Option("flushOnClose", (CHANNEL,), True, boolean, _BOOLEAN,
           "Whether the last handle to close cleanly moves the events in memory to disk."),
    Option("keepAlive", (CHANNEL, SINK), 3.0, duration, _SECONDS,
           "How long a commit waits for room in a full channel.", {SINK: 300.0}),
    Option("minimumRequiredSpace", (CHANNEL,), None, size(0), f"{SIZE_RANGE}; 0 or more",
           "Puts that would leave the file system less free space are refused; takes still work. Default: 500 MiB, or "
           "a tenth of the file system if that is less."),
    Option("checkpointInterval", (CHANNEL,), 30_000, milliseconds(1), _MILLISECONDS,
           "How old the last checkpoint may be before a commit creates a new one."),
    Option("checkpointOnClose", (CHANNEL,), True, boolean, _BOOLEAN,
           "Whether a clean close creates a checkpoint."),
    Option("maxFileSize", (CHANNEL,), 64 << 20, size(1, 2**40), f"{SIZE_RANGE}; 1 to 2^40",
           "When a data file is full and the next one begins."),
    Option("spareBytes", (CHANNEL,), 256 << 20, size(0), f"{SIZE_RANGE}; 0 or more",
           "How many bytes of data files and segments whose events were taken are kept to be used again: a sync of "
           "what is written over other bytes is faster. They go when nothing is put for a second, at a close, and "
           "when space is short.",
           stored_at_default=False),
    Option("maxInlineBytes", (CHANNEL, SINK), 4 << 20, size(0, 1 << 30), f"{SIZE_RANGE}; 0 to 2^30",
           "A larger put transaction is staged in a file; in memory, one of more than 64 MiB. So is a larger output of "
           "a task of Spark's sink: there the default is the channel's value, 256 KiB at most, and all tasks of a "
           "write send 256 MiB at most.",
           {SINK: None}),
    Option("compression", (CHANNEL,), "none", one_of("none", "lz4", "zstd"), "none, lz4 or zstd",
           "How events are compressed, in both tiers."),
    Option("stagingTtl", (CHANNEL,), 86_400.0, duration, _SECONDS,
           "How long the staged files of a Spark query that never committed them are kept."),
    Option("lockTimeout", (CHANNEL,), 30.0, duration, _SECONDS,
           "How long a commit waits for other processes' commits, and an open for their recovery, before it gives up."),
    Option("retentionMs", (CHANNEL,), 0, or_zero(1000, milliseconds(0, _MOST_MILLISECONDS)),
           f"{MILLISECONDS_RANGE}; 1,000 or more, or 0",
           "The age up to which events stay readable after every group has taken them. With 0, and `retentionBytes` 0, "
           "they leave when they are taken.", stored_at_default=False),
    Option("retentionBytes", (CHANNEL,), 0, or_zero(_MIB, size(0)), f"{SIZE_RANGE}; 2^20 or more, or 0",
           "How many bytes of events stay readable after every group has taken them. With 0, and `retentionMs` 0, they "
           "leave when they are taken.", stored_at_default=False),
    Option("retentionUntaken", (CHANNEL,), "keep", one_of("keep", "drop"), "keep or drop",
           "Whether events that a group has yet to take stay beyond `retentionMs` and `retentionBytes`, or go too, and "
           "are reported to the group as removed.", stored_at_default=False),
    Option("autoGroupTtl", (CHANNEL,), 604_800.0, duration_of_a_second, _FROM_A_SECOND,
           "How long the position of a stream without `group` is kept while nobody reads it, counted while the channel "
           "is open.", stored_at_default=False),
    Option("commitInterval", (CHANNEL,), 100, milliseconds(0, 60_000), f"{MILLISECONDS_RANGE}; 0 to 60,000",
           "In an object store: how much time there is between two appends of a handle, at least. Transactions "
           "that are committed meanwhile share the next one; fewer appends cost less.", stored_at_default=False),
    Option("commitTimeout", (CHANNEL,), 30.0, duration_of_a_second, _FROM_A_SECOND,
           "In an object store: how long a commit that gets no answer is tried again, before the handle makes sure "
           "that it will never count, or says that it does not know.", stored_at_default=False),
    Option("pollInterval", (CHANNEL,), 1_000, milliseconds(20, 60_000), f"{MILLISECONDS_RANGE}; 20 to 60,000",
           "In an object store: how long a reader that waits for events, or an idle Spark query, lets pass between two "
           "looks, at most. Each look is two GETs.", stored_at_default=False),
    Option("gcDelay", (CHANNEL,), 3_600.0, duration, _SECONDS,
           "In an object store: how long objects stay that nobody needs any more, for readers that are slow.",
           stored_at_default=False),
    Option("dataDirs", (CREATION,), None, directories, "directories, separated by commas",
           "Where the data files go; several spread them over disks. Default: `data` in the channel."),
    Option("checkpointDir", (CREATION,), None, path, _DIRECTORY,
           "Where the checkpoints go. Default: `checkpoint` in the channel."),
    Option("backupCheckpointDir", (CREATION,), None, path, _DIRECTORY,
           "A second place for every checkpoint, such as another disk. Default: none."),
    Option("mode", (CREATION,), "0700", mode, "0700, 0750 or 0770",
           "The mode of everything that the channel creates, whatever the umask. 0770 admits the members of the Unix "
           "group of its directory; 0750 lets them only read."),
    Option("durability", (HANDLE,), "object", one_of("object", "local", "memory"), "object, local or memory",
           "In an object store: when a put is acknowledged. object: when it is in the store; local: when it is synced "
           "in the spool, on this host's disk; memory: when it is in the spool's memory tier."),
    Option("spool", (HANDLE,), None, directory_of_this_host, "a directory of this host",
           "In an object store, with the durability local or memory: where puts go first. A thread ships the events to "
           "the store, in order and each once."),
    Option("cacheDir", (HANDLE, SOURCE, BATCH), None, directory_of_this_host, "a directory of this host",
           "Of an object store: where this host keeps what was read, so that it is asked for once. Any number of "
           "processes and channels may share it. With Spark it is a directory of each executor's host."),
    Option("cacheBytes", (HANDLE, SOURCE, BATCH), 1 << 30, size(_MIB), f"{SIZE_RANGE}; 2^20 or more",
           "About how much `cacheDir` may take; what was read least recently goes first."),
    Option("group", (SOURCE, BATCH), None, parse_name, NAME,
           "The named consumer whose position a stream moves; it outlives checkpoints. By default a stream has a "
           "position of its own, which its checkpoint remembers, and a batch read returns everything in the channel; "
           "with a group, the events that the group has yet to take."),
    Option("startingOffsets", (SOURCE, BATCH), "earliest", offset("earliest", "latest"),
           f"earliest, latest (streams), {_OFFSETS}",
           "Where a new query or group, or a batch read, starts: at the event with an ID, or after an offset; earliest "
           "is the first event that the channel keeps. A group that exists continues at its position."),
    Option("startingTimestamp", (SOURCE, BATCH), None, timestamp, _TIME,
           "Where it starts instead of at `startingOffsets`: at the first event put then or later."),
    Option("resetGroup", (SOURCE,), False, boolean, _BOOLEAN,
           "Whether a query with a new checkpoint starts at `startingOffsets` or `startingTimestamp` also if its "
           "`group` exists: its first batch moves the group, once."),
    Option("endingOffsets", (BATCH,), "latest", offset("latest"), f"latest, {_OFFSETS}",
           "The last event of a batch read."),
    Option("endingTimestamp", (BATCH,), None, timestamp, _TIME,
           "Where it ends instead of at `endingOffsets`: before the first event put then or later."),
    Option("failOnDataLoss", (SOURCE, BATCH), True, boolean, _BOOLEAN,
           "Fail a read if events it should return are missing. If false, warn and continue without them."),
    Option("onCorruption", (SOURCE, BATCH), "fail", one_of("fail", "quarantine"), "fail or quarantine",
           "Whether a read fails at an event that can't be read, or continues without it. A stream copies the damaged "
           "bytes to `quarantine` in the channel and reports the events as lost."),
    Option("maxEventsPerTrigger", (SOURCE,), None, integer(1), _AT_LEAST_1,
           "The most events of one micro-batch. Kafka's name `maxOffsetsPerTrigger` works too.",
           alias="maxOffsetsPerTrigger"),
    Option("maxBytesPerTrigger", (SOURCE,), None, size(1), f"{SIZE_RANGE}; 1 or more",
           "A soft limit of one micro-batch's size: at least one event is read."),
    Option("minEventsPerTrigger", (SOURCE,), None, integer(1), _AT_LEAST_1,
           "A micro-batch waits until there are this many events. Kafka's name `minOffsetsPerTrigger` works too.",
           alias="minOffsetsPerTrigger"),
    Option("maxTriggerDelay", (SOURCE,), 900.0, duration, _SECONDS,
           "The longest that an event waits for `minEventsPerTrigger`."),
    Option("minPartitions", (SOURCE, BATCH), None, integer(1, 100_000), "an integer, 1 to 100,000",
           "The fewest tasks that a read is split into. Default: one per core, of 128 MiB at most, and 4 at least; "
           "in a store about one per segment, or 16 MiB, unless the cluster's cores are known."),
    Option("maxEventsPerPartition", (SOURCE, BATCH), None, integer(1), _AT_LEAST_1,
           "The most events that one task reads. Kafka's name `maxRecordsPerPartition` works too.",
           alias="maxRecordsPerPartition"),
    Option("metadata", (SOURCE, BATCH), False, boolean, _BOOLEAN,
           "Whether to add the columns `write_order_id`, `transaction_id` and `put_time`; for several channels also "
           "`channel`."),
    Option("createIfMissing", (SOURCE,), False, boolean, _BOOLEAN,
           "Whether a stream with a new checkpoint creates a channel that is missing: with the schema it is given, "
           "that of its set, or for events."),
    Option("asyncProgressTrackingEnabled", (SOURCE,), False, boolean, _BOOLEAN,
           "Set it if the query has Spark's option of this name: then only its own commit ends a batch."),
    Option("ownerTimeout", (SOURCE,), 10.0, duration, _SECONDS,
           "How long to wait for the previous owner to release the group."),
    Option("txnAppId", (SINK,), None, parse_application, APPLICATION,
           "With `txnVersion`: a batch write is skipped if its pair, or a later version, was stored already."),
    Option("txnVersion", (SINK,), None, integer(0), _AT_LEAST_0,
           "The version, which must grow, such as the batch ID in `foreachBatch`."),
    Option("mergeSchema", (SINK,), False, boolean, _BOOLEAN,
           "Whether a channel gets the columns of the rows that it does not have, for good. Otherwise the rows are "
           "refused."),
    Option("ttl", (SINK, PRODUCER), None, duration_above_zero, f"{DURATION_RANGE}; more than 0",
           "For how long events count after their commit: takes pass over them after that. Default: forever."),
    Option("ttlColumn", (SINK,), None, not_empty, "the name of a column",
           "The column with each row's ttl: seconds, or an interval; null for `ttl`. It is not stored."),
    Option("deliverAfter", (SINK,), 0.0, delay, _SECONDS,
           "How long a row waits after its task wrote it: no read sees it before."),
    Option("deliverAtColumn", (SINK,), None, not_empty, "the name of a column",
           "The column with the time at which each row is delivered; null for at once. It is not stored."),
    Option("shards", (SINK,), None, integer(1, 256), "an integer, 1 to 256",
           "With `shardBy`: how many channels share the rows. Each is at the path with `-0`, `-1` and so on after it."),
    Option("shardBy", (SINK,), None, columns, "names of columns, separated by commas",
           "The columns whose values choose a row's channel."),
    Option("flow", (SINK,), None, path, "a path",
           "A configuration file of Flume's: a stream goes through a source of it to its channels."),
    Option("agent", (SINK,), None, not_empty, "a name", "With `flow`: the agent."),
    Option("source", (SINK,), None, not_empty, "a name",
           "With `flow`: the source whose interceptors and selector run."),
    Option("total_size_in_bytes", (PRODUCER,), 100 << 20, size(1), f"{SIZE_RANGE}; 1 or more",
           "The most bytes that events and batches under way may hold; one batch may exceed it."),
    Option("max_block_ms", (PRODUCER,), 60_000, milliseconds(-1), f"{MILLISECONDS_RANGE}; or -1 for no limit",
           "How long a send waits for room in a full buffer; 0: not at all."),
    Option("io_thread_count", (PRODUCER,), None, integer(1, 1000), "an integer, 1 to 1,000",
           "How many threads commit. Default: one per core."),
    Option("batch_size_threshold_in_bytes", (PRODUCER,), 512 << 10, size(1, 8 << 20),
           f"{SIZE_RANGE}; 1 to 2^23",
           "The size at which a batch is shipped."),
    Option("batch_count_threshold", (PRODUCER,), 4096, integer(1, 40_960), "an integer, 1 to 40,960",
           "The number of events at which a batch is shipped."),
    Option("linger_ms", (PRODUCER,), None, milliseconds(0), f"{MILLISECONDS_RANGE}; 0 or more",
           "How long a batch that is not full waits for more events. "
           "Default: 20 for channels of this host, 2,000 for other targets."),
    Option("retries", (PRODUCER,), 10, integer(0), _AT_LEAST_0,
           "How often a batch is retried after a failure that may pass."),
    Option("max_reserved_attempts", (PRODUCER,), None, integer(1), _AT_LEAST_1,
           "How many attempts a result lists, the latest ones. Default: `retries` plus one."),
    Option("base_retry_backoff_ms", (PRODUCER,), 100, milliseconds(1), _MILLISECONDS,
           "The longest wait before the first retry; it doubles for each further one."),
    Option("max_retry_backoff_ms", (PRODUCER,), 50_000, milliseconds(1), _MILLISECONDS,
           "The longest wait before any retry."),
    Option("adjust_shard_hash", (PRODUCER,), True, boolean, _BOOLEAN,
           "With several channels: true if a key is any text; false if it is the hash itself, 32 hexadecimal digits."),
    Option("buckets", (PRODUCER,), BUCKETS, power_of_two(1, MOST_BUCKETS), "a power of two, 1 to 512",
           "With several channels: how many buckets the keys' hashes are divided into; the channels share them."),
    Option("context_headers", (PRODUCER,), True, boolean, _BOOLEAN,
           "Whether events get the headers `producer_id` and `producer_sequence`, which say their place in the order."),
)  # fmt: skip


def _key(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def parse_options(
    given: Mapping[str, object], scopes: Iterable[str], *, where: str, beside: Iterable[str] = ()
) -> dict[str, Any]:
    """Return the options that were given, by keyword name, as values of their types.

    Args:
        given: names (any case, camelCase or snake_case) and values (strings or typed).
        scopes: which options are allowed here.
        where: "a channel", "a Spark source" and so on, for the error.
        beside: what else can be given there, which may have been meant.

    Raises:
        OptionError: an unknown or misplaced name, or a value out of range.
    """
    scopes = set(scopes)
    by_key = {_key(name): o for o in OPTIONS for name in (o.name, o.alias) if name}
    allowed = {k: o for k, o in by_key.items() if scopes & set(o.scopes)}
    parsed: dict[str, Any] = {}
    for name, value in given.items():
        option = allowed.get(_key(name))
        if option is None:
            elsewhere = by_key.get(_key(name))
            text = _misplaced(name, elsewhere, where) if elsewhere else _unknown(name, allowed, where, beside)
            raise OptionError(text, name if elsewhere is None else elsewhere.keyword)
        if value is None:
            continue
        if option.keyword in parsed:
            text = f"{named_like(name, option.name)} is given twice, by two of its names"
            raise OptionError(text, option.keyword)
        try:
            parsed[option.keyword] = option.parse(value)
        except REFUSED as e:
            why = f"; {e}" if isinstance(e, WrongValueError) else ""
            text = f"{_as_given(name, option)} must be {option.range}, not {shown(value)}{why}"
            raise OptionError(text, option.keyword) from None
    return parsed


def _as_given(name: str, option: Option) -> str:
    """Return an option's name as it was given; in its own letters where only the case differs, as in Spark."""
    return named_like(name, option.alias if _key(name) == _key(option.alias) else option.name)


def _misplaced(name: str, elsewhere: Option, where: str) -> str:
    if elsewhere.scopes == (HANDLE,):
        return (
            f"{_as_given(name, elsewhere)} is not an option of {where} but of a handle, `Channel`, whose puts go "
            "through a spool; Spark stages its rows in the store and commits them there itself, and a producer is "
            "given such a handle: leave it out"
        )
    owners = " or a ".join(_SCOPES[scope] for scope in elsewhere.scopes)
    return f"{_as_given(name, elsewhere)} is not an option of {where} but of a {owners}"


def _unknown(name: str, allowed: Mapping[str, Option], where: str, beside: Iterable[str]) -> str:
    names = {key: option.name for key, option in allowed.items()} | {_key(other): other for other in beside}
    key = _key(name)
    near = [known for known in names if key in known] if len(key) >= _LEAST_OF_A_NAME else []
    if not near:
        near = [found] if (found := nearest_name(key, names)) else []
    shown_names = [named_like(name, known) for known in dict.fromkeys(map(names.get, near or names)) if known]
    if not near:
        return f"{shown(name)} is not an option of {where}, which has {', '.join(shown_names)}"
    *others, last = map(repr, shown_names)
    nearest = f"the nearest are {', '.join(others)} and {last}" if others else f"the nearest is {last}"
    return f"{shown(name)} is not an option of {where}; {nearest}"


def defaults(scope: str) -> dict[str, Any]:
    """Return the default of every option of a scope, by keyword name."""
    return {o.keyword: o.default_in(scope) for o in OPTIONS if scope in o.scopes}
