"""Parses lines of JSON with Arrow, and says which line, and which column of it, is at fault.

Arrow names no line. It also takes what is not what the line says: a whole number becomes the nearest float of its
column, and a text may be none. So each line that may hold such a thing is looked at here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

from spillable_stream.cli.float_columns import change, may_change, narrowest_float, whole_number
from spillable_stream.cli.input_source import error_text
from spillable_stream.cli.json_times import as_texts, from_texts, misplaced, misplaced_times, with_zones
from spillable_stream.cli.text_values import has_values_by_hand, is_readable, values_of_json
from spillable_stream.format.types import NOT_ARROW
from spillable_stream.shown_value import shown

__all__ = ["Columns", "LineFault", "Lines", "inferred_columns", "parse_lines"]

_MOST_LEVELS = 64
"""How deep a row may be nested: Arrow reads no column back that is deeper."""

_NO_OPENING = bytes(b for b in range(256) if b not in b"[{\n")
_BRACKET_OR_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]')
_KINDS = {list: "a list", str: "a text", bool: "true or false", type(None): "null"}
_ROW_OF_CALL = re.compile(r" in row \d+$")


class Line(NamedTuple):
    """One line.

    Args:
        number: its place in the input, from 1 on.
        text: its bytes.
    """

    number: int
    text: bytes

    def fault(self, why: str, column: str = "") -> LineFault:
        """Return the error that says what is wrong with the line, and in which column."""
        return LineFault(f"line {self.number:,}" + (f", column {shown(column)}" if column else "") + f": {why}")


class Lines(NamedTuple):
    """Lines that follow each other.

    Args:
        first: the number of the first one.
        texts: their bytes; some may be empty.
    """

    first: int
    texts: Sequence[bytes]

    def numbered(self) -> Iterator[Line]:
        """Yield those that are not empty."""
        return (Line(n, text) for n, text in enumerate(self.texts, self.first) if text.strip())

    def count_rows(self) -> int:
        """Return how many of them are not empty."""
        return sum(map(bool, map(bytes.strip, self.texts)))

    def joined(self) -> bytes:
        """Return them as they were."""
        return b"\n".join(self.texts)


class Columns(NamedTuple):
    """Which columns rows may have.

    Args:
        known: those whose types are known.
        more: whether a row may have others, whose types its values say.
    """

    known: pa.Schema
    more: bool


class LineFault(ValueError):
    """A line can't be a row; the text begins with its number."""


class _AsWritten(str):
    """A number, for messages."""

    def __repr__(self) -> str:
        return str(self)


def parse_lines(lines: Lines, columns: Columns) -> pa.Table:
    """Return lines as rows.

    Args:
        lines: the lines.
        columns: the columns that they may have.

    Raises:
        LineFault: one of them can't be a row of these columns.
    """
    if not (count := lines.count_rows()):
        return columns.known.empty_table()
    data = lines.joined()
    if max(map(len, data.translate(None, _NO_OPENING).split(b"\n"))) > _MOST_LEVELS:
        for line in lines.numbered():
            _check_levels(line)
    try:
        data.decode()
        table = _read(data, columns)
        if table.num_rows != count or b"null" in map(bytes.strip, lines.texts):  # which Arrow takes for a row of nulls
            raise pa.ArrowInvalid(f"{count:,} lines hold {table.num_rows:,} objects")
    except NOT_ARROW as e:
        raise _fault(lines, columns) from e
    # Those columns whose types Arrow has just inferred get the right ones by `inferred_columns`.
    is_suspicious = _suspicion(table.schema, columns.known)
    if is_suspicious(data):
        for line in lines.numbered():
            if is_suspicious(line.text):
                _check(line, columns, table.schema)
    return table


def inferred_columns(lines: Lines, known: pa.Schema) -> pa.Schema:
    """Return the columns that lines have, with those whose types are known; raises LineFault, as `parse_lines`."""
    found = parse_lines(lines, Columns(known, more=True)).schema
    if not misplaced_times(found)(lines.joined()):
        return found
    rows = [json.loads(line.text, parse_int=whole_number) for line in lines.numbered()]
    types = {
        f.name: f.type if f.name in known.names else with_zones(f.type, [r.get(f.name) for r in rows]) for f in found
    }
    return pa.schema([f.with_type(types[f.name]) for f in found])


def _read(data: bytes, columns: Columns, unexpected: str = "error") -> pa.Table:
    """Return rows as a table, whatever Arrow rounds.

    Of dates and times it reads numbers, but no texts, and of some types nothing: what it refuses is read by hand.
    """
    try:
        return _read_by_arrow(data, columns, unexpected)
    except NOT_ARROW:
        by_hand = [field for field in columns.known if has_values_by_hand(field.type)]
        if not by_hand:
            raise
    if (texts := as_texts(columns.known)) != columns.known:  # thirty times as fast as by hand
        with suppress(*NOT_ARROW):
            return from_texts(_read_by_arrow(data, columns._replace(known=texts), unexpected), columns.known)
    return _read_by_hand(data, columns, by_hand, unexpected)


def _read_by_hand(data: bytes, columns: Columns, by_hand: list[pa.Field], unexpected: str) -> pa.Table:
    names, others = columns.known.names, pa.schema([f for f in columns.known if f not in by_hand])
    rows = [json.loads(line, object_pairs_hook=_object) for line in data.split(b"\n") if line.strip()]
    if not all(isinstance(row, dict) for row in rows):
        raise pa.ArrowInvalid("JSON parse error: a line is not an object")
    has_more = any(row.keys() - set(names) for row in rows)
    if has_more and not columns.more and unexpected == "error":
        raise pa.ArrowInvalid("JSON parse error: unexpected field")
    table = _read_by_arrow(data, Columns(others, columns.more and has_more), "ignore") if others.names else None
    found = {f.name: values_of_json([row.get(f.name) for row in rows], f.type) for f in by_hand}
    if table is None:
        return pa.table(list(found.values()), pa.schema(by_hand))
    more = [name for name in table.schema.names if name not in names]
    arrays = [found[name] if name in found else table.column(name) for name in names + more]
    return pa.table(arrays, pa.schema([*columns.known, *(table.schema.field(name) for name in more)]))


def _read_by_arrow(data: bytes, columns: Columns, unexpected: str) -> pa.Table:
    from pyarrow import json as arrow_json

    return arrow_json.read_json(
        pa.BufferReader(data),
        arrow_json.ReadOptions(use_threads=False, block_size=len(data) + 1),
        arrow_json.ParseOptions(columns.known, unexpected_field_behavior="infer" if columns.more else unexpected),
    )


def _suspicion(schema: pa.Schema, known: pa.Schema) -> Callable[[bytes], bool]:
    """Return what tells whether Arrow may have taken something in lines for something else."""
    width, may_be_misplaced = narrowest_float(schema), misplaced_times(known)
    return lambda data: (width is not None and may_change(data, width)) or may_be_misplaced(data)


def _fault(lines: Lines, columns: Columns) -> LineFault:
    """Return which of the lines is at fault, and why, where Arrow refuses them together."""
    numbered = list(lines.numbered())
    try:
        for line in numbered:
            _check(line, columns, columns.known)
    except LineFault as e:
        return e
    taken, refused = 0, len(numbered)
    while refused - taken > 1:
        middle = (taken + refused) // 2
        if _refusal(numbered[:middle], columns):
            refused = middle
        else:
            taken = middle
    line = numbered[refused - 1]
    row = json.loads(line.text, parse_int=_AsWritten, parse_float=_AsWritten, parse_constant=_AsWritten)
    for field in columns.known:
        if field.name in row and _refusal([line], Columns(pa.schema([field]), more=False), "ignore"):
            why = f"{shown(row[field.name])} is not of the column's type, {field.type}"
            more = "" if is_readable(field.type) else "; JSON has no values of it: export and put it as Arrow"
            return line.fault(why + more, field.name)
    return line.fault(_ROW_OF_CALL.sub("", _refusal(numbered[:refused], columns)))


def _refusal(lines: Sequence[Line], columns: Columns, unexpected: str = "error") -> str:
    """Return why Arrow refuses lines; "" if it takes them."""
    try:
        _read(b"\n".join(line.text for line in lines), columns, unexpected)
    except NOT_ARROW as e:
        return error_text(e) or type(e).__name__
    return ""


# ── one line ────────────────────────────────────────────────────────────────────────────────


def _check(line: Line, columns: Columns, types: pa.Schema) -> None:
    """Refuse a line that can't be a row, whatever Arrow says.

    Args:
        line: the line.
        columns: the columns that it may have.
        types: the types of columns, as far as they are known.

    Raises:
        LineFault: it can't.
    """
    _check_levels(line)
    try:
        row = json.loads(
            line.text.decode(), parse_int=whole_number, parse_constant=lambda _: None, object_pairs_hook=_object
        )
    except UnicodeDecodeError as e:
        raise line.fault(f"not UTF-8 from byte {e.start + 1:,} on: convert the file") from e
    except json.JSONDecodeError as e:
        raise line.fault(f"not a whole JSON object: {e}: bring each object into one line, as jq -c does") from e
    except ValueError as e:
        raise line.fault(f"not a whole JSON object: {e}") from e
    if not isinstance(row, dict):
        raise line.fault(f"not a JSON object, but {_KINDS.get(type(row), 'a number')}: write an object on each line")
    for name, value in row.items():
        field = types.get_field_index(name)
        if not columns.more and columns.known.get_field_index(name) < 0:
            raise line.fault(f"the channel has no column {shown(name)}: leave it out, or give --typed to add it")
        of = types.field(field).type if field >= 0 else None
        for text in _faults(value, of, is_known=columns.known.get_field_index(name) >= 0):
            raise line.fault(text, name)


def _check_levels(line: Line) -> None:
    if line.text.count(b"[") + line.text.count(b"{") <= _MOST_LEVELS:
        return
    levels = 0
    for found in _BRACKET_OR_TEXT.finditer(line.text):
        levels += {b"[": 1, b"{": 1, b"]": -1, b"}": -1}.get(found[0], 0)
        if levels > _MOST_LEVELS:
            raise line.fault(
                f"nested more than {_MOST_LEVELS} levels deep, which no column can hold: flatten it, or put the "
                "lines into a channel of events"
            )


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {shown(twice)} is in it twice; leave one out")
    return found


def _faults(value: object, of: pa.DataType | None, *, is_known: bool) -> Iterator[str]:
    """Yield why a column can't hold a value, or a part of it, where Arrow does not say so, or not where.

    Args:
        value: what the line says.
        of: the type that it becomes; None where that is not known.
        is_known: whether the column's type is known, and not just inferred.
    """
    if isinstance(value, list):
        for inner in value:
            yield from _faults(inner, _element(of), is_known=is_known)
    elif isinstance(value, dict):
        for name, inner in value.items():
            part = _field(of, name)
            if is_known and part is None and of is not None and pa.types.is_struct(of):
                yield f"the type {of} has no field {shown(name)}: leave it out"
            yield from _faults(inner, part, is_known=is_known)
    elif isinstance(value, str):
        if _has_half_pair(value):
            yield "a text has half of a surrogate pair, which no text can hold: correct it"
        if of is not None and is_known and (why := misplaced(value, of)):
            yield why
    elif isinstance(value, int | float | Decimal) and not isinstance(value, bool) and of is not None:
        yield from filter(None, [change(value, of)])


def _has_half_pair(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _element(of: pa.DataType | None) -> pa.DataType | None:
    """Return the type of what is in a list, and of a map's entries, which JSON has as a list of objects."""
    if of is None:
        return None
    if pa.types.is_map(of):
        return pa.struct([("key", of.key_type), ("value", of.item_type)])
    return of.value_type if hasattr(of, "value_type") else None


def _field(of: pa.DataType | None, name: str) -> pa.DataType | None:
    if of is not None and pa.types.is_map(of):
        return of.item_type
    if of is None or not pa.types.is_struct(of) or of.get_field_index(name) < 0:
        return None
    return of.field(name).type
