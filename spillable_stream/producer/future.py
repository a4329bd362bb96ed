"""The future of a send: a `concurrent.futures.Future` that costs next to nothing until somebody waits with others.

Futures of one batch end together, so they share the batch's lock and result. Only what needs more (a
callback, `concurrent.futures.wait`, asyncio) gives a future the fields that each future of the
standard library has from the beginning.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future
from typing import Any

from spillable_stream.producer.batch import ProducerBatch
from spillable_stream.producer.result import Result

__all__ = ["SendFuture"]

_FIELDS = frozenset(vars(Future()))
_making = threading.Lock()


class _Waiters(list[Any]):
    """Who waits for a future as `concurrent.futures.wait` and `as_completed` do; in some threads nobody may.

    Args:
        batch: the future's.

    Attributes:
        over: whether there is nothing left to wait for.
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

    It can't be cancelled: what was accepted is sent.

    Args:
        batch: where the events are.
        index: the first event.
        count: how many.
    """

    __slots__ = ("_count", "_index", "batch")

    def __init__(self, batch: ProducerBatch, index: int, count: int = 1) -> None:
        self.batch: ProducerBatch = batch
        self._index = index
        self._count = count

    def result(self, timeout: float | None = None) -> Result:
        """Return what became of the send.

        Args:
            timeout: how long to wait for it, in seconds; None for ever.

        Raises:
            TimeoutError: it is not known by then.
            SendFailedError: the events are not in their channel; it carries them.
            ProducerError: it is not known yet, and this is a callback, or a target's ``commit``, of its own producer.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self.batch.result_of(self._index, self._count)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the `SendFailedError` of the send, None if it was successful; else raises what `result` does."""
        self.batch.wait(timeout)
        return self.batch.error_of(self._index, self._count)

    def done(self) -> bool:
        """Tell whether the result is known."""
        return self.batch.result is not None

    def running(self) -> bool:
        """Tell whether it is not known yet."""
        return self.batch.result is None

    def cancelled(self) -> bool:
        """Tell that it was not cancelled."""
        return False

    def cancel(self) -> bool:
        """Tell that it can't be cancelled: what was accepted is sent."""
        return False

    def __getattr__(self, name: str) -> Any:
        """Make the fields of the standard library's futures when one of them is asked for."""
        if name not in _FIELDS:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        fields = {**vars(Future()), "_state": "RUNNING", "_waiters": _Waiters(self.batch)}
        watching = True
        with _making:
            if "_condition" not in self.__dict__:
                watching = self.batch.watch(self)  # first: a forked child finds no future with fields that is not known
                self.__dict__.update(fields)
        if not watching:
            self.finish()
        return self.__dict__[name]

    def finish(self, *, forked: bool = False) -> None:
        """Tell those who wait in the standard library's ways; the batch calls it.

        Args:
            forked: whether this is a forked child: who waits and who is called are the parent's, and locks may be held
                by threads that are not there.
        """
        if isinstance(self._waiters, _Waiters):
            self._waiters.over = True
        error = self.exception()
        if forked:
            result = self.result() if error is None else None
            self.__dict__.get("_done_callbacks", []).clear()  # the thread that forked may be amid them
            self.__dict__.update(vars(Future()), _state="FINISHED", _exception=error, _result=result)
        elif error is not None:
            self.set_exception(error)
        else:
            self.set_result(self.result())


def _after_fork_in_child() -> None:
    global _making
    _making = threading.Lock()


os.register_at_fork(after_in_child=_after_fork_in_child)
