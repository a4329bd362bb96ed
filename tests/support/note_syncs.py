"""Disks that refuse to sync the notes of sinks, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

__all__ = ["fail_syncs_of_notes"]


def fail_syncs_of_notes(patch: pytest.MonkeyPatch, is_refused: Callable[[], bool]) -> None:
    """Have each sync of a sink's note fail for which ``is_refused`` says so; its bytes are in the file all the same."""
    for name in ("fsync", "fdatasync"):
        real = getattr(os, name)

        def syncs(descriptor: int, real: Callable[[int], None] = real) -> None:
            is_note = os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")).startswith(".spillable-")
            if is_note and is_refused():
                raise OSError(5, "Input/output error")
            real(descriptor)

        patch.setattr(os, name, syncs)
