"""Making a channel: what a crash in the middle leaves, and what then is durable."""

from __future__ import annotations

from pathlib import Path

import pytest

from spillable_stream import Channel, Event, StorageError
from tests.fakes import FaultyFileSystem, nth


def test_directories_that_a_killed_creation_left_unsynced_are_synced(tmp_path: Path) -> None:
    """Else a power cut takes the channel away, with all that was acknowledged since."""
    (tmp_path / "above" / "channel" / "data").mkdir(parents=True)
    fs = FaultyFileSystem()
    with Channel(tmp_path / "above" / "channel", fs=fs, minimum_required_space=0):
        pass
    assert fs.count("sync_directory", tmp_path.name) >= 1  # holds the name of `above`
    assert fs.count("sync_directory", "above") >= 1
    assert fs.count("sync_directory", "channel") >= 1


def test_what_a_failed_creation_did_not_sync_is_synced_before_anything_is_acknowledged(tmp_path: Path) -> None:
    made = False
    for number in range(1, 20):
        path, fs = tmp_path / str(number) / "channel", FaultyFileSystem()
        with fs.failing(nth("sync_directory", number, "channel")), pytest.raises(StorageError):
            Channel(path, fs=fs, minimum_required_space=0)
        made = (path / "channel.json").exists()
        synced = {c.file for c in fs.calls[:-1] if c.name == "sync_directory"}
        fs = FaultyFileSystem()
        with Channel(path, fs=fs, minimum_required_space=0) as channel, channel.put_transaction() as tx:
            tx.put(Event(b"one"))
            again = {c.file for c in fs.calls if c.name == "sync_directory"}
            assert "channel" in again and str(number) in synced | again
        if made:
            break
    assert made, "the last sync of a creation is the identity's"
