"""Which errors may pass, so that a batch is tried again; and whether it is, after its last attempt.

`ProducerConfig.backoff_seconds` says how long it waits, `RetryQueue` holds it meanwhile.
"""

from __future__ import annotations

from spillable_stream.errors import (
    ChannelBusyError,
    ChannelClosedError,
    ChannelFullError,
    DiskSpaceError,
    EventTooLargeError,
    LockTimeoutError,
    ProducerSequenceError,
    SchemaError,
    StorageError,
    TransactionCapacityError,
)
from spillable_stream.producer.batch import ProducerBatch

__all__ = ["MISFITS", "REFUSALS", "is_tried_again", "may_pass"]

REFUSALS = (ChannelBusyError, ChannelFullError, DiskSpaceError, LockTimeoutError)
"""What says for sure that nothing was stored: a batch that was only refused gets another number for its next try."""
MISFITS = (EventTooLargeError, ProducerSequenceError, SchemaError, TransactionCapacityError)
"""What says so, too, and will say it again."""
_MAY_PASS = (
    ChannelBusyError,
    ChannelClosedError,
    ChannelFullError,
    DiskSpaceError,
    LockTimeoutError,
    OSError,
    StorageError,
)


def may_pass(error: BaseException) -> bool:
    """Tell whether an error may be over after a while.

    A full channel, a full disk, a busy lock, trouble with storage, and a handle that failed, which is opened
    again. Of other targets any `OSError`, such as a connection that broke. That a batch may have been
    committed anyway does no harm: its number tells.
    """
    return isinstance(error, _MAY_PASS)


def is_tried_again(batch: ProducerBatch, retries: int, closing: bool) -> bool:
    """Tell whether a batch whose attempt failed, with an error that may pass, is tried again.

    Args:
        batch: the batch.
        retries: how often one may be.
        closing: whether the producer is being closed. A handle that the application closed meanwhile, as where Ctrl-C
            ends a close, is no reason to give up: it is open again by now.
    """
    return batch.retry < retries and (not closing or _found_a_closed_handle(batch))


def _found_a_closed_handle(batch: ProducerBatch) -> bool:
    """Tell whether that, and nothing before it, is why the last attempt failed."""
    return [a.error_code for a in batch.attempts[-2:]].count(ChannelClosedError.__name__) == 1 and (
        batch.attempts[-1].error_code == ChannelClosedError.__name__
    )
