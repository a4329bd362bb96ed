"""What a backup has, as a channel that is restored from it tells."""

from __future__ import annotations

import shutil
from pathlib import Path

import spillable_stream as ss
from spillable_stream import Channel

__all__ = ["contents"]


def contents(copy: Path, to: Path, group: str) -> tuple[int, dict[int, bytes]]:
    """Restore a backup as a second channel and return its last ID and what a group has yet to take."""
    report = ss.restore(copy, to, new_identity=True)
    assert ss.verify(to).healthy
    with Channel(to, create=False, minimum_required_space=0) as channel:
        assert channel.stats().last_id == report.last_id
        found: dict[int, bytes] = {}
        for batch in channel.read(group=group):
            found |= dict(
                zip(batch.column("write_order_id").to_pylist(), batch.column("body").to_pylist(), strict=True)
            )
        assert channel.stats().groups[group].lag == len(found)
    shutil.rmtree(to)
    return report.last_id, found
