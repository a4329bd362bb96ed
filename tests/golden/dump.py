"""Everything that a channel says, as plain values."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from spillable_stream import Channel
from spillable_stream.channel.stats import ChannelStats


def dump(path: Path) -> dict[str, Any]:
    """Return what the channel at ``path`` holds; a copy is opened, nothing at ``path`` changes."""
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory) / "channel"
        shutil.copytree(path, copy)
        with Channel(copy, create=False, checkpoint_on_close=False) as channel:
            return _contents(channel)


def _contents(channel: Channel) -> dict[str, Any]:
    stats = channel.stats()
    groups = {}
    for name in sorted([*stats.groups, "new"]):
        with channel.take_transaction(name) as tx:
            table = tx.take_batch(10_000)
            rows = table.to_pylist() if table is not None else []
            groups[name] = {
                "position": stats.groups[name].position if name in stats.groups else None,
                "events": [{k: _plain(v) for k, v in row.items()} for row in rows],
            }
            tx.rollback()
    return {
        "channel": channel.uuid,
        "schema": channel.schema.to_string(),
        "options": {k: v for k, v in channel.options.items() if k != "checkpoint_on_close"},
        "first": stats.first_id,
        "last": stats.last_id,
        "stored": stats.channel_size,
        "sinks": dict(stats.sinks),
        "groups": groups,
        **_kept(stats),
        **_expired(stats),
    }


def _kept(stats: ChannelStats) -> dict[str, Any]:
    """Return what is kept, and what groups missed of it; {} for a channel that keeps nothing."""
    if not stats.kept.events:
        return {}
    expired = {name: [list(r) for r in group.expired] for name, group in stats.groups.items()}
    automatic = [name for name, group in stats.groups.items() if group.is_automatic]
    return {"kept": [stats.kept.first_id, stats.kept.events], "expired": expired, "automatic": automatic}


def _expired(stats: ChannelStats) -> dict[str, Any]:
    """Return how many expired events groups have passed over; {} for a channel where none has."""
    expired = {name: group.expired_events for name, group in stats.groups.items() if group.expired_events}
    return {"expired_events": expired} if expired else {}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return f"{value[:40].hex()} ({len(value)} bytes)"
    return json.loads(json.dumps(value, default=str))
