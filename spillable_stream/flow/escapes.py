"""Escapes in paths: ``%{header}``, ``%Y-%m-%d`` and Flume's other ones, with rounding of times.

A batch is divided by the paths of its events: one path is written for each different set of the headers and the stretch
of time that it depends on, not for each event.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spillable_stream.errors import OptionError
from spillable_stream.flow.event_batch import header
from spillable_stream.flow.java_dates import DAYS, MONTHS
from spillable_stream.flow.surroundings import REAL, Surroundings
from spillable_stream.shown_value import shown

__all__ = ["Bucketed", "PathEscapes", "Rounding"]

_ESCAPE = re.compile(r"%(?:\{([^}]*)\}|\[([^\]]*)\]|(.))", re.DOTALL)
_TIME_LETTERS = "aAbBcdeDHIjklmnMpsStyYz"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STEP_MS = {"t": 1, "s": 1000, "S": 1000, "c": 1000, "M": 60_000}  # how long a letter stays the same
_HOURS_STEP_MS = 900_000  # zones are apart by quarters of an hour
_LAST_MS = int(datetime(9999, 12, 30, tzinfo=UTC).timestamp()) * 1000  # which has a date in each zone
_OF_HEADER = "\0"  # marks a name in a path that a header is a part of; no path has it


class Rounding(NamedTuple):
    """To what times are rounded down.

    Args:
        value: how many units.
        unit: "second", "minute" or "hour".
    """

    value: int
    unit: str

    def check(self) -> None:
        """Refuse what does not divide the next larger unit.

        Raises:
            OptionError: it does not, or there is no such unit.
        """
        most = {"second": 60, "minute": 60, "hour": 24}.get(self.unit)
        if most is None:
            raise OptionError(f"a time is rounded to second, minute or hour, not to {shown(self.unit)}")
        if not 0 < self.value <= most:
            raise OptionError(f"a time is rounded to 1 to {most} {self.unit}s, not to {self.value}")

    def down(self, local: datetime) -> datetime:
        """Return a time rounded down.

        Args:
            local: the time, in its zone.
        """
        rounded = local.replace(microsecond=0)
        if self.unit == "second":
            return rounded.replace(second=rounded.second // self.value * self.value)
        rounded = rounded.replace(second=0)
        if self.unit == "minute":
            return rounded.replace(minute=rounded.minute // self.value * self.value)
        return rounded.replace(minute=0, hour=rounded.hour // self.value * self.value)


class Bucketed(NamedTuple):
    """A batch divided by paths.

    Args:
        paths: the different paths, in the order of their first events.
        rows: which events have each of them, as arrays of numbers, ascending.
        untimed: which events have no time that is needed, as an array of numbers.
    """

    paths: list[str]
    rows: list[pa.Array]
    untimed: pa.Array


class PathEscapes:
    """A path with escapes.

    Args:
        text: the path.
        zone: the zone of the times in it; None for the host's.
        rounding: to what times are rounded down, all but ``%t``; None for not at all.
        use_local_timestamp: whether the time is that of the clock, and not the header timestamp.
        surroundings: the clock and the host.

    Attributes:
        needs_time: whether it has escapes of time.
        has_headers: whether it has escapes of headers.

    Raises:
        OptionError: there is no such rounding, or a ``%[…]`` is none of localhost, IP and FQDN.
    """

    def __init__(
        self,
        text: str,
        *,
        zone: tzinfo | None = None,
        rounding: Rounding | None = None,
        use_local_timestamp: bool = False,
        surroundings: Surroundings = REAL,
    ) -> None:
        if rounding is not None:
            rounding.check()
        self.text = text
        self._zone = zone
        self._rounding = rounding
        self._use_local_timestamp = use_local_timestamp
        self._surroundings = surroundings
        found = [match.groups() for match in _ESCAPE.finditer(text)]
        self._headers = list(dict.fromkeys(name for name, _, _ in found if name is not None))
        self.has_headers: bool = bool(self._headers)
        self._host = {word: self._of_host(word) for _, word, _ in found if word is not None}
        letters = {letter for _, _, letter in found if letter is not None and letter in _TIME_LETTERS}
        self.needs_time: bool = bool(letters)
        self._step_ms = min((_STEP_MS.get(letter, _HOURS_STEP_MS) for letter in letters), default=_HOURS_STEP_MS)

    def _of_host(self, word: str) -> str:
        around = self._surroundings
        known: dict[str, Callable[[], str | None]] = {
            "localhost": around.host_name,
            "FQDN": around.host_name,
            "IP": around.host_address,
        }
        if word not in known:
            raise OptionError(f"the path {shown(self.text)} has %[{word}]; there are %[localhost], %[IP] and %[FQDN]")
        return known[word]() or ""

    def expand(self, headers: Mapping[str, str], time_ms: int | None = None, time_text: str = "") -> str:
        """Return the path of an event.

        Args:
            headers: its headers.
            time_ms: its time, in milliseconds since 1970; needed if the path `needs_time`.
            time_text: the time as the header says it, for ``%t``; the number by default.
        """
        local = raw = None
        if time_ms is not None and self.needs_time:
            moment = _EPOCH + timedelta(milliseconds=time_ms)
            raw = moment.astimezone(self._zone) if self._zone is not None else moment.astimezone()
            local = raw if self._rounding is None else self._rounding.down(raw)

        def written(match: re.Match[str]) -> str:
            name, word, letter = match.groups()
            if name is not None:
                return _marked(headers.get(name, ""))
            if word is not None:
                return self._host[word]
            if letter == "%":
                return "%"
            if letter == "t":
                return time_text or str(time_ms)
            return _TIMES[letter](local) if letter in _TIMES and local is not None else ""

        path = _ESCAPE.sub(written, self.text)
        return _confined(path) if self.has_headers else path

    def bucket(self, batch: pa.RecordBatch) -> Bucketed:
        """Divide a batch by the paths of its events."""
        columns = [header(batch, name).fill_null("") for name in self._headers]
        none = pa.array([], pa.int64())
        untimed, texts, times = none, None, None
        if self.needs_time and not self._use_local_timestamp:
            texts = header(batch, "timestamp").fill_null("")
            times, is_known = _milliseconds(texts)
            untimed = pa.array(np.flatnonzero(~is_known))
        elif self.needs_time:
            times = np.full(batch.num_rows, self._surroundings.now_ms(), np.int64)
        keys = [column.dictionary_encode() for column in columns]
        if times is not None:
            keys.append(pa.array(times // self._step_ms).dictionary_encode())
        codes = np.zeros(batch.num_rows, np.int64)
        for key in keys:
            codes = codes * (len(key.dictionary) + 1) + np.asarray(key.indices)
            codes = np.unique(codes, return_inverse=True)[1]  # so that the product stays small
        if len(untimed):
            codes[np.asarray(untimed)] = -1
        return self._bucketed(codes, columns, times, texts, untimed)

    def _bucketed(
        self, codes: object, columns: list[pa.Array], times: object, texts: pa.Array | None, untimed: pa.Array
    ) -> Bucketed:
        assert isinstance(codes, np.ndarray)
        rows_of: dict[str, list[np.ndarray]] = {}
        _, first_rows, inverse = np.unique(codes, return_index=True, return_inverse=True)
        order = np.argsort(inverse, kind="stable")
        starts = np.searchsorted(inverse[order], np.arange(len(first_rows) + 1))
        for code in np.argsort(first_rows, kind="stable"):
            row = int(first_rows[code])
            if codes[row] < 0:
                continue
            headers = {name: column[row].as_py() for name, column in zip(self._headers, columns, strict=True)}
            time_ms = int(times[row]) if isinstance(times, np.ndarray) else None
            path = self.expand(headers, time_ms, "" if texts is None else texts[row].as_py())
            rows_of.setdefault(path, []).append(order[starts[code] : starts[code + 1]])
        paths = list(rows_of)
        return Bucketed(paths, [pa.array(np.sort(np.concatenate(rows_of[p]))) for p in paths], untimed)


def _marked(value: str) -> str:
    """Return a header's value as a part of a path, which a file can have, with a mark in each of its names."""
    names = ["_" if name == ".." else name for name in value.replace(_OF_HEADER, "_").split("/")]
    return _OF_HEADER + "/".join(names).lstrip("/").replace("/", f"/{_OF_HEADER}")


def _confined(path: str) -> str:
    """Return a path without marks, in which headers make no name that leads out of it, nor one that is empty.

    A store refuses an empty name. The last one stays: it is only the beginning of a file's.
    """
    *above, last = path.split("/")
    return "/".join([_plain(name) for name in above if not name or name.strip(_OF_HEADER)] + [_plain(last)])


def _plain(name: str) -> str:
    plain = name.replace(_OF_HEADER, "")
    return "_" if plain == ".." and name != plain else plain


def _milliseconds(texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return texts as times, and which of them are some that have a date."""
    is_number = pc.match_substring_regex(texts, r"\A[0-9]{1,15}\z")
    numbers = np.asarray(pc.if_else(is_number, texts, "0").cast(pa.int64()))
    return numbers, np.asarray(is_number) & (numbers <= _LAST_MS)


def _zone_offset(time: datetime) -> str:
    return time.strftime("%z")[:5]


def _hour(time: datetime) -> int:
    return time.hour % 12 or 12


_TIMES: Mapping[str, Callable[[datetime], str]] = {
    "a": lambda t: DAYS[t.weekday()][:3],
    "A": lambda t: DAYS[t.weekday()],
    "b": lambda t: MONTHS[t.month - 1][:3],
    "B": lambda t: MONTHS[t.month - 1],
    "c": lambda t: f"{DAYS[t.weekday()][:3]} {MONTHS[t.month - 1][:3]} {t.day} {t:%H:%M:%S} {t.year}",
    "d": lambda t: f"{t.day:02}",
    "e": lambda t: str(t.day),
    "D": lambda t: f"{t.month:02}/{t.day:02}/{t.year % 100:02}",
    "H": lambda t: f"{t.hour:02}",
    "I": lambda t: f"{_hour(t):02}",
    "j": lambda t: f"{t.timetuple().tm_yday:03}",
    "k": lambda t: str(t.hour),
    "l": lambda t: str(_hour(t)),
    "m": lambda t: f"{t.month:02}",
    "n": lambda t: str(t.month),
    "M": lambda t: f"{t.minute:02}",
    "p": lambda t: "AM" if t.hour < 12 else "PM",
    "s": lambda t: str(int((t - _EPOCH) / timedelta(seconds=1))),
    "S": lambda t: f"{t.second:02}",
    "y": lambda t: f"{t.year % 100:02}",
    "Y": lambda t: str(t.year),
    "z": _zone_offset,
}
