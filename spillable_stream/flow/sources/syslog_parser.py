"""Reads syslog messages of RFC 5424 and RFC 3164, with Flume's headers.

A message that is neither keeps its bytes, and the header ``flume.syslog.status`` says ``Invalid``; one that was cut
because it is too long says ``Incomplete``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from spillable_stream.errors import OptionError
from spillable_stream.shown_value import shown

__all__ = ["Message", "SyslogParser"]

STATUS = "flume.syslog.status"
_PRIORITY = re.compile(rb"<(\d{1,3})>")
_RFC5424 = re.compile(rb"(\d{1,2}) (-|\S+) (\S+) ")
_RFC3164 = re.compile(rb"([A-Z][a-z]{2} [ \d]\d \d{2}:\d{2}:\d{2}) (\S+) ")
_STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)")
_MOST_PRIORITY = 191
_FIELDS = ("priority", "version", "timestamp", "hostname")


class Message(NamedTuple):
    """A message as an event.

    Args:
        body: what is left of it.
        headers: what was read from it.
    """

    body: bytes
    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Head:
    """The beginning of a message: its fields as they stand there, and where the rest starts."""

    facility: int
    severity: int
    priority: bytes
    version: bytes
    stamp: bytes
    host: bytes
    milliseconds: int | None
    end: int


class SyslogParser:
    """Reads messages.

    Args:
        keep_fields: which fields stay in the body: ``all``, ``none``, or some of priority, version, timestamp and
            hostname.
        capitals: whether the headers are called Priority and Version, as multiport_syslogtcp's are.
        now: the clock, in seconds since 1970.

    Raises:
        OptionError: there is no such field.
    """

    def __init__(
        self, keep_fields: str | Sequence[str] = "none", *, capitals: bool = False, now: Callable[[], float]
    ) -> None:
        words = keep_fields.lower().split() if isinstance(keep_fields, str) else [w.lower() for w in keep_fields]
        if unknown := [w for w in words if w not in ("all", "none", "true", "false", *_FIELDS)]:
            raise OptionError(
                f"keepFields = {shown(unknown[0])} is not known; give all, none, or some of {' '.join(_FIELDS)}"
            )
        everything = {"all", "true"} & set(words)
        self._keep = set(_FIELDS) if everything else {w for w in words if w in _FIELDS}
        self._keeps_all = bool(everything)
        self._priority, self._version = ("Priority", "Version") if capitals else ("priority", "version")
        self._now = now

    def parse(self, data: bytes, *, is_cut: bool = False) -> Message:
        """Return the event of a message.

        Args:
            data: the message, without its end.
            is_cut: whether it was longer.
        """
        head = self._head(data)
        if head is None:
            return Message(data, {"Facility": "0", "Severity": "0", STATUS: "Incomplete" if is_cut else "Invalid"})
        headers = {
            "Facility": str(head.facility),
            "Severity": str(head.severity),
            self._priority: head.priority.decode(),
        }
        if head.version:
            headers[self._version] = head.version.decode()
        if head.milliseconds is not None:
            headers["timestamp"] = str(head.milliseconds)
        if head.host:
            headers["host"] = head.host.decode(errors="replace")
        if is_cut:
            headers[STATUS] = "Incomplete"
        return Message(self._body(data, head), headers)

    def _body(self, data: bytes, head: _Head) -> bytes:
        if self._keeps_all:
            return data
        kept = b""
        if "priority" in self._keep:
            kept += b"<" + head.priority + b">"
        if "version" in self._keep and head.version:
            kept += head.version + b" "
        if "timestamp" in self._keep and head.stamp:
            kept += head.stamp + b" "
        if "hostname" in self._keep and head.host:
            kept += head.host + b" "
        return kept + data[head.end :]

    def _head(self, data: bytes) -> _Head | None:
        """Return the beginning of a message; None if it is not syslog."""
        found = _PRIORITY.match(data)
        if found is None or int(found[1]) > _MOST_PRIORITY:
            return None
        priority, start = found[1], found.end()
        facility, severity = divmod(int(priority), 8)
        if (modern := _RFC5424.match(data, start)) is not None:
            stamp = modern[2]
            milliseconds = None if stamp == b"-" else _milliseconds(stamp)
            if stamp == b"-" or milliseconds is not None:
                host = b"" if modern[3] == b"-" else modern[3]
                return _Head(facility, severity, priority, modern[1], stamp, host, milliseconds, modern.end())
        if (old := _RFC3164.match(data, start)) is not None:
            milliseconds = self._without_year(old[1].decode())
            if milliseconds is not None:
                return _Head(facility, severity, priority, b"", old[1], old[2], milliseconds, old.end())
        return _Head(facility, severity, priority, b"", b"", b"", None, start)

    def _without_year(self, stamp: str) -> int | None:
        """Return a time without a year, in the local zone: from 11 months ago to 1 month ahead."""
        now = datetime.fromtimestamp(self._now())
        for year in (now.year, now.year - 1, now.year + 1):
            try:
                found = datetime.strptime(f"{year} {' '.join(stamp.split())}", "%Y %b %d %H:%M:%S")
            except ValueError:
                continue  # 29 February in a year that has none, or nonsense
            if _months_before(now, 11) <= found <= now + timedelta(days=31):
                return int(found.timestamp() * 1000)
        return None


def _months_before(time: datetime, months: int) -> datetime:
    year, month = divmod(time.year * 12 + time.month - 1 - months, 12)
    return time.replace(year=year, month=month + 1, day=min(time.day, 28))


def _milliseconds(stamp: bytes) -> int | None:
    """Return an RFC 3339 time; None if it is not one."""
    found = _STAMP.fullmatch(stamp.decode(errors="replace"))
    if found is None:
        return None
    try:
        zone = found[3].replace("Z", "+00:00")
        whole = datetime.fromisoformat(found[1] + zone).astimezone(UTC)
    except (ValueError, OverflowError):  # there is no such day, or no year has it in UTC
        return None
    return int(whole.timestamp()) * 1000 + int((found[2] or "0").ljust(3, "0")[:3])
