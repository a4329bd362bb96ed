"""The frames of side files: read in pairs, and written again as another side file has them."""

from __future__ import annotations

import pytest

from spillable_stream.errors import CorruptionError
from spillable_stream.format.dues import dues_frame
from spillable_stream.format.frame import Frame, FrameType, encode, file_seed
from spillable_stream.format.packing import pack, unpack
from spillable_stream.log.delayed_frames import DelayedFrame, frames_for, frames_of
from spillable_stream.log.frames import LocatedFrame, walk
from spillable_stream.objects.salvage import ObjectBytes
from spillable_stream.state.delays import DelayedFile

SEED = file_seed("one", "a")
HEADER = Frame.of(FrameType.SEGMENT_HEADER, pack({"format": 1, "channel": "one", "segment": "a"}))


def put(count: int) -> Frame:
    return Frame.of(FrameType.PUT, bytes(8 * count), count)


def file_of(*frames: Frame) -> bytes:
    return b"".join(bytes(part) for frame in frames for part in encode(frame, SEED))


def read(data: bytes, end: int = 0, holes: tuple[tuple[int, int], ...] = (), start: int = 0) -> list[DelayedFrame]:
    file = DelayedFile(1, 0, 0, end or len(data), 0, 0, 0, holes=holes)

    def damaged(offset: int) -> CorruptionError:
        return CorruptionError("damaged", "a", offset)

    return list(frames_of(ObjectBytes(data), SEED, file, start, damaged=damaged, verify=True))


def test_pairs_are_read_with_their_due_times() -> None:
    data = file_of(HEADER, dues_frame([5, 6]), put(2), dues_frame([7]), put(1))
    first, second = read(data)
    assert (list(first.dues), list(first.puts), list(second.dues)) == ([5, 6], [], [7])
    end = len(file_of(HEADER, dues_frame([5, 6]), put(2)))
    assert read(data, end) == [first]
    assert read(data, start=end) == [second]
    assert read(data, holes=((len(file_of(HEADER)), end),)) == [second]


def test_pairs_of_several_puts_say_which_these_were() -> None:
    (frame,) = read(file_of(HEADER, dues_frame([5, 5, 6], [1, 2, 1]), put(3)))
    assert (list(frame.dues), list(frame.puts)) == ([5, 5, 6], [1, 2, 1])


@pytest.mark.parametrize(
    "frames",
    [
        (HEADER, put(1)),
        (HEADER, dues_frame([1, 2]), put(1)),
        (HEADER, dues_frame([1])),
        (HEADER, dues_frame([1]), dues_frame([1])),
        (dues_frame([1]), put(1), HEADER),
    ],
)
def test_what_is_not_a_pair_is_damage(frames: tuple[Frame, ...]) -> None:
    with pytest.raises(CorruptionError) as caught:
        read(file_of(*frames))
    assert caught.value.offset is not None


def test_frames_are_where_they_were_under_the_checksums_of_another_file() -> None:
    data = file_of(HEADER, dues_frame([5, 6]), put(2), dues_frame([7]), put(600))
    seed, made = file_seed("two", "b"), bytearray(data)
    for offset, part in frames_for(ObjectBytes(data), len(data), SEED, "two", seed):
        made[offset : offset + len(part)] = part
    assert len(made) == len(data)
    before = [f for f in walk(ObjectBytes(data), SEED, 0, len(data)) if isinstance(f, LocatedFrame)]
    after = [f for f in walk(ObjectBytes(bytes(made)), seed, 0, len(made)) if isinstance(f, LocatedFrame)]
    assert [(f.offset, f.header) for f in after[1:]] == [(f.offset, f.header) for f in before[1:]]
    assert unpack(after[0].payload or b"") == {"format": 1, "channel": "two", "segment": "a"}


def test_a_hole_stays_as_it_is() -> None:
    data = bytearray(file_of(HEADER, dues_frame([5]), put(1), dues_frame([7]), put(1)))
    at = len(file_of(HEADER, dues_frame([5]), put(1)))
    data[at + 50] ^= 1
    written = [offset for offset, _ in frames_for(ObjectBytes(bytes(data)), len(data), SEED, "two", 7)]
    assert at not in written
    assert max(written) > at > min(written)
