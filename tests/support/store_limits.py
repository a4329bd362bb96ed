"""By which limits handles of channels in object stores copy, trim, and take groups over."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import pytest

from spillable_stream.engine.store import object_checkpointing, object_delay_merging, object_merging, object_owners

__all__ = ["AT_ONCE", "SetLimits", "limited", "set_limits"]

_CONSTANTS = {
    "worth_a_trim": (object_checkpointing, "_WORTH_A_TRIM"),
    "many_slots": (object_merging, "_MANY_SLOTS"),
    "quiet_seconds": (object_merging, "_QUIET_SECONDS"),
    "many_puts": (object_delay_merging, "_MANY_PUTS"),
    "many_of_a_stretch": (object_delay_merging, "_MANY_OF_A_STRETCH"),
    "soon_ms": (object_delay_merging, "_SOON_MS"),
    "answer_seconds": (object_owners, "ANSWER_SECONDS"),
}

AT_ONCE: dict[str, float] = {
    "worth_a_trim": 1,
    "many_slots": 2,
    "quiet_seconds": 0,
    "many_puts": 2,
    "many_of_a_stretch": 2,
    "soon_ms": 0,
    "answer_seconds": 0,
}
"""Limits by which handles copy, trim and collect whatever there is, and wait for no owner."""

_mutex = threading.RLock()  # of two threads that changed them, one would restore what the other had set


class SetLimits(Protocol):
    """Lets all handles of this process act by other limits until the test ends."""

    def __call__(self, **limits: float) -> None: ...


def set_limits(patch: pytest.MonkeyPatch, **limits: float) -> None:
    """Let all handles of this process act by other limits.

    Args:
        patch: undoes it.
        limits: the limits, by the names of `AT_ONCE`.
    """
    for name, value in limits.items():
        patch.setattr(*_CONSTANTS[name], value)


@contextmanager
def limited(**limits: float) -> Iterator[None]:
    """Let all handles of this process act by other limits in the block; one thread at a time.

    Args:
        limits: the limits, by the names of `AT_ONCE`.
    """
    with _mutex, pytest.MonkeyPatch.context() as patch:
        set_limits(patch, **limits)
        yield
