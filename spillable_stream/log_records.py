"""Log records: one tree of loggers, with fields that programs can read.

Every module logs under its own name, below ``spillable_stream``. The levels: *debug* for what is done (opens, closes,
checkpoints), *info* for what happens rarely and is all right, *warning* for what somebody should look at although the
call succeeds, *error* for a failure that no call can raise. An error that a call raises is not logged besides.

A handler or a filter of the program's may raise, and so may its record factory, or Python where the factory sets one of
the fields. That ends nothing here, neither a commit nor a thread: the record of a handler that raised goes to standard
error, if it is a warning or an error, and one that could not be created so is Python's own (`log_of`).

``SPILLABLE_LOG=debug`` (info, warning, error) writes the records to standard error. Without it Python's own rule holds:
the program's handlers decide, and where it has none, warnings and errors go to standard error. A handler that drops
them would hide what nobody else says, such as events that a process's end did not store.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, TypedDict, cast

from spillable_stream.error_text import may_be_of_a_signal

__all__ = ["FIELDS", "VARIABLE", "RecordFields", "Seldom", "configure", "fields", "log_of"]

VARIABLE = "SPILLABLE_LOG"
_TREE = "spillable_stream"
_LEVELS = ("debug", "info", "warning", "error")
_AGAIN_SECONDS = 60.0


class RecordFields(TypedDict, total=False):
    """The fields of records, beside those that all records have; each is there only where the record is about it.

    The keys: the channel's path or address; a group's name; the name of an agent, a source, a sink or a producer; the
    run of a Spark query; the IDs of the first and the last event; how many events; a file; the offset in it, in bytes;
    the number of a slot in an object store; how long something took or waits.
    """

    channel: str
    group: str
    component: str
    query: str
    first_id: int
    last_id: int
    count: int
    file: str
    offset: int
    slot: int
    seconds: float


FIELDS = tuple(RecordFields.__annotations__)
"""The names of the fields, as attributes of a `logging.LogRecord`."""


def fields(
    channel: object = None,
    *,
    group: str | None = None,
    component: str | None = None,
    query: str | None = None,
    first_id: int | None = None,
    last_id: int | None = None,
    count: int | None = None,
    file: object = None,
    offset: int | None = None,
    slot: int | None = None,
    seconds: float | None = None,
) -> RecordFields:
    """Return the fields of a record, for ``extra``: those that its message names.

    Args:
        channel: the channel's path or address.
        group: a group's name.
        component: the name of an agent, a source, a sink or a producer.
        query: the ID of the run of a Spark query.
        first_id: the write-order ID of the first event.
        last_id: that of the last one.
        count: how many events.
        file: the path of a file.
        offset: where in the file, in bytes.
        slot: the number of a slot of a channel in an object store.
        seconds: how long something took, or is waited for.
    """
    given = {
        "channel": None if channel is None else str(channel),
        "group": group,
        "component": component,
        "query": query,
        "first_id": first_id,
        "last_id": last_id,
        "count": count,
        "file": None if file is None else str(file),
        "offset": offset,
        "slot": slot,
        "seconds": seconds,
    }
    return cast(RecordFields, {name: value for name, value in given.items() if value is not None})


class _Log(logging.Logger):
    """The logger of a name, which decides all but what becomes of an error in a handler, a filter or a factory."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._log_of_program = logging.getLogger(name)

    def of(
        self,
        component: str,
        *,
        count: int | None = None,
        file: object = None,
        offset: int | None = None,
        seconds: float | None = None,
    ) -> logging.LoggerAdapter[logging.Logger]:
        """Return what logs about a component: its messages begin with the name, and have it and the rest as fields.

        The arguments are those of `fields`.
        """
        return _ComponentLog(self, fields(component=component, count=count, file=file, offset=offset, seconds=seconds))

    def isEnabledFor(self, level: int) -> bool:
        return self._log_of_program.isEnabledFor(level)

    def makeRecord(
        self,
        name: str,
        level: int,
        fn: str,
        lno: int,
        msg: object,
        args: Any,
        exc_info: Any,
        func: str | None = None,
        extra: Mapping[str, object] | None = None,
        sinfo: str | None = None,
    ) -> logging.LogRecord:
        try:
            return super().makeRecord(name, level, fn, lno, msg, args, exc_info, func, extra, sinfo)
        except BaseException as e:
            if may_be_of_a_signal(e):
                raise
            record = logging.LogRecord(name, level, fn, lno, msg, args, exc_info, func, sinfo)
            vars(record).update(extra or {})
            return record

    def handle(self, record: logging.LogRecord) -> None:
        try:
            self._log_of_program.handle(record)
        except BaseException as e:
            if may_be_of_a_signal(e):
                raise
            _say_plainly(record, e)

    def __reduce__(self) -> tuple[Callable[[str], _Log], tuple[str]]:
        return log_of, (self.name,)


class _ComponentLog(logging.LoggerAdapter[logging.Logger]):
    """Logs about one component; it says the name itself, as the first argument of each message."""

    def log(self, level: int, msg: object, *args: object, **keywords: Any) -> None:
        assert self.extra is not None
        name = self.extra["component"]
        self.logger.log(level, f"%s: {msg}", name, *args, extra=self.extra, stacklevel=2, **keywords)  # not this call


def _say_plainly(record: logging.LogRecord, fault: BaseException) -> None:
    last = logging.lastResort
    if last is None or record.levelno < last.level:
        return
    message = f"{record.msg} (a logging handler raised {type(fault).__name__})"
    try:
        last.handle(logging.makeLogRecord({**vars(record), "msg": message}))
    except BaseException as e:  # there is nobody left to tell
        if may_be_of_a_signal(e):
            raise


def log_of(name: str) -> _Log:
    """Return the logger of a name, whose calls raise what a signal raises and nothing else, whatever a handler does.

    Args:
        name: the module's.
    """
    return _Log(name)


class Seldom:
    """Tells whether to warn of what is tried again and again: once a minute."""

    def __init__(self) -> None:
        self._warned_at, self._why = float("-inf"), ""

    def is_due(self, why: str = "") -> bool:
        """Tell whether to warn now; if so, not again for a minute, but for another reason.

        Args:
            why: the reason; where it is not given, all are one.
        """
        now = time.monotonic()
        if now - self._warned_at < _AGAIN_SECONDS and why == self._why:
            return False
        self._warned_at, self._why = now, why
        return True


class _Formatter(logging.Formatter):
    """A line: time, level, logger, message, and the fields."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as text."""
        found = {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
        text = super().format(record)
        return text + "".join(f" {name}={value}" for name, value in found.items())


def configure(environment: Mapping[str, str] | None = None) -> None:
    """Write the tree to standard error as ``SPILLABLE_LOG`` says; leave it to the program if that is not set.

    Args:
        environment: the variables; those of this process by default.
    """
    tree = logging.getLogger(_TREE)
    wanted = (os.environ if environment is None else environment).get(VARIABLE, "").lower()
    if not wanted:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(_Formatter())
    tree.addHandler(handler)
    tree.propagate = False  # a handler of the root would write each record again
    tree.setLevel((wanted if wanted in _LEVELS else "info").upper())
    if wanted not in _LEVELS:
        tree.warning("%s is %r, not one of %s: it counts as info", VARIABLE, wanted, ", ".join(_LEVELS))


configure()  # as this is first imported, which all that logs does first
