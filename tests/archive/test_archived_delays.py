"""Side files in a backup: each is written once, and read as it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from spillable_stream import Channel, CorruptionError
from spillable_stream.archive.archived_delays import DelayedCopies, read_delays
from spillable_stream.archive.manifest import ArchivedFile, Manifest
from spillable_stream.objects.directory_store import DirectoryStore
from tests.support.delays import deliveries_of, put_late

Open = Callable[..., Channel]
STATE = ArchivedFile("states/1-a", 1, 1)
MANIFEST = Manifest(1, "uuid", "/c", "2026-01-31T00:00:00+00:00", "0700", 9, STATE, (), None)


def test_what_is_copied_is_read_and_not_copied_again(open_channel: Open, path: Path, tmp_path: Path) -> None:
    channel, store = open_channel(), DirectoryStore(tmp_path / "copy")
    put_late(channel, 10_000, b"a")
    put_late(channel, 1_000_000, b"b")
    files, waiting = deliveries_of(channel).files, list(channel.engine().state.delays.files.values())
    copies = DelayedCopies(store, "first", ())
    for file in (*waiting, *waiting):
        copies.copy(files, file)
    found = copies.of(waiting)
    assert [file.key for file in found] == [f"delays/{f.number:020}-{f.end:020}-first" for f in waiting]
    assert copies.written == list(found)
    data = [(path / "data" / f"delayed-{f.number:06}").read_bytes() for f in waiting]
    manifest = replace(MANIFEST, delays=found)
    assert list(read_delays(store, manifest, waiting)) == list(zip(waiting, data, strict=True))
    later = DelayedCopies(store, "second", found)
    for file in waiting:
        later.copy(files, file)
    assert (later.of(waiting), later.written) == (found, [])


def test_other_bytes_of_the_same_length_are_copied(open_channel: Open, tmp_path: Path) -> None:
    """As another continuation of the channel may have them."""
    channel, store = open_channel(), DirectoryStore(tmp_path / "copy")
    put_late(channel, 10_000, b"a")
    (file,) = channel.engine().state.delays.files.values()
    copies = DelayedCopies(store, "first", ())
    copies.copy(deliveries_of(channel).files, file)
    (found,) = copies.of([file])
    later = DelayedCopies(store, "second", [replace(found, crc=found.crc ^ 1)])
    later.copy(deliveries_of(channel).files, file)
    assert [written.key for written in later.written] == [found.key.replace("first", "second")]


def test_a_side_file_that_the_manifest_lacks_is_damage(open_channel: Open, tmp_path: Path) -> None:
    channel = open_channel()
    put_late(channel, 10_000, b"a")
    waiting = channel.engine().state.delays.files.values()
    with pytest.raises(CorruptionError, match="the delayed events of the backup are not there"):
        list(read_delays(DirectoryStore(tmp_path / "copy"), MANIFEST, waiting))
