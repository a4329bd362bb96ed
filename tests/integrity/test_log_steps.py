"""What the logs of a damaged channel say, in order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import Channel
from spillable_stream.format.frame import FrameType
from spillable_stream.integrity.findings import Findings
from spillable_stream.integrity.inventory import take_inventory
from spillable_stream.integrity.log_steps import ExactImage, LogSteps, MissingFiles, Step
from spillable_stream.log.frames import Damage, LocatedFrame
from spillable_stream.log.identity_file import read_identity
from spillable_stream.log.wal import Position
from spillable_stream.storage.filesystem import FileSystem
from tests.support.channels import three_puts
from tests.support.damage import flip, kill, log_file, offsets
from tests.support.events import put

FS = FileSystem()
Open = Callable[..., Channel]


def log_steps(path: Path) -> LogSteps:
    return LogSteps(FS, take_inventory(FS, read_identity(FS, path), Findings()))


def told(step: Step) -> str:
    """Return a step in few words."""
    what = step.what
    if isinstance(what, LocatedFrame):
        return what.header.type.name + ("?" if step.fault else "")
    return {Damage: "damage", ExactImage: "image", MissingFiles: "gap"}[type(what)]


def since(path: Path, disk: Position = Position(1, 0), memory: Position | None = None) -> list[str]:  # noqa: B008
    return [told(step) for step in log_steps(path).since(disk, memory)]


@pytest.fixture
def files(path: Path) -> Path:
    """Create a channel of three data files with a put each, and return its path."""
    options = {"minimum_required_space": 0, "checkpoint_on_close": False, "max_file_size": 1000}
    with Channel(path, **options) as channel:
        for i in range(3):
            put(channel, b"%d" % i * 800)
    (path / "head").unlink()
    for file in (path / "checkpoint").glob("checkpoint-*"):
        file.unlink()
    return path


def test_a_file_is_there_if_the_disk_has_it(files: Path) -> None:
    steps = log_steps(files)
    assert [steps.is_there(number) for number in (1, 3, 4)] == [True, True, False]


def test_every_file_begins_with_an_exact_image_and_then_come_its_frames(files: Path) -> None:
    steps = log_steps(files)
    found = list(steps.since(Position(1, 0)))
    assert [told(s) for s in found if s.file.file_id == 2] == ["image", "FILE_HEADER", "PUT", "COMMIT"]
    assert sorted({s.file.file_id for s in found}) == [1, 2, 3] == sorted(steps.walked)
    assert steps.frames == sum(isinstance(s.what, LocatedFrame) for s in found)
    assert steps.read_bytes == sum(s.what.end - s.what.offset for s in found if isinstance(s.what, LocatedFrame))


def test_steps_begin_where_they_are_wanted(files: Path) -> None:
    begin = offsets(files, FrameType.PUT, 2)[0]
    steps = log_steps(files)
    found = list(steps.since(Position(2, begin)))
    assert [told(s) for s in found] == ["PUT", "COMMIT", "image", "FILE_HEADER", "PUT", "COMMIT"]
    assert steps.walked == {3}, "of the other a part was not read"


def test_a_missing_file_is_a_gap_before_the_next_one(files: Path) -> None:
    log_file(files, 2).unlink()
    found = list(log_steps(files).since(Position(1, 0)))
    at = [told(s) for s in found].index("gap")
    assert (found[at].file.file_id, told(found[at + 1])) == (3, "image")
    assert [told(s) for s in found].count("gap") == 1


def test_a_missing_first_file_is_a_gap(files: Path) -> None:
    log_file(files, 1).unlink()
    assert since(files)[:2] == ["gap", "image"]


def test_a_damaged_header_leaves_the_frames_of_its_file_and_no_image(files: Path) -> None:
    flip(log_file(files, 2), 60)
    found = [told(s) for s in log_steps(files).since(Position(1, 0)) if s.file.file_id == 2]
    assert found == ["damage", "PUT", "COMMIT"]


def test_damage_is_passed_and_what_follows_it_is_not_at_fault(path: Path) -> None:
    at = three_puts(path)
    flip(log_file(path), at[1] + 20)
    found = since(path)
    assert found.count("damage") == 1 and found.count("PUT") == 2
    assert not [word for word in found if word.endswith("?")]


def test_a_frame_in_a_wrong_place_is_at_fault(path: Path) -> None:
    at = three_puts(path)
    data = bytearray(log_file(path).read_bytes())
    size = at[1] - at[0]
    data[at[1] : at[1] + size] = data[at[0] : at[1]]  # the first transaction again
    log_file(path).write_bytes(data)
    found = list(log_steps(path).since(Position(1, 0)))
    wrong = [s for s in found if s.fault]
    assert [told(s) for s in wrong] == ["COMMIT?"]
    assert wrong[0].fault == "a COMMIT is not about the frames before it"


def test_a_checkpoint_is_an_exact_image_at_its_place(path: Path) -> None:
    with Channel(path, minimum_required_space=0, checkpoint_on_close=False) as channel:
        put(channel, b"a")
        channel.checkpoint()
        put(channel, b"b")
    steps = list(log_steps(path).since(Position(1, 0)))
    at = max(i for i, s in enumerate(steps) if isinstance(s.what, ExactImage))
    image = steps[at].what
    assert isinstance(image, ExactImage) and image.image["blocks"]
    assert [told(s) for s in steps[at - 2 :]] == ["PUT", "COMMIT", "image", "PUT", "COMMIT"]


def test_damage_that_reaches_over_a_checkpoint_comes_again_after_it(path: Path) -> None:
    """What comes after the checkpoint is hidden too."""
    with Channel(path, minimum_required_space=0, checkpoint_on_close=False) as channel:
        put(channel, b"a")
        channel.checkpoint()
        put(channel, b"b")
        put(channel, b"c")
    puts, commits = offsets(path, FrameType.PUT), offsets(path, FrameType.COMMIT)
    for offset in (commits[-3], puts[1], commits[-2]):
        flip(log_file(path), offset + 20)
    found = since(path)
    assert found[-5:] == ["damage", "image", "damage", "PUT", "COMMIT"]


def test_checkpoints_beyond_the_last_file_say_that_files_are_missing(path: Path) -> None:
    three_puts(path, checkpoint=True)
    (path / "head").unlink()
    (path / "data" / "log-000001").rename(path / "data" / "log-000001.kept")
    steps = log_steps(path)
    assert list(steps.since(Position(0, 0))) == []
    (path / "data" / "log-000001.kept").rename(path / "data" / "log-000001")
    with log_file(path).open("r+b") as file:
        file.truncate(offsets(path, FrameType.PUT)[1])
    assert since(path)[-2:] == ["image", "gap"]


def test_both_tiers_are_one_log_in_the_order_of_the_appends(path: Path, open_channel: Open) -> None:
    channel = open_channel(memory_capacity=2, byte_capacity=1 << 20, overflow_timeout=0)
    for body in (b"m", b"m", b"d", b"d"):
        put(channel, body)
    memory = channel.engine().log.position().memory
    kill(channel)
    steps = list(log_steps(path).since(Position(1, 0), Position(memory.file_id, 0)))
    puts = [s.file.file_id >> 32 for s in steps if told(s) == "PUT"]
    times = [s.time_us for s in steps]
    assert puts == [1, 1, 0, 0]
    assert times == sorted(times)
    assert [s for s in log_steps(path).since(Position(1, 0)) if s.file.file_id >> 32] == []
