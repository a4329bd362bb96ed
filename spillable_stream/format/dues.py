"""When delayed events are due: the payload of a DUES frame, and the stretches of time that side files are for.

A DUES frame comes right before each PUT frame of a side file. Its payload has, in milliseconds since 1970, one signed
64-bit integer for each event, or a single one where all events of the frame are due at once. In a spool, whose events
are shipped to where they wait, the PUT frame itself has them, one for each event.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence

from spillable_stream.errors import CorruptionError
from spillable_stream.format.frame import Frame, FrameType

__all__ = ["dues_frame", "pack_dues", "parse_dues", "stretch_of"]

_LEAST_WIDTH_BITS = 16  # 65 s
_PARTS = 4  # a stretch is at most this part of the time until then


def dues_frame(dues: Sequence[int]) -> Frame:
    """Return the frame that says when the events of the next frame are due.

    Args:
        dues: of each event, in milliseconds since 1970; ascending, at least one.
    """
    return Frame.of(FrameType.DUES, pack_dues(dues[:1] if dues[0] == dues[-1] else dues), len(dues))


def pack_dues(dues: Sequence[int]) -> bytes:
    """Return the bytes of due times.

    Args:
        dues: the times, in milliseconds since 1970.
    """
    values = array("q", dues)
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


def parse_dues(payload: bytes, count: int) -> array[int]:
    """Return when events are due, in milliseconds since 1970.

    Args:
        payload: the payload of a DUES frame, or what a PUT frame has of them.
        count: how many events it is about.

    Raises:
        CorruptionError: it is about another number of events.
    """
    if len(payload) not in (8, 8 * count):
        raise CorruptionError(f"a DUES frame of {len(payload)} bytes does not have the times of {count} events")
    values = array("q", payload)
    if sys.byteorder == "big":
        values.byteswap()
    return values if len(values) == count else values * count


def stretch_of(due_ms: int, now_ms: int) -> tuple[int, int]:
    """Return the stretch of time that an event belongs to: its begin and its width, in milliseconds.

    The later an event is due, the wider is its stretch, so there are few of them at any moment, up to any time.
    """
    width_ms = 1 << max(_LEAST_WIDTH_BITS, (max(0, due_ms - now_ms) // _PARTS).bit_length() - 1)
    return due_ms - due_ms % width_ms, width_ms
