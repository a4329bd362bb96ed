"""When delayed events are due: the payload of a DUES frame, and the stretches of time that side files are for.

A DUES frame comes right before each PUT frame of a side file. Its payload has, in milliseconds since 1970, one signed
64-bit integer for each event, or a single one where all events of the frame are due at once. Where events of several
puts were copied together, as many integers follow, which say in which put each of them was. In a spool, whose events
are shipped to where they wait, the PUT frame itself has them, one for each event.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence

from spillable_stream.counted import counted
from spillable_stream.errors import CorruptionError
from spillable_stream.format.frame import Frame, FrameType

__all__ = ["dues_frame", "pack_dues", "parse_dues", "parse_puts", "stretch_of"]

_LEAST_WIDTH_BITS = 16  # 65 s
_PARTS = 4  # a stretch is at most this part of the time until then


def dues_frame(dues_ms: Sequence[int], puts: Sequence[int] = ()) -> Frame:
    """Return the frame that says when the events of the next frame are due.

    Args:
        dues_ms: of each event, in milliseconds since 1970; ascending, at least one.
        puts: of each event the number of its put; none if all of the side file is of one put.
    """
    is_one = dues_ms[0] == dues_ms[-1] and not puts
    return Frame.of(FrameType.DUES, pack_dues(dues_ms[:1] if is_one else dues_ms) + pack_dues(puts), len(dues_ms))


def pack_dues(values: Sequence[int]) -> bytes:
    """Return the bytes of due times, or of the numbers of puts.

    Args:
        values: the times, in milliseconds since 1970, or the numbers.
    """
    packed = array("q", values)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def parse_dues(payload: bytes, count: int) -> array[int]:
    """Return when events are due, in milliseconds since 1970.

    Args:
        payload: the payload of a DUES frame, or what a PUT frame has of them.
        count: how many events it is about.

    Raises:
        CorruptionError: it is about another number of events.
    """
    if len(payload) not in (8, 8 * count, 16 * count):
        raise CorruptionError(
            f"a DUES frame of {counted(len(payload), 'byte')} does not have the times of {counted(count, 'event')}"
        )
    values = _integers(payload)
    return values * count if len(payload) == 8 else values[:count]


def parse_puts(payload: bytes, count: int) -> array[int]:
    """Return the number of each event's put; empty if the frame does not say it.

    Args:
        payload: the payload of a DUES frame.
        count: how many events it is about.
    """
    return _integers(payload)[count:] if len(payload) == 16 * count else array("q")


def _integers(payload: bytes) -> array[int]:
    values = array("q", payload)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def stretch_of(due_ms: int, now_ms: int) -> tuple[int, int]:
    """Return the stretch of time that an event belongs to: its begin and its width, in milliseconds.

    The later an event is due, the wider is its stretch, so there are few of them at any moment, up to any time.
    """
    width_ms = 1 << max(_LEAST_WIDTH_BITS, (max(0, due_ms - now_ms) // _PARTS).bit_length() - 1)
    return due_ms - due_ms % width_ms, width_ms
