"""The exceptions of this package, one tree.

::

    SpillableError
    ├── ChannelError                      a channel as a whole
    │   ├── NotAChannelError              the path holds something else, or nothing
    │   ├── UnsupportedFormatError        written by a newer version of this package
    │   ├── ReadonlyChannelError          a call that writes, on a handle that only reads
    │   ├── ForeignDirectoryError         a directory of the channel is missing, or not proven to be its own
    │   ├── ChannelClosedError            used after close(), or after a failure that closed it
    │   ├── ChannelFullError              a put did not fit within keepAlive
    │   │   └── PutTooLargeError          a put that would not fit into the empty channel
    │   ├── DiskSpaceError                minimumRequiredSpace is reached, or the disk is full; a StorageError, too
    │   ├── LockTimeoutError              another process held the channel's lock too long
    │   ├── LockUnsupportedError          the file system has no working locks
    │   ├── UnsafeStoreError              the object store breaks a promise that a channel relies on
    │   ├── ChannelBusyError              others have it open, recover it, or change it too fast to be read
    │   ├── GroupOwnedError               another live consumer owns the group
    │   └── OtherHostError                events are in the memory of another host
    ├── StorageError                      the file system refused or failed a call
    │   ├── StateTooLargeError            the channel's state does not fit a frame of 1 GiB
    │   └── CommitOutcomeUnknownError     a sync failed and nothing could settle whether it counted
    ├── CorruptionError                   bytes on disk are not what was written
    │   └── DataLossError                 events that should be there are gone
    ├── TransactionError                  a transaction as such
    │   ├── TransactionStateError         a call in the wrong state, thread or process
    │   ├── TransactionCapacityError      more events than transactionCapacity
    │   ├── EventTooLargeError            one event larger than a frame can be
    │   └── ProducerSequenceError         a producer's batch whose number does not tell whether it is there
    ├── ProducerError                     a producer, or what it was given
    │   ├── ProducerBusyError             another live producer has its ID
    │   ├── ProducerClosedError           used after close()
    │   ├── ProducerTimeoutError          no room for a send, or a flush or close not done, in time
    │   └── SendFailedError               events that were not stored; it carries them
    ├── WorkerError                       a worker, or what it was given
    │   ├── WorkerFailedError             an event kept failing, and there is no dead-letter channel
    │   ├── WorkerKilledError             a worker's process ended during an event
    │   └── WorkerTimeoutError            a function did not return in time
    ├── IncompleteWriteError              a write that some shards have, and others failed
    ├── DeliveryError                     events of a flow that did not get to a channel, or through a sink
    ├── SchemaError                       columns that do not fit the channel
    ├── OptionError                       an unknown option, or a value out of range
    ├── CheckpointMismatchError           a Spark checkpoint that does not fit the channel
    └── PythonMismatchError               Spark runs a Python that lacks this package

    UserWarning
    ├── TornTailWarning                   bytes that no commit counted were cut or passed over
    ├── BackupCheckpointWarning           backupCheckpointDir can't be used: checkpoints have no copy
    ├── MemoryTierWarning                 there is no memory tier though one was asked for
    └── MemoryLossWarning                 a memory tier is gone, and events with it

Every message says what happened, to what, and what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spillable_stream.shown_value import command

__all__ = [
    "BackupCheckpointWarning",
    "ChannelBusyError",
    "ChannelClosedError",
    "ChannelError",
    "ChannelFullError",
    "CheckpointMismatchError",
    "CommitOutcomeUnknownError",
    "CorruptionError",
    "DataLossError",
    "DeliveryError",
    "DiskSpaceError",
    "EventTooLargeError",
    "ForeignDirectoryError",
    "GroupOwnedError",
    "IncompleteWriteError",
    "LockTimeoutError",
    "LockUnsupportedError",
    "MemoryLossWarning",
    "MemoryTierWarning",
    "NotAChannelError",
    "OptionError",
    "OtherHostError",
    "ProducerBusyError",
    "ProducerClosedError",
    "ProducerError",
    "ProducerSequenceError",
    "ProducerTimeoutError",
    "PutTooLargeError",
    "PythonMismatchError",
    "ReadonlyChannelError",
    "SchemaError",
    "SendFailedError",
    "SpillableError",
    "StateTooLargeError",
    "StorageError",
    "TornTailWarning",
    "TransactionCapacityError",
    "TransactionError",
    "TransactionStateError",
    "UnsafeStoreError",
    "UnsupportedFormatError",
    "WorkerError",
    "WorkerFailedError",
    "WorkerKilledError",
    "WorkerTimeoutError",
]


class SpillableError(Exception):
    """The base of every exception that this package raises on purpose.

    Attributes:
        stored_nothing: whether it is certain that the call stored nothing.
    """

    stored_nothing: bool = False


class ChannelError(SpillableError):
    """The channel as a whole can't do what was asked."""


class NotAChannelError(ChannelError):
    """The path holds no channel, and none was to be created.

    Attributes:
        is_missing: whether there is no channel of any kind, rather than something else.
    """

    def __init__(self, message: str = "", *, is_missing: bool = False) -> None:
        super().__init__(message)
        self.is_missing = is_missing


class UnsupportedFormatError(ChannelError):
    """The channel was written by a newer version of this package."""


class ReadonlyChannelError(ChannelError):
    """A call that writes, on a handle that was opened with ``readonly=True``: it can only look."""


class ForeignDirectoryError(ChannelError):
    """A directory of the channel is missing, or belongs to another channel, or to the original of a copy.

    Nothing was written. The message names the directory and what it was found to be.
    """


class ChannelClosedError(ChannelError):
    """The channel was closed, or a storage failure closed it."""


class ChannelFullError(ChannelError):
    """A put did not fit into the channel within ``keepAlive``."""


class PutTooLargeError(ChannelFullError):
    """A put would not fit into the channel even if that were empty: to wait, or to put it again, is of no use."""


class LockTimeoutError(ChannelError):
    """Another process held the channel's lock for too long; the message names it."""


class LockUnsupportedError(ChannelError):
    """The file system does not lock files, so that a channel on it would not be safe."""


class UnsafeStoreError(ChannelError):
    """The object store breaks a promise that a channel relies on, such as to create an object only if there is none.

    Attributes:
        stored_nothing: whether it is certain that the call stored nothing: the loss that it tells is of earlier events,
            and the same call may succeed.
    """


class ChannelBusyError(ChannelError):
    """Others have the channel open, recover it, or change it too fast for this call; the message says which.

    Nothing was stored: make the call again later, or when what the message names is closed.
    """


class GroupOwnedError(ChannelError):
    """Another live consumer owns the group; the message names its pid and host.

    Attributes:
        owner: what the owner wrote about itself, or "".
    """

    def __init__(self, message: str, owner: str = "") -> None:
        super().__init__(message)
        self.owner = owner


class OtherHostError(ChannelError):
    """Events are in the memory of another host; the message names both hosts."""


class StorageError(SpillableError):
    """The file system refused or failed a call; the message names the path.

    Attributes:
        stored_nothing: whether it is certain that a commit stored nothing, and never will.
    """


class DiskSpaceError(ChannelError, StorageError):
    """The file system has less free space than ``minimumRequiredSpace``, or is full, or the user's quota is used up."""


class StateTooLargeError(StorageError):
    """What the channel's groups, queries and producers have done is more than one frame of a file can say."""


class CommitOutcomeUnknownError(StorageError):
    """A sync failed and the failure could not be recorded, so that only the next open can tell.

    Attributes:
        is_lasting: whether nothing will tell: the process was paused until what proves a commit had left the store.
    """

    is_lasting: bool = False


class CorruptionError(SpillableError):
    """Bytes on disk are not what was written.

    Attributes:
        path: the file.
        offset: where in the file, in bytes, or None for the file as a whole.
    """

    def __init__(self, message: str, path: str = "", offset: int | None = None) -> None:
        super().__init__(message)
        self.path = path
        self.offset = offset

    def action(self, channel: object) -> str:
        """Return what to do about damage in a channel's own files; empty if the error says it, or if events are gone.

        Args:
            channel: what users call the channel.
        """
        says_it = isinstance(self, DataLossError) or "spillable " in self.args[0]
        return "" if says_it else f"see what is lost with '{command('verify', channel)}'"

    def advise(self, channel: object) -> None:
        """Add the `action` as a note, with which a traceback ends; once, however often it is called."""
        if (action := self.action(channel)) and not hasattr(self, "__notes__"):
            self.add_note(action)

    def __str__(self) -> str:
        place = f" [{self.path}" + (f", offset {self.offset}]" if self.offset is not None else "]")
        return f"{self.args[0]}{place if self.path else ''}"


class DataLossError(CorruptionError):
    """Events that should be in the channel are gone; the message names their IDs."""


class TransactionError(SpillableError):
    """A transaction can't do what was asked."""


class TransactionStateError(TransactionError):
    """A call that the transaction's state, thread or process does not allow."""


class TransactionCapacityError(TransactionError):
    """A transaction would hold more events than ``transactionCapacity``."""


class EventTooLargeError(TransactionError):
    """One event is larger than a frame of the log can be."""


class ProducerSequenceError(TransactionError):
    """A producer's batch has a sequence number with which it can't be told, or may not be told, whether it is new."""


class ProducerError(SpillableError):
    """A producer can't do what was asked."""


class ProducerBusyError(ProducerError):
    """Another live producer has the ID; the message names its pid and host."""


class ProducerClosedError(ProducerError):
    """The producer was closed, or is being closed."""


class ProducerTimeoutError(ProducerError, TimeoutError):
    """There was no room for a send within ``max_block_ms``, or a flush or close was not done within its timeout."""


class SendFailedError(ProducerError):
    """Events that were sent are not in their channel.

    Attributes:
        result: the `spillable_stream.Result`, with every reserved attempt.
    """

    def __init__(self, message: str, result: Any = None) -> None:
        super().__init__(message)
        self.result = result

    @property
    def events(self) -> Any:
        """The events themselves, as they were sent; none if they are in the dead-letter channel."""
        return self.result.events if self.result is not None else ()


class DeliveryError(SpillableError):
    """A batch of a flow is not in all of the channels that must have it, or no sink of a group could take one.

    Attributes:
        failures: what each of these channels or sinks raised, by name.
        stored: the names of the channels that have their part.
    """

    def __init__(
        self, message: str, failures: Mapping[str, Exception] | None = None, stored: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.failures: Mapping[str, Exception] = failures or {}
        self.stored = stored


class WorkerError(SpillableError):
    """A worker can't do what was asked."""


class WorkerFailedError(WorkerError):
    """The function kept failing for some events, and there is no dead-letter channel. They are back in the queue."""


class WorkerKilledError(WorkerError):
    """The process of a former worker ended while its function had this event, and no other. Dead letters name it."""


class WorkerTimeoutError(WorkerError):
    """The function of a worker did not return in time. Python can't end its thread: it runs on, and nobody waits."""


class IncompleteWriteError(SpillableError):
    """A write to several channels failed in some and not in others; the message names both, and the first failure."""


class SchemaError(SpillableError):
    """Columns that do not fit the channel; the message shows both schemas."""


class OptionError(SpillableError, ValueError):
    """An unknown option, or a value outside its range.

    Attributes:
        option: the option, as a keyword argument; "" for another argument, or where no one option is at fault.
    """

    def __init__(self, message: str = "", option: str = "") -> None:
        super().__init__(message)
        self.option = option


class CheckpointMismatchError(SpillableError):
    """A Spark checkpoint of another channel, or one that is older than its group's position."""


class PythonMismatchError(SpillableError):
    """The Python that Spark runs can't import this package, or is of another version than the one here."""


class TornTailWarning(UserWarning):
    """Bytes after the last whole transaction were cut, or passed over by a read-only handle; none was acknowledged."""


class BackupCheckpointWarning(UserWarning):
    """``backupCheckpointDir`` can't be read or written: nothing depends on it, but checkpoints have no copy there."""


class MemoryTierWarning(UserWarning):
    """A memory tier was asked for, but there is no memory for it: events go to disk.

    Where a filter raises it, the put that met it stored nothing. The next one goes to disk.
    """


class MemoryLossWarning(UserWarning):
    """The memory tier is gone, with its host or its directory, and with it events that were not taken.

    Attributes:
        lost: the IDs of the events, as ranges of first and last.
        doubtful: IDs that may have been in use in the last moments before the host stopped; nobody can tell.
    """

    def __init__(
        self, message: str, lost: tuple[tuple[int, int], ...] = (), doubtful: tuple[tuple[int, int], ...] = ()
    ) -> None:
        super().__init__(message)
        self.lost = lost
        self.doubtful = doubtful


REFUSALS = (ChannelBusyError, ChannelFullError, DiskSpaceError, LockTimeoutError, MemoryTierWarning)
"""Errors that say for sure that nothing was stored, and that may pass: the same call may be repeated later."""

TOO_LARGE = (EventTooLargeError, PutTooLargeError, TransactionCapacityError)
"""Errors that say that nothing of a batch was stored, though a smaller one may be."""


def says_nothing_stored(error: BaseException) -> bool:
    """Tell whether an error of a commit says for sure that nothing was stored."""
    return isinstance(error, REFUSALS) or (isinstance(error, SpillableError) and error.stored_nothing)
