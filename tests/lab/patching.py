"""Putting something else in the place of one of the package's functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

__all__ = ["Patch", "patch"]

Patch = Any


def patch(owner: Any, name: str, make: Callable[[Any], Any]) -> Patch:
    """Return a patch that puts what ``make`` makes of a function in its place."""
    return mock.patch.object(owner, name, make(getattr(owner, name)))
