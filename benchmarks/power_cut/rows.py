"""The rows of the table: which products, in which modes."""

from __future__ import annotations

from typing import Any

from benchmarks.peers.rows import POWER_CUT, Row, missing
from benchmarks.power_cut.ours import PlainFile, Spillable

__all__ = ["ROWS", "Row", "missing"]


def _spillable(name: str, mode: str, **options: Any) -> Row:
    return Row(f"spillable_stream-{name}", "spillable_stream", mode, Spillable, options)


def _file(name: str, mode: str, synced: bool) -> Row:
    return Row(f"file-{name}", "a plain file", mode, PlainFile, {"synced": synced})


ROWS = (
    _spillable("disk", "default, and safest: on disk"),
    _spillable(
        "memory",
        "`memory_capacity=10_000`, another promise: outlives processes, not the host, and names what is lost",
        memory_capacity=10_000,
    ),
    *POWER_CUT,
    _file("unsynced", "`write` alone: what is lost if nobody syncs", synced=False),
    _file("synced", "`write` and `fdatasync`: what the file system keeps", synced=True),
)
