"""A clock that is late when it is told, so that no test depends on how fast threads are."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import ModuleType

import pytest

__all__ = ["told_clock"]


class _Time:
    """What stands for the module `time`."""

    sleep = staticmethod(time.sleep)

    def __init__(self, is_late: Callable[[], bool]) -> None:
        self._is_late = is_late

    def monotonic(self) -> float:
        return 1e9 if self._is_late() else 0.0


def told_clock(monkeypatch: pytest.MonkeyPatch, module: ModuleType, is_late: Callable[[], bool]) -> None:
    """Let no time pass for a module, until what is asked says that all of it has passed.

    Args:
        monkeypatch: what undoes it.
        module: the module, which imports `time`.
        is_late: tells whether the time is over; it is asked at each look at the clock.
    """
    monkeypatch.setattr(module, "time", _Time(is_late))
