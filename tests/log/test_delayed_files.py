"""Side files: what is written is read, damage is found, and what nobody needs is removed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import Channel, CorruptionError, DataLossError, Event, StorageError
from spillable_stream.format.file_names import delayed_name, parse_delayed
from spillable_stream.format.frame import HEADER_SIZE_BYTES
from spillable_stream.log import delayed_files
from spillable_stream.log.delayed_files import DelayedFiles
from spillable_stream.state.delays import DelayedFile
from tests.support.delays import clock_of, deliveries_of, put_late

Open = Callable[..., Channel]


@pytest.fixture
def channel(open_channel: Open) -> Channel:
    """A channel with five events that wait, in two transactions, and in one side file."""
    channel = open_channel()
    clock_of(channel).begin_stretch(10_000)
    put_late(channel, 10_000, b"a", b"b", b"c")
    put_late(channel, 10_001, b"d", b"e")
    return channel


def the_file(channel: Channel) -> tuple[DelayedFiles, DelayedFile]:
    (file,) = channel.engine().state.delays.files.values()
    return deliveries_of(channel).files, file


@pytest.mark.parametrize("name", ["delayed-1", "delayed-0000001", "delayed-000000", "delayed-000001.tmp", "log-000001"])
def test_other_names_are_not_a_side_file_s(name: str) -> None:
    assert parse_delayed(name) is None
    assert parse_delayed(delayed_name(7)) == 7


@pytest.mark.parametrize("verify", [False, True])
def test_frames_are_read_with_their_due_times(channel: Channel, verify: bool) -> None:
    files, file = the_file(channel)
    found = list(files.frames(file, verify=verify))
    assert [len(frame.dues) for frame in found] == [3, 2]
    assert [max(frame.dues) - min(frame.dues) for frame in found] == [0, 0]
    assert [header.count for header, _ in files.puts(file, [frame.offset for frame in found])] == [3, 2]


def test_a_frame_with_a_ttl_is_read_where_a_window_ends_behind_its_header(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel()
    clock_of(channel).begin_stretch(10_000)
    for body in (b"a", b"b"):
        with channel.put_transaction() as tx:
            tx.put(Event(body), ttl=7, deliver_after=10_000)
    files, file = the_file(channel)
    first, second = [frame.offset for frame in files.frames(file)]
    monkeypatch.setattr(delayed_files, "_WINDOW_BYTES", second + HEADER_SIZE_BYTES - first)
    assert [header.ttl_us for header, _ in files.puts(file, [first, second])] == [7_000_000] * 2


def test_a_hole_is_passed_over(channel: Channel) -> None:
    files, file = the_file(channel)
    _, second = files.frames(file)
    begin = next(iter(files.frames(file))).offset
    header_end = begin - 56
    holed = file._replace(holes=((header_end, second.offset - 56),))
    assert [frame.offset for frame in files.frames(holed)] == [second.offset]


@pytest.mark.parametrize("is_another", [False, True])
def test_a_file_is_made_of_what_counts_of_another_one(
    channel: Channel, path: Path, tmp_path: Path, is_another: bool
) -> None:
    files, file = the_file(channel)
    side_file = path / "data" / delayed_name(file.number)
    whole = side_file.read_bytes()
    with side_file.open("ab") as appended:
        appended.write(b"left by a crash")
    content = files.content(file)
    assert content == whole
    found = list(files.frames(file))
    if not is_another:
        side_file.unlink()
        files.create(content, file, channel.uuid)
        assert side_file.read_bytes() == whole
        return
    with Channel(tmp_path / "other") as other:
        made = deliveries_of(other).files
        made.create(content, file, channel.uuid)
        assert made.content(file) != content
        assert list(made.frames(file, verify=True)) == found
        offsets = [frame.offset for frame in found]
        assert list(made.puts(file, offsets)) == list(files.puts(file, offsets))
        with pytest.raises(StorageError):
            made.create(content, file, channel.uuid)


def test_damage_is_named(channel: Channel, path: Path) -> None:
    files, file = the_file(channel)
    first, _ = files.frames(file)
    side_file = path / "data" / delayed_name(file.number)
    data = bytearray(side_file.read_bytes())
    data[first.offset + 100] ^= 1
    side_file.write_bytes(data)
    with pytest.raises(CorruptionError, match="delayed events is damaged"):
        files.content(file)
    with pytest.raises(CorruptionError) as caught:
        list(files.puts(file, [first.offset]))
    assert (caught.value.path, caught.value.offset) == (str(side_file), first.offset)
    side_file.unlink()
    with pytest.raises(DataLossError, match="the file was removed"):
        list(files.frames(file))


def test_a_file_of_another_channel_does_not_count(channel: Channel, tmp_path: Path, path: Path) -> None:
    with Channel(tmp_path / "other") as other:
        put_late(other, 10_000, b"x")
        data = next((tmp_path / "other" / "data").glob("delayed-*")).read_bytes()
    files, file = the_file(channel)
    (path / "data" / delayed_name(file.number)).write_bytes(data)
    with pytest.raises(CorruptionError):
        list(files.frames(file))


def test_side_files_are_spread_over_the_data_directories(open_channel: Open, tmp_path: Path) -> None:
    directories = [tmp_path / "one", tmp_path / "two"]
    channel = open_channel(data_dirs=directories)
    for days in range(1, 5):
        put_late(channel, 86_400 * 4**days / 10, b"x")
    assert [len(list(d.glob("delayed-*"))) for d in directories] == [2, 2]
    engine = channel.engine()
    assert engine.layout.delayed_files(engine.fs) == [1, 2, 3, 4]  # type: ignore[attr-defined]
