"""The states of a transaction, with Flume's rules (``BasicTransactionSemantics``).

::

    NEW ──begin──▶ OPEN ──commit | rollback──▶ COMPLETED ──close──▶ CLOSED

A commit that raises leaves the transaction open, to be rolled back. A transaction belongs to the
thread and process that began it. Puts and takes never mix.
"""

from __future__ import annotations

import warnings
from enum import Enum
from os import getpid
from threading import get_ident
from types import TracebackType
from typing import NoReturn, Self

from spillable_stream.counted import counted
from spillable_stream.engine.append_plan import NOTHING_COMMITTED, CommitResult
from spillable_stream.engine.engine import Engine
from spillable_stream.errors import SpillableError, TransactionStateError

__all__ = ["OPEN", "State", "Transaction"]


class State(Enum):
    """Where a transaction is in its life."""

    NEW = "new"
    OPEN = "open"
    COMPLETED = "completed"
    CLOSED = "closed"


# In CPython 3.11 a name is found in a tenth of the time that an enum's attribute takes, and each transaction asks for
# a dozen.
NEW, OPEN, COMPLETED, CLOSED = State


class Transaction:
    """What put and take transactions share: the states, and the ``with`` statement."""

    state: State = NEW  # also of one whose constructor failed
    count: int  # each kind sets it: basedpyright takes its += for another declaration

    def __init__(self, engine: Engine) -> None:
        self.state = NEW
        self.committed: CommitResult = NOTHING_COMMITTED
        self._engine = engine
        self._pid, self._thread = getpid(), get_ident()

    def _require(self, wanted: State, call: str) -> None:
        if self._thread != get_ident() or self._pid != getpid():
            raise TransactionStateError(
                f"{call}() was called in pid {getpid()}, thread {get_ident()}, but the transaction is of pid "
                f"{self._pid}, thread {self._thread}; begin one in each thread and process"
            )
        if self.state is not wanted:
            how = ": enter it with `with`, or call begin() first" if self.state is NEW else ""
            raise TransactionStateError(
                f"{call}() needs a transaction that is {wanted.value}; this one is {self.state.value}{how}"
            )

    def begin(self) -> None:
        """Open the transaction.

        Raises:
            ChannelClosedError: the channel was closed.
            TransactionStateError: it is not new.
        """
        self._require(NEW, "begin")
        self._engine.require_not_closed()
        self.state = OPEN

    def commit(self) -> None:
        """Do all of it, durably, or raise and stay open: roll it back then.

        Raises:
            ChannelClosedError: the channel was closed, or the group of its takes dropped.
            ChannelFullError: its puts found no room within ``keepAlive``; a `PutTooLargeError` if they never would.
            CommitOutcomeUnknownError: whether it counts shows when the channel is opened again.
            DiskSpaceError: its puts would leave less space than ``minimumRequiredSpace``.
            GroupOwnedError: the group of its takes has another owner by now.
            LockTimeoutError: others kept the commit lock for too long.
            ProducerSequenceError: its producer's batch can't be told from another one.
            StorageError: the storage refused; nothing was committed.
            TransactionStateError: it is not open, or the group of its takes was moved by a seek.
        """
        self._require(OPEN, "commit")
        self._commit()
        self.state = COMPLETED
        self._engine.checkpointing.create_if_due()

    def rollback(self) -> None:
        """Undo all of it. If an interrupt ends that, the transaction is still open, and can be rolled back again.

        Raises:
            TransactionStateError: it is not open.
        """
        self._require(OPEN, "rollback")
        try:
            self._rollback()
        except SpillableError:
            self.state = COMPLETED
            raise
        self.state = COMPLETED

    def close(self) -> None:
        """End the transaction's life; a new one may be closed too.

        Raises:
            TransactionStateError: it is open; commit or roll back first.
        """
        if self.state is OPEN:
            raise TransactionStateError("close() needs a transaction that is not open; commit it or roll it back first")
        self.state = CLOSED

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.state.value}, {counted(self.count, 'event')})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} can't be copied or pickled; begin another one where you need it")

    def __del__(self) -> None:
        if self.state is OPEN and self._pid == getpid() and (lost := self._forget()):
            warnings.warn(f"{lost}. Commit it, or use it in a with block", ResourceWarning, stacklevel=2, source=self)

    def _forget(self) -> str:
        """Undo all of it though nobody said so: nothing refers to it any more. Return what was undone; "" for nothing.

        It may run in any thread, in the middle of anything, so it waits for no lock.
        """
        return ""

    def _commit(self) -> None:
        raise TypeError(f"{type(self).__name__} can't commit")

    def _rollback(self) -> None:
        raise TypeError(f"{type(self).__name__} can't roll back")

    def __enter__(self) -> Self:
        if self.state is NEW:
            self.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self.state is OPEN and kind is None:
                self.commit()
        finally:
            try:
                if self.state is OPEN:
                    self.rollback()
            finally:
                if self.state is OPEN:  # an interrupt has ended it
                    self.rollback()
                self.state = CLOSED
