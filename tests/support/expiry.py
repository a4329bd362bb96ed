"""A clock by which events expire, set by a test."""

from __future__ import annotations

import time

import pytest

__all__ = ["WallClock"]


class WallClock:
    """The wall clock of this process, which a test sets: puts are stamped by it, and expiry is judged by it.

    Args:
        monkeypatch: puts the real one back.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = time.time_ns()
        monkeypatch.setattr(time, "time_ns", lambda: self.now_ns)

    def pass_by(self, seconds: float) -> None:
        """Let time pass; with a negative number, set the clock back."""
        self.now_ns += round(seconds * 1e9)
