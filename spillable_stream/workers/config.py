"""What a worker is told, checked before anything is done."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spillable_stream.arguments import is_coroutine_function, seconds, whole_number
from spillable_stream.errors import OptionError
from spillable_stream.option_names import named
from spillable_stream.quantities import Duration
from spillable_stream.shown_value import shown

__all__ = ["WorkerConfig", "function_name"]

_MOST_THREADS = 1000
_LONGEST_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """The arguments of a worker.

    Args:
        batch_size: how many events the function gets at most, as a batch; None if it gets one event.
        max_attempts: how many calls with one event alone may fail before it is given up.
        backoff: how long to wait after the first of them at most, in seconds; twice as long after each.
        threads: how many calls there may be at once.
        timeout: how long a call may take, in seconds; None for as long as it takes.

    Raises:
        OptionError: a value is out of range.
    """

    batch_size: int | None
    max_attempts: int
    backoff: float
    threads: int
    timeout: float | None

    @classmethod
    def of(
        cls, batch_size: int | None, max_attempts: int, backoff: Duration, threads: int, timeout: Duration | None
    ) -> WorkerConfig:
        """Return the arguments that users give, checked."""
        return cls(
            None if batch_size is None else whole_number("batch_size", batch_size),
            whole_number("max_attempts", max_attempts),
            seconds("backoff", backoff),
            whole_number("threads", threads, 1, _MOST_THREADS),
            None if timeout is None else seconds("timeout", timeout),
        )

    def __post_init__(self) -> None:
        _check_seconds("backoff", self.backoff)
        if self.timeout is not None:
            _check_seconds("timeout", self.timeout)
            if not self.timeout:
                raise OptionError("timeout must be more than 0 seconds, or None")

    def check_function(self, function: Callable[..., Any], *, is_async: bool) -> None:
        """Refuse what can't be called, and a function of the other kind.

        Raises:
            OptionError: it can't be called so; it is a generator function; or it is a coroutine function and should not
                be one, or vice versa.
        """
        if not callable(function):
            raise OptionError(f"a worker needs a function, not {type(function).__name__}")
        call = type(function).__call__  # of an object that is called like a function
        if any(inspect.isgeneratorfunction(f) or inspect.isasyncgenfunction(f) for f in (function, call)):
            raise OptionError(f"a call of the generator function {function_name(function)} does nothing: don't yield")
        is_coroutine = is_coroutine_function(function)
        if is_coroutine and not is_async:
            raise OptionError(f"{function_name(function)} is a coroutine function; run it with async_worker")
        if is_async and not is_coroutine:
            raise OptionError(f"{function_name(function)} is not a coroutine function; run it with worker")
        if not _takes_one_argument(function):
            raise OptionError(
                f"{function_name(function)} can't be called with one argument, the event or the batch; "
                "give a function that can"
            )

    def check_channel(self, typed: bool, transaction_capacity: int, path: object) -> None:
        """Refuse what does not fit the channel.

        Raises:
            OptionError: the channel is typed and the function is for events, or a batch is too large.
        """
        if typed and self.batch_size is None:
            raise OptionError(
                f"{path} is a typed channel, whose worker needs batch_size: its function gets batches, as "
                "pyarrow.Table, and not events"
            )
        if self.batch_size is not None and self.batch_size > transaction_capacity:
            raise OptionError(
                f"batch_size must be at most {named('transactionCapacity')}, {transaction_capacity:,}, "
                f"not {self.batch_size:,}"
            )


def _takes_one_argument(function: Callable[..., Any]) -> bool:
    """Tell whether a function can be called with one argument, as far as Python knows."""
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):  # some that are written in C don't say
        return True
    try:
        signature.bind(None)
    except TypeError:
        return False
    return True


def _check_seconds(name: str, value: float) -> None:
    if not 0 <= value <= _LONGEST_SECONDS:
        raise OptionError(f"{name} must be 0 to {_LONGEST_SECONDS:,.0f} seconds, not {shown(value)}")


def function_name(function: Callable[..., Any]) -> str:
    """Return what to call a function in a message."""
    return str(getattr(function, "__qualname__", None) or type(function).__name__)
