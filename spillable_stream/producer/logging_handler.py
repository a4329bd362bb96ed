"""The bridge from `logging`: records become events."""

from __future__ import annotations

import logging
import threading
import time

from spillable_stream.arguments import instance, seconds, text, whole_milliseconds
from spillable_stream.errors import OptionError, ProducerTimeoutError, SendFailedError
from spillable_stream.producer.producer import Producer
from spillable_stream.producer.result import Result
from spillable_stream.quantities import Duration, Milliseconds

__all__ = ["ProducerHandler"]

_OWN_LOGGER = "spillable_stream"
_SAID_EVERY_SECONDS = 60.0


class ProducerHandler(logging.Handler):
    """Sends log records through a producer; structlog's too, where it logs through `logging`.

    The body of an event is the formatted record, in UTF-8; the headers ``logger``, ``level`` and ``time`` (seconds
    since 1970) are the record's. A record that can't be sent goes to `handleError`, as with every handler. One for
    which there is no room in the producer's buffer is dropped: a warning on standard error says how many were, at most
    once a minute and when the handler is closed.

    What this package logs itself, and what is logged while the producer commits, is not sent, since that would never
    end; from warnings on it goes to standard error.

    It has no lock, and waits for nothing while a thread has the lock of the module `logging`: threads that make room
    may need either for lines of their own.

    Args:
        producer: what sends; it stays open at the end.
        key: which of the producer's channels.
        level: the least level that is sent.
        max_block_ms: how long a record waits for room, in milliseconds; 0 for not at all. It takes the place of the
            producer's. A program that holds a lock while it logs, which its own target or callbacks need, waits for all
            of it.
        flush_timeout_seconds: how long a flush waits.

    Raises:
        OptionError: an argument is not of its type, or a bound is negative: no log call waits forever.
    """

    def __init__(
        self,
        producer: Producer,
        *,
        key: str | None = None,
        level: int = logging.NOTSET,
        max_block_ms: Milliseconds = 0,
        flush_timeout_seconds: Duration = 5.0,
    ) -> None:
        instance("producer", producer, Producer)
        if key is not None:
            text("key", key)
        block_ms = whole_milliseconds("max_block_ms of a logging handler", max_block_ms, 0)
        flush_seconds = seconds("flush_timeout_seconds of a logging handler", flush_timeout_seconds)
        if block_ms >= 1000 * threading.TIMEOUT_MAX or flush_seconds >= threading.TIMEOUT_MAX:
            raise OptionError("max_block_ms and flush_timeout_seconds of a logging handler must have a limit")
        super().__init__(level)  # from here on `logging.shutdown` knows it
        self._producer = producer
        self._key = key
        self._max_block_ms = block_ms
        self._flush_timeout_seconds = flush_seconds
        self._inside = threading.local()
        self._dropped = self._failed = 0
        self._said = 0  # how many drops were said
        self._say_again = float("-inf")  # when the next warning may be, in monotonic seconds

    @property
    def dropped_records(self) -> int:
        """How many records are lost: there was no room, or they could not be sent or stored."""
        return self._dropped + self._failed

    def createLock(self) -> None:
        """Have no lock: the calls here are thread-safe, and whoever makes room must not wait for whoever wants it."""
        self.lock: None = None

    def handle(self, record: logging.LogRecord) -> bool | logging.LogRecord:  # type: ignore[override]
        """Send a record that passes the filters; return what these return."""
        found: bool | logging.LogRecord = self.filter(record)
        if found:
            self.emit(found if isinstance(found, logging.LogRecord) else record)
        return found

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record."""
        if self._is_own(record):
            _say(record)
            return
        self._inside.now = True
        try:
            body = self.format(record).encode(errors="backslashreplace")
            headers = {"logger": record.name, "level": record.levelname, "time": f"{record.created:.6f}"}
            block_ms = 0 if _logging_is_locked_here() else self._max_block_ms
            self._producer.send(
                body, headers, key=self._key, callback=lambda r: self._sent(record, r), max_block_ms=block_ms
            )
            if self._dropped > self._said:
                self._say_dropped()
        except ProducerTimeoutError as e:
            self._dropped += 1  # one step, with no call in between: no thread and no signal handler comes in
            self._say_dropped(f": {e}")
        except Exception:
            self._failed += 1
            self.handleError(record)
        finally:
            self._inside.now = False

    def _is_own(self, record: logging.LogRecord) -> bool:
        """Tell whether a record comes of sending records."""
        own = record.name == _OWN_LOGGER or record.name.startswith(_OWN_LOGGER + ".")
        return own or getattr(self._inside, "now", False) or self._producer.commits_here()

    def _say_dropped(self, why: str = "") -> None:
        """Say how many records were dropped since that was said last, if it was a minute ago."""
        now, dropped = time.monotonic(), self._dropped
        if dropped > self._said and now >= self._say_again:
            new, self._said, self._say_again = dropped - self._said, dropped, now + _SAID_EVERY_SECONDS
            message = f"{new:,} log records were dropped, {dropped:,} in all{why}"
            _say(logging.LogRecord(f"{_OWN_LOGGER}.producer", logging.WARNING, __file__, 0, message, None, None))

    def _sent(self, record: logging.LogRecord, result: Result) -> None:
        if result.successful or result.dead_letter:
            return
        self._failed += 1
        try:
            raise SendFailedError(f"a log record was not stored: {result.error_code}: {result.error_message}", result)
        except SendFailedError:
            self.handleError(record)

    def flush(self) -> None:
        """Ship the records so far and wait until they are stored.

        It waits for nothing in the producer's own threads, and while this thread has the lock of the module `logging`,
        as in `logging.config.dictConfig`: there it only ships.

        Raises:
            ProducerTimeoutError: they are not stored within ``flush_timeout_seconds``.
        """
        if not _logging_is_locked_here():
            self._producer.flush(self._flush_timeout_seconds)
            return
        try:
            self._producer.flush(0)
        except ProducerTimeoutError:
            return  # they are on their way

    def close(self) -> None:
        """Say what was dropped since that was said last, and end; the producer stays open."""
        self._say_again = float("-inf")
        self._say_dropped()
        super().close()


def _say(record: logging.LogRecord) -> None:
    """Let a record that is not sent go to standard error, if it is a warning or worse."""
    if logging.lastResort is not None and record.levelno >= logging.lastResort.level:
        logging.lastResort.handle(record)


def _logging_is_locked_here() -> bool:
    """Tell whether this thread has the lock of the module `logging`, which every thread needs that logs."""
    is_owned = getattr(getattr(logging, "_lock", None), "_is_owned", None)
    return is_owned is not None and bool(is_owned())
