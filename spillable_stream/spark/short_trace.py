"""Errors come to Spark without the frames inside of this package, so that their sentence is all that there is to read.

Spark shows a user the whole trace of whatever Python raised. The message of an error of this package says what
happened, to what, and what to do; where in the package that was is for the log, at the level DEBUG. Any other exception
keeps its trace.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from spillable_stream.errors import SpillableError

__all__ = ["short_traces"]

_log = logging.getLogger(__name__)

C = TypeVar("C", bound=type)


def short_traces(decorated: C) -> C:
    """Have the public methods of a class raise this package's errors with no more than one frame of it."""
    for name, member in list(vars(decorated).items()):
        if inspect.isfunction(member) and not name.startswith("_"):
            setattr(decorated, name, _short(member))
    return decorated


def _short(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)  # Spark looks at the signature
    def call(*args: Any, **named: Any) -> Any:
        try:
            result = method(*args, **named)
        except SpillableError as e:
            _keep_trace(e)
            raise e.with_traceback(None) from None
        return _short_iterator(result) if isinstance(result, Iterator) else result

    return call


def _short_iterator(iterator: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from iterator
    except SpillableError as e:
        _keep_trace(e)
        raise e.with_traceback(None) from None


def _keep_trace(error: SpillableError) -> None:
    _log.debug("raised to Spark: %s", error, exc_info=error)
