"""A durable, transactional, spillable event channel for Python and Spark."""

# ruff: noqa: F403, F405  (the names of errors, which a test compares)

from __future__ import annotations

TYPE_CHECKING = False  # as type checkers know it, without an import of typing
if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from typing import Any

    from prometheus_client import CollectorRegistry

    from spillable_stream import dead_letters
    from spillable_stream.archive.backup import BackupReport, backup
    from spillable_stream.archive.restore import RestoreReport, restore
    from spillable_stream.channel.channel import Channel
    from spillable_stream.channel.consumer import Consumer
    from spillable_stream.channel.event import Event
    from spillable_stream.channel.event_table import EventTable
    from spillable_stream.channel.last_batch import LastBatch
    from spillable_stream.channel.put_transaction import PutTransaction
    from spillable_stream.channel.stats import (
        ChannelStats,
        DelayedStats,
        GroupStats,
        KeptStats,
        SpoolStats,
        TierStats,
        WorkerStats,
    )
    from spillable_stream.channel.take_transaction import TakeTransaction
    from spillable_stream.errors import *
    from spillable_stream.integrity.findings import Finding, Loss, Report
    from spillable_stream.integrity.repair import repair
    from spillable_stream.integrity.verify import verify
    from spillable_stream.objects.credentials import register_credentials
    from spillable_stream.objects.metered_store import StoreUsage
    from spillable_stream.observe.metrics_server import MetricsServer, serve_metrics
    from spillable_stream.observe.otel_export import OtelMetrics, otel_metrics
    from spillable_stream.producer.async_producer import AsyncProducer
    from spillable_stream.producer.logging_handler import ProducerHandler
    from spillable_stream.producer.producer import Producer
    from spillable_stream.producer.result import Attempt, Result
    from spillable_stream.producer.stats import ProducerStats
    from spillable_stream.producer.target import Target
    from spillable_stream.progress import Progress
    from spillable_stream.progress_bar import ProgressBar
    from spillable_stream.spark import QueryListener
    from spillable_stream.termination import exit_on_sigterm
    from spillable_stream.workers.async_worker import AsyncWorker
    from spillable_stream.workers.verdicts import DeadLetter, Drop, Retry
    from spillable_stream.workers.worker import Worker

__version__ = "0.1.0"

__all__ = [
    "AsyncProducer",
    "AsyncWorker",
    "Attempt",
    "BackupCheckpointWarning",
    "BackupReport",
    "Channel",
    "ChannelBusyError",
    "ChannelClosedError",
    "ChannelError",
    "ChannelFullError",
    "ChannelStats",
    "CheckpointMismatchError",
    "CommitOutcomeUnknownError",
    "Consumer",
    "CorruptionError",
    "DataLossError",
    "DeadLetter",
    "DelayedStats",
    "DeliveryError",
    "DiskSpaceError",
    "Drop",
    "Event",
    "EventTable",
    "EventTooLargeError",
    "Finding",
    "ForeignDirectoryError",
    "GroupOwnedError",
    "GroupStats",
    "IncompleteWriteError",
    "KeptStats",
    "LastBatch",
    "LockTimeoutError",
    "LockUnsupportedError",
    "Loss",
    "MemoryLossWarning",
    "MemoryTierWarning",
    "MetricsServer",
    "NotAChannelError",
    "OptionError",
    "OtelMetrics",
    "OtherHostError",
    "Producer",
    "ProducerBusyError",
    "ProducerClosedError",
    "ProducerError",
    "ProducerHandler",
    "ProducerSequenceError",
    "ProducerStats",
    "ProducerTimeoutError",
    "Progress",
    "ProgressBar",
    "PutTooLargeError",
    "PutTransaction",
    "PythonMismatchError",
    "ReadonlyChannelError",
    "Report",
    "RestoreReport",
    "Result",
    "Retry",
    "SchemaError",
    "SendFailedError",
    "SpillableError",
    "SpoolStats",
    "StateTooLargeError",
    "StorageError",
    "StoreUsage",
    "TakeTransaction",
    "Target",
    "TierStats",
    "TornTailWarning",
    "TransactionCapacityError",
    "TransactionError",
    "TransactionStateError",
    "UnsafeStoreError",
    "UnsupportedFormatError",
    "Worker",
    "WorkerError",
    "WorkerFailedError",
    "WorkerKilledError",
    "WorkerStats",
    "WorkerTimeoutError",
    "backup",
    "dead_letters",
    "exit_on_sigterm",
    "listener",
    "otel_metrics",
    "register",
    "register_credentials",
    "repair",
    "restore",
    "serve_metrics",
    "verify",
]

# All is imported when it is first used: a program pays for what it uses, and the command line can answer signals before
# its imports. A name without a module here is an error's.
_MODULES = {
    "AsyncProducer": "producer.async_producer",
    "AsyncWorker": "workers.async_worker",
    "Attempt": "producer.result",
    "BackupReport": "archive.backup",
    "Channel": "channel.channel",
    "ChannelStats": "channel.stats",
    "Consumer": "channel.consumer",
    "DeadLetter": "workers.verdicts",
    "DelayedStats": "channel.stats",
    "Drop": "workers.verdicts",
    "Event": "channel.event",
    "EventTable": "channel.event_table",
    "Finding": "integrity.findings",
    "GroupStats": "channel.stats",
    "KeptStats": "channel.stats",
    "LastBatch": "channel.last_batch",
    "Loss": "integrity.findings",
    "MetricsServer": "observe.metrics_server",
    "OtelMetrics": "observe.otel_export",
    "Producer": "producer.producer",
    "ProducerHandler": "producer.logging_handler",
    "ProducerStats": "producer.stats",
    "Progress": "progress",
    "ProgressBar": "progress_bar",
    "PutTransaction": "channel.put_transaction",
    "Report": "integrity.findings",
    "RestoreReport": "archive.restore",
    "Result": "producer.result",
    "SpoolStats": "channel.stats",
    "TakeTransaction": "channel.take_transaction",
    "Target": "producer.target",
    "TierStats": "channel.stats",
    "backup": "archive.backup",
    "exit_on_sigterm": "termination",
    "Retry": "workers.verdicts",
    "StoreUsage": "objects.metered_store",
    "register_credentials": "objects.credentials",
    "otel_metrics": "observe.otel_export",
    "Worker": "workers.worker",
    "WorkerStats": "channel.stats",
    "repair": "integrity.repair",
    "restore": "archive.restore",
    "serve_metrics": "observe.metrics_server",
    "verify": "integrity.verify",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    import spillable_stream.forks  # noqa: F401  (first: what the others import may take long)

    if name in ("dead_letters", "errors"):
        return import_module(f"spillable_stream.{name}")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"spillable_stream.{_MODULES.get(name, 'errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def register(spark: Any) -> None:
    """Make ``format("spillable")`` known to a Spark session that does not find it by itself.

    Args:
        spark: the ``SparkSession``, classic or Connect.

    Raises:
        OptionError: ``spark`` is not a session.
        PythonMismatchError: the Python that Spark runs can't import this package; the message says what to set.
    """
    from spillable_stream.spark.registration import register

    register(spark)


def listener(
    spark: Any,
    *,
    prometheus: int | CollectorRegistry | None = None,
    channels: Mapping[str | os.PathLike[str], str] | None = None,
) -> QueryListener:
    """Add a listener to a Spark session: it commits a batch's take as the batch ends, and says how far each query is.

    Args:
        spark: the ``SparkSession``, classic or Connect.
        prometheus: a ``prometheus_client.CollectorRegistry`` to add series to, or a port to serve them at.
        channels: the group of each channel by path, for Spark 4.0 and 4.1, which do not tell it.

    Returns:
        The listener; its ``close`` removes it.

    Raises:
        ImportError: pyspark is missing, or ``prometheus`` is given and prometheus-client is missing.
        OptionError: ``spark`` is not a session, ``prometheus`` is neither a port nor a new registry, or no group can
            have a name in ``channels``.
    """
    from spillable_stream.spark import listener

    return listener(spark, prometheus=prometheus, channels=channels)
