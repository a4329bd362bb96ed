"""How a request becomes events: Flume's JSON and blob handlers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from spillable_stream.errors import OptionError, SchemaError
from spillable_stream.flow.sources.event_columns import events_of
from spillable_stream.shown_value import shown

__all__ = ["BlobHandler", "Handler", "HttpRequest", "JsonHandler", "handler"]

_NULL = b"null"


class HttpRequest(NamedTuple):
    """A request.

    Args:
        body: its bytes.
        parameters: the parameters of its query.
        charset: the character set that its Content-Type names; empty if none.
    """

    body: bytes
    parameters: Mapping[str, str]
    charset: str


@runtime_checkable
class Handler(Protocol):
    """Turns a request into events. Thread-safe: large requests are read in threads, several at once."""

    def events(self, request: HttpRequest) -> pa.RecordBatch:
        """Return the events of a request.

        Raises:
            SchemaError: it is malformed; the message goes to the client.
        """


class JsonHandler:
    """Takes a JSON array of ``{"headers": {text: text}, "body": text}``, in UTF-8, UTF-16 or UTF-32.

    Headers and body may be missing. A number, and ``true`` and ``false``, are the text that they are written with.

    Raises:
        ImportError: the extra ``flow`` is not installed.
    """

    def __init__(self) -> None:
        try:
            import msgspec
        except ImportError as e:
            raise ImportError("the http source needs msgspec: pip install 'spillable-stream[flow]'") from e

        class JsonEvent(msgspec.Struct):
            headers: dict[str, str] | None = None
            body: str | None = None

        fields = [("headers", dict[str, msgspec.Raw] | None, None), ("body", msgspec.Raw, msgspec.Raw(_NULL))]
        loose: Any = msgspec.defstruct("LooseEvent", fields)

        self._malformed, self._mistyped = msgspec.DecodeError, msgspec.ValidationError
        self._decode = msgspec.json.Decoder(list[JsonEvent]).decode
        self._decode_loose = msgspec.json.Decoder(list[loose]).decode
        self._decode_value = msgspec.json.Decoder(str | int | float | bool).decode

    def events(self, request: HttpRequest) -> pa.RecordBatch:
        """Return the events; see `Handler.events`."""
        charset = request.charset.lower() or "utf-8"
        if charset not in ("utf-8", "utf8", "utf-16", "utf-32"):
            raise SchemaError(f"the character set {charset} is not supported; send UTF-8, UTF-16 or UTF-32")
        try:
            body = request.body if charset in ("utf-8", "utf8") else request.body.decode(charset).encode()
            return self._read(body)
        except (self._malformed, UnicodeError, RecursionError) as e:  # the last one where values are nested deeply
            raise SchemaError(f'the request is not a JSON array of {{"headers": {{…}}, "body": "…"}}: {e}') from e

    def _read(self, body: bytes) -> pa.RecordBatch:
        try:
            found = self._decode(body)
            return events_of([(e.body or "").encode() for e in found], [e.headers or {} for e in found])
        except self._mistyped:
            loose = self._decode_loose(body)
        bodies = [b"" if bytes(e.body) == _NULL else self._text(e.body).encode() for e in loose]
        return events_of(bodies, [{name: self._text(v) for name, v in (e.headers or {}).items()} for e in loose])

    def _text(self, value: bytes) -> str:
        """Return a text, or what stands for a number or a truth value."""
        found = self._decode_value(value)
        return found if isinstance(found, str) else bytes(value).decode()


class BlobHandler:
    """Takes a request's body as it is; the parameters of the query are the headers.

    Args:
        mandatory: parameters without which a request is refused.
    """

    def __init__(self, mandatory: tuple[str, ...] = ()) -> None:
        self._mandatory = mandatory

    def events(self, request: HttpRequest) -> pa.RecordBatch:
        """Return the event; see `Handler.events`."""
        missing = [name for name in self._mandatory if name not in request.parameters]
        if missing:
            raise SchemaError(
                f"the query has no parameter {', '.join(missing)}; the handler's mandatoryParameters ask for it"
            )
        return events_of([request.body], [dict(request.parameters)])


def handler(name: str, properties: Mapping[str, str]) -> Handler:
    """Return the handler of a name: Flume's class, or its last part.

    Raises:
        OptionError: there is none of this name.
    """
    short = name.rpartition(".")[2].lower()
    if short in ("jsonhandler", "json"):
        return JsonHandler()
    if short in ("blobhandler", "blob"):
        words = properties.get("mandatoryParameters", "").split(",")
        return BlobHandler(tuple(word.strip() for word in words if word.strip()))
    raise OptionError(
        f"there is no handler {shown(name)}; give JSONHandler, BLOBHandler, or an object with events(request)"
    )
