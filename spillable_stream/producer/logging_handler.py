"""The bridge from `logging`: records become events."""

from __future__ import annotations

import logging
import threading

from spillable_stream.errors import SendFailedError
from spillable_stream.producer.producer import Producer
from spillable_stream.producer.result import Result

__all__ = ["ProducerHandler"]

_OWN_LOGGER = "spillable_stream"


class ProducerHandler(logging.Handler):
    """Sends log records through a producer; structlog's too, where it logs through `logging`.

    The body of an event is the formatted record, in UTF-8; the headers ``logger``, ``level`` and ``time`` (seconds
    since 1970) are the record's. A record that can't be sent goes to `handleError`, as with every handler.

    What this package logs itself, and what the producer's own threads log while they commit, is not sent, since that
    would never end; from warnings on it goes to standard error.

    Args:
        producer: what sends; it stays open at the end. One that must never keep a program waiting for its log has
            ``max_block_ms=0``.
        key: which of the producer's channels.
        level: the least level that is sent.
    """

    def __init__(self, producer: Producer, *, key: str | None = None, level: int = logging.NOTSET) -> None:
        super().__init__(level)
        self._producer = producer
        self._key = key
        self._inside = threading.local()

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record."""
        if self._is_own(record):
            if logging.lastResort is not None and record.levelno >= logging.lastResort.level:
                logging.lastResort.handle(record)
            return
        self._inside.now = True
        try:
            body = self.format(record).encode(errors="backslashreplace")
            headers = {"logger": record.name, "level": record.levelname, "time": f"{record.created:.6f}"}
            self._producer.send(body, headers, key=self._key, callback=lambda result: self._sent(record, result))
        except Exception:
            self.handleError(record)
        finally:
            self._inside.now = False

    def _is_own(self, record: logging.LogRecord) -> bool:
        """Tell whether a record comes of sending records."""
        own = record.name == _OWN_LOGGER or record.name.startswith(_OWN_LOGGER + ".")
        return own or getattr(self._inside, "now", False) or self._producer.is_own_thread(threading.get_ident())

    def _sent(self, record: logging.LogRecord, result: Result) -> None:
        if result.successful or result.dead_letter:
            return
        try:
            raise SendFailedError(f"a log record was not stored: {result.error_code}: {result.error_message}", result)
        except SendFailedError:
            self.handleError(record)

    def flush(self) -> None:
        """Wait until the records so far are stored; from one of the producer's own threads, wait for nothing."""
        self._producer.flush()
