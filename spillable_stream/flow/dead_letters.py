"""Dead letters: events that a component can never pass, with the reason in their headers.

Where there is no channel for them, such an event is named in the log, once a minute.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pyarrow as pa

from spillable_stream.flow.event_batch import Header, add_headers
from spillable_stream.log_records import log_of
from spillable_stream.workers.letter_headers import FLOW_COMPONENT, FLOW_ERROR, FLOW_ID, FLOW_TIME

__all__ = ["Stuck", "as_dead_letters"]

_log = log_of("spillable_stream.flow")

_PAUSE_MS = 60_000


def as_dead_letters(
    batch: pa.RecordBatch, component: str, errors: Sequence[str], ids: Sequence[str], now_ms: int
) -> pa.RecordBatch:
    """Return events as dead letters: with the component, the error, the time and their IDs in headers.

    Args:
        batch: the events.
        component: what could not pass them.
        errors: why, for each.
        ids: what names each of them.
        now_ms: the time, in milliseconds since 1970.
    """
    return add_headers(
        batch,
        [
            Header(FLOW_COMPONENT, component),
            Header(FLOW_ERROR, pa.array(errors, pa.string())),
            Header(FLOW_TIME, str(now_ms)),
            Header(FLOW_ID, pa.array(ids, pa.string())),
        ],
    )


class Stuck:
    """What a component can't pass, where there is no channel for dead letters.

    Args:
        component: the component.
        now_ms: tells the time, in milliseconds.

    Attributes:
        why: the event that holds the component up now, and why; "" while nothing does.
    """

    def __init__(self, component: str, now_ms: Callable[[], int]) -> None:
        self.why: str = ""
        self._component = component
        self._now_ms = now_ms
        self._said_ms: int | None = None
        self._mutex = threading.Lock()

    def at(self, event_id: str, error: str) -> None:
        """Note that an event does not pass, and log it unless that was done within the last minute.

        Args:
            event_id: what names the event.
            error: why it does not pass.
        """
        with self._mutex:
            self.why = f"the event {event_id} can't pass: {error}"
            now = self._now_ms()
            if self._said_ms is not None and 0 <= now - self._said_ms < _PAUSE_MS:
                return
            self._said_ms = now
        _log.of(self._component).error(
            "%s. It is tried again and again, and what is after it waits; give the component a deadLetter channel to "
            "pass over such events",
            self.why,
        )

    def passed(self) -> None:
        """Note that the component continues."""
        self.why = ""
