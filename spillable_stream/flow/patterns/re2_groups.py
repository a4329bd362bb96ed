"""The groups of the first match in each text, by RE2.

RE2 finds where a match begins by going back from its end, and only then looks for the groups. Where every match begins
with the same characters, these are found first: a match that must begin there takes RE2 half the time.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["groups_of"]

_LEAST_PREFIX = 3  # a shorter one is often where no match begins


def groups_of(texts: pa.Array, pattern: str, count: int, prefix: str) -> tuple[pa.Array, list[pa.Array]]:
    """Return the groups of the first match in each text.

    Args:
        texts: an array of strings without nulls.
        pattern: RE2's pattern, with groups that are named.
        count: how many groups it has; at least 1.
        prefix: what every match begins with; "" if that is not known.

    Returns:
        Which texts have a match, as an array of booleans; and for each group an array of strings: null without a
        match, "" for a group that took no part.
    """
    if len(prefix) < _LEAST_PREFIX or not len(texts):
        found = pc.extract_regex(texts, pattern)
        valid = found.is_valid()
        return valid, [_where(valid, pc.struct_field(found, i)) for i in range(count)]
    starts = np.asarray(pc.find_substring(texts, prefix))
    valid, groups = _at(texts, starts, rf"\A(?:{pattern})", count)
    later = pc.and_(pc.invert(valid), pa.array(starts >= 0))  # none begins with the first prefix, but maybe another
    if pc.any(later).as_py():
        valid_later, groups_later = groups_of(texts.filter(later), pattern, count, "")
        pairs = zip(groups, groups_later, strict=True)
        groups = [pc.replace_with_mask(group, later, of_later) for group, of_later in pairs]
        valid = pc.replace_with_mask(valid, later, valid_later)
    return valid, groups


def _at(texts: pa.Array, starts: np.ndarray, pattern: str, count: int) -> tuple[pa.Array, list[pa.Array]]:
    """Return the groups of a match that begins at one place of each text.

    Args:
        texts: the texts.
        starts: where each match begins, in bytes; -1 for no match.
        pattern: RE2's pattern, which matches at the beginning of a text.
        count: how many groups it has.
    """
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    # Without a copy, each text becomes two: what is before the place, which is null, and what is behind it.
    halves = np.empty(2 * len(texts) + 1, np.int32)
    halves[::2] = ends
    halves[1::2] = np.where(starts < 0, ends[1:], ends[:-1] + starts)
    only_second = pa.py_buffer(b"\xaa" * (len(texts) // 4 + 1))
    found = pc.extract_regex(
        pa.Array.from_buffers(pa.string(), len(halves) - 1, [only_second, pa.py_buffer(halves), data]), pattern
    )
    valid = pa.array(np.asarray(found.is_valid())[1::2])
    return valid, [_where(valid, _second(found.field(i))) for i in range(count)]


def _second(texts: pa.Array) -> pa.Array:
    """Return each second of some texts; the others are empty."""
    ends = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1 : 2]
    buffers = [None, pa.py_buffer(np.ascontiguousarray(ends)), texts.buffers()[2]]
    return pa.Array.from_buffers(pa.string(), len(ends) - 1, buffers)


def _where(valid: pa.Array, group: pa.Array) -> pa.Array:
    if pc.all(valid).as_py() and not group.null_count:
        return group
    return pc.if_else(valid, group, pa.scalar(None, pa.string()))
