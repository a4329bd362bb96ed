"""Files of events in a backup."""

from __future__ import annotations

from pathlib import Path

import pytest

from spillable_stream import CorruptionError
from spillable_stream.archive import archived_events
from spillable_stream.archive.archived_events import EventFileWriter, check_file, read_events, read_file, write_file
from spillable_stream.archive.manifest import ArchivedFile
from spillable_stream.format.frame import Frame, FrameType
from spillable_stream.objects.directory_store import DirectoryStore


def written(store: DirectoryStore, sizes: list[int]) -> ArchivedFile:
    writer = EventFileWriter(store, "uuid", "events/1-x")
    for i, size in enumerate(sizes):
        frame = Frame.of(FrameType.PUT, bytes([i]) * size, count=2)
        writer.write(frame.header(5, 10 + 2 * i, 7), frame.payload)
    return writer.finish()


@pytest.mark.parametrize("window_bytes", [1, 50, 100, 1 << 20])
def test_frames_come_back_however_they_are_read(
    tmp_path: Path, window_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archived_events, "_READ_BYTES", window_bytes)
    store = DirectoryStore(tmp_path)
    file = written(store, [1, 100, 8, 1000])
    assert (file.first_id, file.last_id) == (10, 17)
    check_file(store, file)
    found = [(h.write_order_id, h.transaction_id, h.time_us, bytes(p)) for h, p in read_events(store, "uuid", file)]
    assert found == [(10 + 2 * i, 5, 7, bytes([i]) * n) for i, n in enumerate([1, 100, 8, 1000])]


def test_a_whole_file_comes_back_as_it_was(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    file = write_file(store, "states/1-x", b"as it was")
    assert (file.key, file.size_bytes, file.first_id) == ("states/1-x", 9, 0)
    assert read_file(store, file) == b"as it was"
    (tmp_path / "states" / "1-x").write_bytes(b"as it wa5")
    with pytest.raises(CorruptionError, match="not what was written"):
        read_file(store, file)


def test_every_flipped_byte_every_cut_and_another_channels_file_is_found(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    file = written(store, [20])
    path = tmp_path / file.key
    whole = path.read_bytes()
    changed = [whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :] for i in range(len(whole))]
    for data in [*changed, whole[:-8], b""]:
        path.write_bytes(data)
        with pytest.raises(CorruptionError):
            list(read_events(store, "uuid", file))
        with pytest.raises(CorruptionError, match="not what was written, right after it was written: check its disk"):
            check_file(store, file)
    path.unlink()
    with pytest.raises(CorruptionError, match="is gone, right after it was written: check its disk"):
        check_file(store, file)
    path.write_bytes(whole)
    with pytest.raises(CorruptionError, match="a frame of the backup is damaged"):
        list(read_events(store, "another", file))


def test_a_file_that_is_discarded_is_not_there(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    EventFileWriter(store, "uuid", "events/1-x").discard()
    assert list(store.list("")) == []
