"""Every type of channel that Flume has, with its properties and defaults; `channel_arguments` maps them to ours."""

from __future__ import annotations

from spillable_stream.channel.ttl import MOST_TTL_US
from spillable_stream.flow.configuration.channel_options import OURS, OWN_OPTIONS, flume_option, own_options
from spillable_stream.flow.configuration.options import (
    MOST_LONG,
    ComponentType,
    Kind,
    Leniency,
    Property,
    boolean,
    comma_list,
    duration,
    integer,
    size,
    text,
)
from spillable_stream.option_parsers import MOST_DELAY_SECONDS
from spillable_stream.quantities import DURATION_RANGE

__all__ = ["CHANNELS", "FILE", "MEMORY", "SPILLABLE_MEMORY"]


_PATH = Property("path", text, None, "Where the channel is: a directory, or an address in a store such as "
                 f"`s3://bucket/orders`. {OURS}", "a path")  # fmt: skip

_TIMES = (
    Property("ttl", duration(1, MOST_TTL_US), None, f"For how long events count that sources put there. {OURS}",
             f"{DURATION_RANGE}; more than 0"),
    Property("ttlHeader", text, None, f"The header with an event's ttl, which goes before `ttl`. {OURS}", "a header"),
    Property("deliverAfter", duration(0, MOST_DELAY_SECONDS * 1_000_000), None, "How long after sources have put them "
             f"there events are delivered. {OURS}", f"{DURATION_RANGE}; at most 366 days"),
    Property("deliverAfterHeader", text, None, "The header that says so of an event, which goes before "
             f"`deliverAfter`. {OURS}", "a header"),
    Property("deliverAtHeader", text, None, "The header with the time at which an event is delivered, in "
             f"milliseconds since 1970, which takes precedence over both. {OURS}", "a header"),
)  # fmt: skip


def _events(name: str, default: int, doc: str, low: int = 1, lenient: Leniency = Leniency.ANY) -> Property:
    return Property(name, integer(low), default, doc, lenient=lenient)


_BYTE_CAPACITY = Property("byteCapacity", size(0, MOST_LONG), None, "The most bytes of bodies in memory; 0 for no "
                          "limit but the host's.", lenient=Leniency.ANY)  # fmt: skip
_BYTE_BUFFER = Property("byteCapacityBufferPercentage", integer(0, 99), 20, "The part of `byteCapacity` that is kept "
                        "for headers.", "a percentage, 0 to 99", lenient=Leniency.ANY)  # fmt: skip


def _keep_alive(lenient: Leniency) -> Property:
    return flume_option("keep-alive", 3, "How long a put waits for room, in seconds.", lenient)


MEMORY = ComponentType(
    Kind.CHANNEL,
    "memory",
    ("org.apache.flume.channel.MemoryChannel",),
    "",
    (
        _events("capacity", 100, "The most events."),
        _events("transactionCapacity", 100, "The most events of one put or take transaction."),
        _keep_alive(Leniency.ANY),
        _BYTE_CAPACITY,
        _BYTE_BUFFER,
        _PATH,
        *_TIMES,
        *own_options("maxFileSize", "minimumRequiredSpace", "checkpointInterval", "checkpointOnClose"),
        *OWN_OPTIONS,
    ),
)

_ENCRYPTION = (
    "events would be on disk in plain text: channels are not encrypted yet, so encrypt the disk and take this out"
)

_FILES = (
    Property("checkpointDir", text, None, "The channel's directory.", "a directory"),
    Property("dataDirs", comma_list, None, "More directories for its data files, separated by commas.", "directories"),
    Property("useDualCheckpoints", boolean, False, "Whether checkpoints have a copy in `backupCheckpointDir`."),
    Property("backupCheckpointDir", text, None, "Where the copies of checkpoints go.", "a directory"),
    _events("transactionCapacity", 10_000, "The most events of one put or take transaction.", lenient=Leniency.RANGE),
    flume_option("checkpointInterval", 30_000, "How old a checkpoint may get, in milliseconds.", Leniency.RANGE),
    flume_option("maxFileSize", None, "When a data file is full, in bytes; by default 64 MiB."),
    flume_option("minimumRequiredSpace", None, "How many bytes a put must leave free; by default 500 MiB, or a tenth "
                 "of the file system if that is less."),
    Property("checkpointOnClose", boolean, True, "Whether a clean stop creates a checkpoint."),
    _PATH,
    *_TIMES,
    *OWN_OPTIONS,
)  # fmt: skip

_FLUME_FILES = {
    "compressBackupCheckpoint": "checkpoints are small",
    "use-log-replay-v1": "a replay is short",
    "use-fast-replay": "a replay is short",
    "fsyncPerTransaction": "every put is synced before it is acknowledged",
    "fsyncInterval": "every put is synced before it is acknowledged",
    "write-timeout": "Flume took it away",
    "checkpoint-timeout": "Flume took it away",
    "maxFileSizeBytes": "Flume has no such property: it is `maxFileSize`",
}

FILE = ComponentType(
    Kind.CHANNEL,
    "file",
    ("org.apache.flume.channel.file.FileChannel",),
    "",
    (_events("capacity", 1_000_000, "The most events.", lenient=Leniency.RANGE), _keep_alive(Leniency.NONE), *_FILES),
    unused=_FLUME_FILES,
    refused={"encryption.*": _ENCRYPTION},
    durable=True,
)

SPILLABLE_MEMORY = ComponentType(
    Kind.CHANNEL,
    "SPILLABLEMEMORY",
    ("org.apache.flume.channel.SpillableMemoryChannel",),
    "",
    (
        _events("memoryCapacity", 10_000, "The most events in memory; 0 for a channel on disk.", low=0),
        _events("overflowCapacity", 100_000_000, "The most events on disk; 0 for a channel in memory.", low=0),
        flume_option("overflowTimeout", 3, "How long a put waits for room in memory, in seconds.", Leniency.ANY),
        Property("overflowDeactivationThreshold", integer(0, 100), 5, "How many percent of memory must be free before "
                 "puts try it again.", "a percentage, 0 to 100", lenient=Leniency.ANY),
        _BYTE_CAPACITY,
        _BYTE_BUFFER,
        flume_option("avgEventSize", 500, "A guess of an event's bytes.", Leniency.ANY),
        *_FILES,
        *own_options("keepAlive"),
    ),
    unused={
        **_FLUME_FILES,
        "keep-alive": "Flume does not read it here: the wait is `overflowTimeout`, and `keepAlive` in a full channel",
        "capacity": "Flume does not read it here: it is `overflowCapacity`",
    },
    refused={"encryption.*": _ENCRYPTION},
    durable=True,
)  # fmt: skip


def _unsupported(alias: str, instead: str, *java_names: str) -> ComponentType:
    return ComponentType(Kind.CHANNEL, alias, java_names, instead=instead)


CHANNELS = (
    MEMORY,
    FILE,
    SPILLABLE_MEMORY,
    _unsupported(
        "kafka",
        "a topic is not a channel here; use type `file`, or a channel in an object store by the property `path`, "
        "and read what is in the topic with Spark's format `kafka`",
        "org.apache.flume.channel.kafka.KafkaChannel",
    ),
    _unsupported("jdbc", "use type `file`", "org.apache.flume.channel.jdbc.JdbcChannel"),
    _unsupported(
        "pseudotxnmemory",
        "it has no transactions, and Flume has it for its own tests; use type `memory`",
        "org.apache.flume.channel.PseudoTxnMemoryChannel",
    ),
)
