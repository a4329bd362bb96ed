"""Events, and the checks of what a caller gives as one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from spillable_stream.errors import SchemaError
from spillable_stream.shown_value import shown

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault  # Python has it from 3.13 on

__all__ = ["ID_COLUMN", "Event", "EventT", "event_list", "read_body", "read_event", "read_headers"]

ID_COLUMN = "write_order_id"

_SHOWN_SIZE = 1024  # bytes, or characters
_SHOWN_LETTERS = 4096


@dataclass(frozen=True, slots=True)
class Event:
    """One event: a body and headers (Flume's ``Event``).

    Args:
        body: the payload, in bytes.
        headers: names and values; a value of None reads back as "".
        write_order_id: its place in the channel's order; 0 until it is taken.
        transaction_id: the transaction that put it; 0 until it is taken.
        timestamp: when that was committed, in seconds since 1970; 0 until it is taken.
    """

    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict, hash=False)
    write_order_id: int = field(default=0, compare=False)
    transaction_id: int = field(default=0, compare=False)
    timestamp: float = field(default=0.0, compare=False)

    def __repr__(self) -> str:
        return (
            f"{type(self).__qualname__}(body={_shown_text(self.body)}, headers={_shown_headers(self.headers)}, "
            f"write_order_id={self.write_order_id!r}, transaction_id={self.transaction_id!r}, "
            f"timestamp={self.timestamp!r})"
        )


if TYPE_CHECKING:
    EventT = TypeVarWithDefault("EventT", bound=Event | dict[str, Any], default=Any, covariant=True)
else:
    EventT = TypeVar("EventT")
"""What takes give: an `Event`, or a dictionary in a typed channel."""


def _shown_text(value: object) -> str:
    return shown(value, _SHOWN_SIZE) if type(value) in (bytes, str) else shown(value)


def _shown_headers(headers: object) -> str:
    """Return headers, in part where they are many or long; that costs no more than what is shown."""
    if type(headers) is not dict:
        return shown(headers)
    parts: list[str] = []
    letters = 0
    for name, value in headers.items():
        if letters > _SHOWN_LETTERS:
            return f"{{{', '.join(parts)}, … ({len(headers):,} headers)}}"
        parts.append(": ".join(map(_shown_text, (name, value))))
        letters += len(parts[-1])
    return f"{{{', '.join(parts)}}}"


def event_list(events: Any, call: str) -> list[Any]:
    """Return the events that a call was given.

    Args:
        events: what was given as an iterable of events.
        call: the call, "put_many" or "send_many", for messages.

    Raises:
        SchemaError: it is not an iterable of events, or it is rows of Arrow, which `put_batch` takes.
    """
    has_rows = hasattr(events, "__arrow_c_stream__") or hasattr(events, "__arrow_c_array__")
    if has_rows or isinstance(events, (str, bytes, bytearray, Event, Mapping)) or not isinstance(events, Iterable):
        hint = f"; {call.replace('many', 'batch')} takes it" if has_rows else ""
        raise SchemaError(f"{call} takes a list or another iterable of events, not {type(events).__name__}{hint}")
    return list(events)


_ROWS = "a channel that has a schema takes rows, as Channel(path, schema=…)"


def read_event(event: Any) -> tuple[bytes, dict[str, str] | None]:
    """Return the body of an event and a copy of its headers, None if it has none: nobody else can change these.

    Raises:
        SchemaError: it is not an `Event`, its body is not bytes, or a header is not a string of valid Unicode.
    """
    if not issubclass(type(event), Event):
        raise SchemaError(f"an event channel takes spillable_stream.Event, not {type(event).__name__}{_hint(event)}")
    try:
        return read_body(event.body), read_headers(event.headers)
    except SchemaError:
        raise
    except Exception as e:  # of a class of somebody's own
        raise SchemaError(f"an event can't be read: {type(e).__name__} in a {type(event).__name__}") from e


def _hint(event: object) -> str:
    """Return what to give instead of something that is not an event."""
    if isinstance(event, bytes):
        return ": give Event(body)"
    if isinstance(event, str):
        return ": give Event(text.encode())"
    if isinstance(event, Mapping):
        return f": {_ROWS}"
    return "; put_batch takes it" if hasattr(event, "__arrow_c_stream__") else ""


def read_body(body: Any) -> bytes:
    """Return a body as plain bytes; raises SchemaError if it is none."""
    if type(body) is bytes:
        return body
    if issubclass(type(body), bytes):
        return bytes.__bytes__(body)
    hint = ": encode it, as text.encode() does" if isinstance(body, str) else ""
    if isinstance(body, (bytearray, memoryview)):
        hint = ": give bytes(body)"
    if isinstance(body, Mapping):
        hint = f": {_ROWS}, and json.dumps(row).encode() makes bytes of one"
    raise SchemaError(f"an event's body must be bytes, not {type(body).__name__}{hint}")


def read_headers(headers: Any) -> dict[str, str] | None:
    """Return a copy of headers, None if there are none.

    Raises:
        SchemaError: they are not a mapping of strings of valid Unicode to such strings or None.
    """
    if type(headers) is not dict:
        if not isinstance(headers, Mapping):
            raise SchemaError(f"an event's headers must be a mapping, not {type(headers).__name__}")
        try:
            headers = dict(headers.items())
        except Exception as e:  # anybody's code
            raise SchemaError(f"an event's headers can't be read: {type(e).__name__}") from e
    if not headers:
        return None
    own: dict[str, str] = headers.copy()  # at once: another thread may change it
    for name, value in own.items():
        if type(name) is not str or not (value is None or type(value) is str):
            return _plain_headers(own)
        if not (name.isascii() and (value is None or value.isascii())):
            _check_unicode(name + (value or ""))
    return own


def _plain_headers(headers: dict[Any, Any]) -> dict[str, str]:
    """Return headers with plain strings for those of classes of somebody's own."""
    own: dict[str, Any] = {}
    for name, value in headers.items():
        if not issubclass(type(name), str) or not (value is None or issubclass(type(value), str)):
            raise SchemaError(f"an event's headers must be strings, not {shown(name)}: {shown(value)}")
        own[str.__str__(name)] = value if value is None else str.__str__(value)
    if len(own) < len(headers):
        raise SchemaError("an event has two headers of one name; names are compared as plain strings")
    for name, value in own.items():
        _check_unicode(name + (value or ""))
    return own


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as e:
        raise SchemaError(f"an event's headers must be valid Unicode: {e}") from e
