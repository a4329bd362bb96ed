"""The headers of dead letters: why each was put aside, and where it comes from.

Workers and producers write names that begin with `PREFIX`, and the flow writes names of its own. Earlier
producers wrote two headers without the prefix. All of them can be read, and all go when a dead letter is put back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = [
    "ATTEMPTS",
    "CHANNEL",
    "CHANNEL_UUID",
    "ERROR_CODE",
    "ERROR_MESSAGE",
    "FLOW_COMPONENT",
    "FLOW_ERROR",
    "FLOW_ID",
    "FLOW_TIME",
    "FORM",
    "GROUP",
    "PREFIX",
    "PRODUCER_ID",
    "PRODUCER_SEQUENCE",
    "PUT_TIME",
    "WRITE_ORDER_ID",
    "Reason",
    "header_text",
    "reason_of",
    "without_reason",
]

PREFIX = "dead_letter_"

ERROR_CODE = f"{PREFIX}error_code"
ERROR_MESSAGE = f"{PREFIX}error_message"
ATTEMPTS = f"{PREFIX}attempts"
CHANNEL = f"{PREFIX}channel"
CHANNEL_UUID = f"{PREFIX}channel_uuid"
GROUP = f"{PREFIX}group"
FORM = f"{PREFIX}form"
WRITE_ORDER_ID = f"{PREFIX}write_order_id"
PUT_TIME = f"{PREFIX}put_time"
PRODUCER_ID = f"{PREFIX}producer_id"
PRODUCER_SEQUENCE = f"{PREFIX}producer_sequence"

FLOW_COMPONENT = "deadletter.component"
FLOW_ERROR = "deadletter.error"
FLOW_TIME = "deadletter.time"
FLOW_ID = "deadletter.id"

_FLOW = frozenset((FLOW_COMPONENT, FLOW_ERROR, FLOW_TIME, FLOW_ID))
_EARLIER_PRODUCER = frozenset(("producer_id", "producer_sequence"))
_MOST_LETTERS = 4000


class Reason(NamedTuple):
    """Why an event is a dead letter, as far as its headers say; "" for what they do not.

    Args:
        error: what went wrong, with the kind of error first.
        origin: the channel, or the component of a flow, that could not pass it.
        event: what named the event there.
        attempts: how many attempts there were.
    """

    error: str
    origin: str
    event: str
    attempts: str


def header_text(text: str) -> str:
    """Return what a header says of a text, which may be no valid Unicode, or longer than each letter should be."""
    return text[:_MOST_LETTERS].encode(errors="backslashreplace").decode()[:_MOST_LETTERS]


def reason_of(headers: Mapping[str, str]) -> Reason:
    """Return why an event is a dead letter. The last one who put it aside has the word."""
    if ERROR_CODE not in headers and FLOW_COMPONENT in headers:
        return Reason(headers.get(FLOW_ERROR, ""), headers[FLOW_COMPONENT], headers.get(FLOW_ID, ""), "")
    said = (headers.get(ERROR_CODE, ""), headers.get(ERROR_MESSAGE, ""))
    error = ": ".join(filter(None, said))
    return Reason(error, headers.get(CHANNEL, ""), headers.get(WRITE_ORDER_ID, ""), headers.get(ATTEMPTS, ""))


def without_reason(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that an event had before it became a dead letter."""
    is_earlier_producer = ERROR_CODE in headers and GROUP not in headers and PRODUCER_ID not in headers
    added = _FLOW | _EARLIER_PRODUCER if is_earlier_producer else _FLOW
    return {k: v for k, v in headers.items() if k not in added and not k.startswith(PREFIX)}
