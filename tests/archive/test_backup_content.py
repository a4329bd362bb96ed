from __future__ import annotations

from pathlib import Path

import pytest

import spillable_stream as ss
from spillable_stream import Channel
from spillable_stream.archive.backup import archive_location
from spillable_stream.archive.backup_content import BackupContent
from spillable_stream.archive.manifest import newest_manifest
from spillable_stream.objects.open_store import open_store
from spillable_stream.progress import UNTOLD
from spillable_stream.state.channel_state import ChannelState
from tests.support.events import put, take


def content_of(channel: Channel, copy: Path) -> BackupContent:
    ss.backup(channel, copy)
    store = open_store(archive_location(copy))
    manifest = newest_manifest(store)
    assert manifest is not None
    return BackupContent(store, manifest, str(copy))


@pytest.mark.parametrize("in_store", [False, True])
def test_a_channel_keeps_the_options_that_its_new_place_has(path: Path, tmp_path: Path, in_store: bool) -> None:
    with Channel(path, minimum_required_space=7, memory_capacity=1000, transaction_capacity=50) as channel:
        put(channel, b"in memory")
        options = content_of(channel, tmp_path / "copy").state(in_store=in_store).options
    assert (options.transaction_capacity, options.memory_capacity) == (50, 0 if in_store else 1000)
    assert (options.minimum_required_space == 7) is not in_store


@pytest.mark.parametrize("in_store", [False, True])
def test_nothing_is_in_memory_and_nobody_owns_a_group(tmp_path: Path, in_store: bool) -> None:
    with Channel(f"object+file://{tmp_path}/o", gc_delay=1) as channel:
        put(channel, b"a", b"b")
        consumer = channel.consumer("g")
        state = content_of(channel, tmp_path / "copy").state(in_store=in_store)
        consumer.close()
    assert not state.memory.open and not state.owners and not len(state.blocks) and state.last_id == 2
    assert (state.options.image().get("gc_delay") == 1) is in_store


def test_each_restore_has_a_mark_of_its_own_behind_the_events_of_the_backup(path: Path, tmp_path: Path) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, b"a", b"b")
        content = content_of(channel, tmp_path / "copy")
    first, second = (content.state(in_store=in_store) for in_store in (False, True))
    assert [restore.last_id for restore in first.restores] == [2]
    assert first.restore_before(2) == second.restore_before(2) == ""
    assert "" != first.restore_before(3) != second.restore_before(3) != ""
    assert first.recovery_before(1) != "" == second.recovery_before(1), "a log in a store has no recoveries"


def test_events_that_nobody_needs_any_more_are_left_out(path: Path, tmp_path: Path) -> None:
    def ids(content: BackupContent, state: ChannelState) -> list[int]:
        return [header.write_order_id for header, _ in content.frames(state, UNTOLD)]

    with Channel(path, minimum_required_space=0) as channel:
        put(channel, b"a")
        put(channel, b"b")
        ss.backup(channel, tmp_path / "copy")
        take(channel, 1)
        content = content_of(channel, tmp_path / "copy")
    assert ids(content, content.state(in_store=False)) == [2]
