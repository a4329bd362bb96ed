"""What a producer logs, whatever the handlers of the log do: it raises nothing itself."""

from __future__ import annotations

import logging

from spillable_stream.error_text import is_interrupt
from spillable_stream.log_records import RecordFields

__all__ = ["say"]

_log = logging.getLogger("spillable_stream.producer")


def say(
    level: int, message: str, *arguments: object, error: BaseException | None = None, about: RecordFields | None = None
) -> None:
    """Log a line of the producer's. A logging handler or filter that raises ends nothing: the line then goes to
    standard error.

    Args:
        level: as in `logging`.
        message: with ``%`` for its arguments.
        arguments: these.
        error: the error that the line is about, to be shown with its traceback.
        about: the record's fields.
    """  # noqa: D205
    try:
        _log.log(level, message, *arguments, exc_info=error, extra=about)
    except BaseException as e:
        if is_interrupt(e):
            raise
        _say_plainly(level, f"{message} (a logging handler raised {type(e).__name__})", arguments, error)


def _say_plainly(level: int, message: str, arguments: tuple[object, ...], error: BaseException | None) -> None:
    shown = None if error is None else (type(error), error, error.__traceback__)
    record = logging.LogRecord(_log.name, level, __file__, 0, message, arguments, shown)
    try:
        if logging.lastResort is not None and level >= logging.lastResort.level:
            logging.lastResort.handle(record)
    except BaseException as e:  # there is nobody left to tell
        if is_interrupt(e):
            raise
