"""The future of a send: a cheap `concurrent.futures.Future`.

All futures of a batch complete together, so they share the batch's lock and result. A future of the
standard library has its own condition and lists from the start. This one creates them only on first
use, by a callback, `concurrent.futures.wait` or asyncio.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any, NoReturn

from spillable_stream.arguments import seconds
from spillable_stream.errors import SendFailedError
from spillable_stream.producer.batch import ProducerBatch
from spillable_stream.producer.result import Result
from spillable_stream.quantities import Duration, duration_seconds

__all__ = ["SendFuture"]

_FIELDS = frozenset(vars(Future()))
_making = threading.RLock()  # a finalizer may run in the middle


class _Waiters(list[Any]):
    """A future's list of waiters for `concurrent.futures.wait` and `as_completed`.

    It refuses waiters in the producer's threads, which may be needed for the result.

    Args:
        batch: the future's batch.

    Attributes:
        over: whether the result is known, so nobody waits for long.
    """

    def __init__(self, batch: ProducerBatch) -> None:
        super().__init__()
        self.over = False
        self._batch = batch

    def append(self, waiter: Any) -> None:
        if not self.over:
            self._batch.refuse_wait_here()
        super().append(waiter)


class SendFuture(Future[Result]):
    """Completes with a `Result`, or raises `SendFailedError`.

    It can't be cancelled: accepted events are always sent.

    Args:
        batch: the batch that holds the events.
        index: the index of the first event in the batch.
        count: the number of events.
    """

    __slots__ = ("batch", "count", "index")

    def __init__(self, batch: ProducerBatch, index: int, count: int = 1) -> None:
        self.batch: ProducerBatch = batch
        self.index: int = index
        self.count: int = count

    def result(self, timeout: Duration | None = None) -> Result:
        """Return the result of the send.

        Args:
            timeout: how long to wait: seconds, or as ``"5s"``; None for no limit.

        Raises:
            OptionError: ``timeout`` is not a time.
            TimeoutError: the result is not known within ``timeout``.
            SendFailedError: the events are not in their channel. The error carries them.
            ProducerError: the result is not known yet, and a callback of the same producer, or its target's
                ``commit``, calls this.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        part, index = self.batch.part(self.index)
        return part.result_of(index, self.count)

    def exception(self, timeout: Duration | None = None) -> SendFailedError | None:
        """Return the `SendFailedError` of the send; None if it succeeded.

        Args:
            timeout: how long to wait: seconds, or as ``"5s"``; None for no limit.

        Raises:
            OptionError: ``timeout`` is not a time.
            TimeoutError: the result is not known within ``timeout``.
            ProducerError: like that of `result`.
        """
        self.batch.wait(self.index, None if timeout is None else _waits(timeout))
        part, index = self.batch.part(self.index)
        return part.error_of(index, self.count)

    def done(self) -> bool:
        """Tell whether the result is known."""
        return self.batch.is_known(self.index)

    def running(self) -> bool:
        """Tell whether the result is not known yet."""
        return not self.done()

    def cancelled(self) -> bool:
        """Return False: a send is never cancelled."""
        return False

    def cancel(self) -> bool:
        """Return False: a send can't be cancelled."""
        return False

    def __await__(self) -> NoReturn:
        raise TypeError(
            "a Producer's future can't be awaited: send with an AsyncProducer, or await asyncio.wrap_future(future)"
        )

    def __getattr__(self, name: str) -> Any:
        """Create the fields of a standard library's future when one of them is first used."""
        if name not in _FIELDS:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        fields = {**vars(Future()), "_state": "RUNNING", "_waiters": _Waiters(self.batch)}
        watching = True
        with _making:
            if "_condition" not in self.__dict__:
                watching = self.batch.watch(self.index, self)  # first, so a forked child knows each future with fields
                self.__dict__.update(fields)
        if not watching:
            self.finish()
        return self.__dict__[name]

    def finish(self, *, forked: bool = False) -> None:
        """Complete the fields of the standard library's future, and notify its waiters; the batch calls it.

        A future whose part has no result yet watches that instead.

        Args:
            forked: whether this is a forked child. Waiters and callbacks then belong to the parent, and threads that do
                not exist here may hold locks.
        """
        if self.batch.watch(self.index, self):
            return
        if isinstance(self._waiters, _Waiters):
            self._waiters.over = True
        error = self.exception()
        if forked:
            result = self.result() if error is None else None
            self.__dict__.get("_done_callbacks", []).clear()  # the thread that forked may be iterating
            self.__dict__.update(vars(Future()), _state="FINISHED", _exception=error, _result=result)
            return
        with suppress(InvalidStateError):  # another thread was first: the batch was given up just when it was divided
            if error is not None:
                self.set_exception(error)
            else:
                self.set_result(self.result())


def _waits(timeout: Duration) -> float:
    """Return how long to wait, in seconds: for a negative time not at all, as with other futures."""
    with suppress(ValueError):  # which the check names
        if duration_seconds(timeout) < 0:
            return 0.0
    return seconds("timeout", timeout)


def _after_fork_in_child() -> None:
    global _making
    _making = threading.RLock()


os.register_at_fork(after_in_child=_after_fork_in_child)
