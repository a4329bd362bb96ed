"""What flows keep beside events must be read for ever: the notes of sources and sinks, and the positions of files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from spillable_stream import Channel, Event
from spillable_stream.errors import CorruptionError
from spillable_stream.flow.processor import ChannelProcessor
from spillable_stream.flow.sinks.written import Note, NoteFile
from spillable_stream.flow.slot_file import newest_value
from spillable_stream.flow.sources.base import Noted
from spillable_stream.flow.sources.position_file import FilePosition, PositionFile, SavedPositions
from spillable_stream.flow.sources.tail_note import Span, read_note
from spillable_stream.flow.sources.tailed_file import Mark
from tests.golden.make import NOTES

NOTED = Path(__file__).parent / "v1" / "noted"
MARK = Mark(1001, 14, 7, 3735928559, 7, 4294967294)
TAIL_NOTE = bytes.fromhex(
    "84a6736f75726365a77461696c646972a46261736501a5626174636895cd03e9070eb42f7661722f6c6f672f6772c3b6c39f652e6c6f67a167"
    "a6706c616365739197b42f7661722f6c6f672f6772c3b6c39f652e6c6f67cd03e90e07cedeadbeef07cefffffffe"
)
PROCESSOR_NOTE = bytes.fromhex("82a5706172747381a2633101a46e6f7465c467") + TAIL_NOTE
MARKS = (
    b'{"version": 1, "number": 2, "flume": [4022062096], "files": [{"file": "/var/log/a.log", "inode": 1001, '
    b'"position": 14, "head_bytes": 7, "head": 3735928559, "tail_bytes": 7, "tail": 4294967294}]}'
)
FILES = {"/out/f.1.tmp": 20, "/out/f.2.tmp": -1}
SINK_NOTE = (
    b'{"version": 1, "channel": "%s", "files": {"/out/f.1.tmp": 20, "/out/f.2.tmp": -1}, "ranges": [[1, 5], [7, 7]], '
    b'"closing": "/out/f.3", "closing_ranges": [[8, 9]]}'
)


@pytest.fixture
def channel(tmp_path: Path) -> Path:
    shutil.copytree(NOTED, tmp_path / "channel")
    return tmp_path / "channel"


def test_the_notes_of_a_processor_and_of_taildir_are_byte_for_byte_what_they_were() -> None:
    assert NOTES[2] == TAIL_NOTE
    place = FilePosition("/var/log/größe.log", MARK)
    assert read_note(TAIL_NOTE) == (Span(1001, 7, 14, "/var/log/größe.log", "g"), {1001: place})


@pytest.mark.parametrize("from_log_alone", [False, True])
def test_a_golden_channel_has_the_newest_note_and_continues_after_it(channel: Path, from_log_alone: bool) -> None:
    if from_log_alone:
        shutil.rmtree(channel / "checkpoint")
    with Channel(channel, create=False, minimum_required_space=0) as opened:
        assert opened.last_batch("a1.r1").note == PROCESSOR_NOTE
        with ChannelProcessor({"c1": opened}, producer="a1.r1") as processor:
            assert processor.newest() == Noted(2, TAIL_NOTE, True)
            assert processor.process([Event(b"line 2")], number=2).stored == {"c1": 1}
            assert opened.stats().last_id == 2
            processor.process([Event(b"line 3")], number=3)
            assert opened.stats().last_id == 3


def test_the_newest_note_of_a_checkpoint_alone_is_there(channel: Path) -> None:
    """The second batch was lost with the end of the log."""
    log = channel / "data" / "log-000001"
    (checkpoint,) = (channel / "checkpoint").iterdir()
    log.write_bytes(log.read_bytes()[: int(checkpoint.name.rpartition("-")[2])])
    with Channel(channel, create=False) as opened, ChannelProcessor({"c1": opened}, producer="a1.r1") as processor:
        assert processor.newest() == Noted(1, NOTES[1], True)


def test_positions_of_files_are_byte_for_byte_what_they_were(tmp_path: Path) -> None:
    positions = SavedPositions({1001: FilePosition("/var/log/a.log", MARK)}, 2)
    file = PositionFile(tmp_path / "positions.json")
    file.write(positions)
    assert file.marks.read_bytes() == MARKS + b"\n"  # since positions are added behind it
    assert file.path.read_bytes() == b'[{"inode": 1001, "pos": 14, "file": "/var/log/a.log"}]'
    assert file.read() == positions
    file.close()
    file.marks.write_bytes(MARKS)
    assert file.read() == positions


def test_the_note_of_a_sink_is_byte_for_byte_what_it_was(channel: Path, tmp_path: Path) -> None:
    with Channel(channel, create=False) as opened:
        note = Note(opened.uuid, FILES, ((1, 5), (7, 7)), "/out/f.3", ((8, 9),))
        file = NoteFile(tmp_path, "a1.k1")
        file.write(note)
        file.close()
        data = (tmp_path / ".spillable-a1.k1.note").read_bytes()
        assert newest_value(data) == SINK_NOTE % opened.uuid.encode()
        assert file.read(opened) == note


def test_the_note_of_a_sink_of_an_earlier_version_is_moved(channel: Path, tmp_path: Path) -> None:
    """One that is there was written last: this version leaves none."""
    earlier = tmp_path / ".spillable-a1.k1.json"
    with Channel(channel, create=False) as opened:
        for before in (None, Note(opened.uuid, {"/out/f.1": 7}, ((1, 2),))):
            file = NoteFile(tmp_path, "a1.k1")
            if before is not None:
                file.write(before)
                file.close()
            earlier.write_bytes(SINK_NOTE % opened.uuid.encode())
            expected = Note(opened.uuid, FILES, ((1, 5), (7, 7)), "/out/f.3", ((8, 9),))
            assert file.read(opened) == expected
            assert not earlier.exists()
            assert file.read(opened) == expected


def test_a_damaged_note_of_an_earlier_version_leaves_both(channel: Path, tmp_path: Path) -> None:
    earlier = tmp_path / ".spillable-a1.k1.json"
    with Channel(channel, create=False) as opened:
        file, note = NoteFile(tmp_path, "a1.k1"), Note(opened.uuid, {"/out/f.1": 7}, ((1, 2),))
        file.write(note)
        file.close()
        earlier.write_bytes(b"{")
        with pytest.raises(CorruptionError, match=f"damaged .*Move it away.*{earlier}"):
            file.read(opened)
        earlier.unlink()
        assert file.read(opened) == note
