"""Frames that are whole and not where they were written, or not all there: every COMMIT says what was before it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import Channel, CorruptionError, TornTailWarning
from spillable_stream.engine.requests import Control
from spillable_stream.format.frame import Frame, FrameType, encode, file_seed
from spillable_stream.integrity.findings import Severity
from spillable_stream.integrity.verify import verify
from spillable_stream.log.identity_file import read_identity
from spillable_stream.storage.filesystem import FileSystem
from tests.support.damage import frames, log_file, offsets, reboot, trim
from tests.support.events import numbered, peek, put, take

Open = Callable[..., Channel]


def appends(path: Path) -> list[bytes]:
    """Return the bytes up to the first COMMIT, and of every append after it."""
    data = log_file(path).read_bytes()
    ends = [f.end for f in frames(path) if f.header.type == FrameType.COMMIT]
    return [data[a:b] for a, b in zip([0, *ends], ends, strict=False)]


def without(path: Path, type_: FrameType) -> None:
    """Take the last frame of a type out of the log."""
    data = log_file(path).read_bytes()
    frame = [f for f in frames(path) if f.header.type == type_][-1]
    log_file(path).write_bytes(data[: frame.offset] + data[frame.end :])


def reopened(path: Path) -> Channel:
    return Channel(path, create=False, checkpoint_on_close=False)


def test_a_duplicated_append_is_delivered_once(path: Path, open_channel: Open) -> None:
    with open_channel() as channel:
        peek(channel)
        put(channel, b"first")
        put(channel, b"second")
    trim(path)
    log_file(path).write_bytes(log_file(path).read_bytes() + appends(path)[-1])
    reboot(path)
    with pytest.warns(TornTailWarning), reopened(path) as channel:
        assert peek(channel) == [b"first", b"second"]
        put(channel, b"third")
        assert take(channel) == [b"first", b"second", b"third"]


def test_events_that_were_moved_together_are_in_their_order(path: Path, open_channel: Open) -> None:
    """Each of their frames has its own transaction and IDs: those of two were exchanged, and verify called it whole."""
    with open_channel(memory_capacity=10) as channel:
        peek(channel)
        put(channel, b"first")
        put(channel, b"other")
    data = log_file(path).read_bytes()
    one, other = (f for f in frames(path) if f.header.type == FrameType.PUT)
    assert one.end == other.offset and other.end - other.offset == one.end - one.offset, "a flush has moved them"
    exchanged = data[other.offset : other.end] + data[one.offset : one.end]
    log_file(path).write_bytes(data[: one.offset] + exchanged + data[other.end :])
    assert [f.offset for f in verify(path).findings if f.severity is Severity.DAMAGE] == [other.end]


def test_what_lets_events_go_has_a_place_in_the_log(path: Path, open_channel: Open) -> None:
    with open_channel() as channel:
        take(channel)
        put(channel, b"first")
        put(channel, b"second")
        channel.engine().commit(Control(FrameType.RETENTION, {"through": 1}))
    reboot(path)
    with reopened(path) as channel:
        assert peek(channel) == [b"second"]


@pytest.mark.parametrize("rebooted", [False, True])
def test_appends_in_another_order_are_refused(path: Path, open_channel: Open, rebooted: bool) -> None:
    """Takes of the same size: every checksum is right, and so is the end of the log."""
    with open_channel() as channel:
        put(channel, *numbered(0, 10))
        for _ in range(3):
            take(channel, 1)
    trim(path)
    *before, one, two, three = appends(path)
    assert len(one) == len(two)
    log_file(path).write_bytes(b"".join([*before, two, one, three]))
    if rebooted:
        reboot(path)
    with pytest.raises(CorruptionError, match="is not where it was written") as caught:
        reopened(path)
    assert (caught.value.path, caught.value.offset is not None) == (str(log_file(path)), True)


def test_an_append_that_is_missing_before_others_is_refused(path: Path, open_channel: Open) -> None:
    with open_channel() as channel:
        for body in (b"first", b"second", b"third"):
            put(channel, body)
    trim(path)
    *before, _, last = appends(path)
    log_file(path).write_bytes(b"".join([*before, last]))
    reboot(path)
    with pytest.raises(CorruptionError, match="is not where it was written"):
        reopened(path)


def test_a_put_without_its_events_is_not_whole(path: Path, open_channel: Open) -> None:
    with open_channel() as channel:
        peek(channel)
        put(channel, b"first")
        put(channel, b"second")
    trim(path)
    without(path, FrameType.PUT)
    reboot(path)
    with pytest.warns(TornTailWarning), reopened(path) as channel:
        assert peek(channel) == [b"first"]
        assert put(channel, b"next") == (2, 2)


def test_a_change_without_its_record_is_not_whole(path: Path, open_channel: Open) -> None:
    with open_channel() as channel:
        put(channel, b"first")
    with open_channel(keep_alive=77):
        pass
    trim(path)
    without(path, FrameType.OPTIONS)
    reboot(path)
    with pytest.warns(TornTailWarning), reopened(path) as channel:
        assert channel.options["keep_alive"] != 77
        assert peek(channel) == [b"first"]


def test_a_take_without_its_record_is_refused(path: Path, open_channel: Open) -> None:
    """Else what was taken would come back."""
    with open_channel() as channel:
        put(channel, *numbered(0, 10))
        take(channel, 5)
    trim(path)
    at = offsets(path, FrameType.TAKE)[-1]
    without(path, FrameType.TAKE)
    reboot(path)
    with pytest.raises(CorruptionError, match="commits a take that is not in the log") as caught:
        reopened(path)
    assert caught.value.offset == at


def test_a_file_that_begins_with_another_frame_is_damaged(path: Path, open_channel: Open) -> None:
    with open_channel() as channel:
        put(channel, b"first")
    trim(path)
    log_file(path).write_bytes(log_file(path).read_bytes()[frames(path)[0].end :])
    reboot(path)
    with pytest.raises(CorruptionError, match="the header of log-000001 is damaged") as caught:
        reopened(path)
    assert caught.value.offset == 0


@pytest.mark.parametrize("type_", [FrameType.TAKE, FrameType.COMMIT, FrameType.CHECKPOINT])
@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x01", b"\x80", b"\x81\x90\x01", b"\x81\xa4kind\xa3put"])
def test_a_record_that_is_invalid_is_corruption(
    path: Path, open_channel: Open, type_: FrameType, payload: bytes
) -> None:
    """Its checksums are right, as those of another program's would be."""
    with open_channel() as channel:
        put(channel, b"first")
    end = trim(path)
    seed = file_seed(read_identity(FileSystem(), path).channel, log_file(path).name)
    nonsense = b"".join(map(bytes, encode(Frame.of(type_, payload, 1), seed, transaction_id=9, time_us=1 << 60)))
    data = log_file(path).read_bytes()
    last = [f for f in frames(path) if f.header.type == FrameType.COMMIT][-1]
    assert last.end == end
    log_file(path).write_bytes(data + nonsense + data[last.offset :])
    head = (path / "head").read_bytes()
    for rebooted in (False, True):
        (path / "head").write_bytes(head)
        if rebooted:
            reboot(path)
        try:
            with reopened(path) as channel:  # what lies behind the end is cut
                assert peek(channel) == [b"first"]
        except CorruptionError as e:
            assert (e.path, e.offset) == (str(log_file(path)), end)


def test_a_commit_that_is_missing_before_a_take_is_refused(path: Path, open_channel: Open) -> None:
    """The take may end the log, but not the put before it."""
    with open_channel() as channel:
        put(channel, b"first")
        put(channel, b"second")
        take(channel, 1)
    trim(path)
    data = log_file(path).read_bytes()
    _, second, _ = [f for f in frames(path) if f.header.type == FrameType.COMMIT][-3:]
    log_file(path).write_bytes(data[: second.offset] + data[second.end :])
    reboot(path)
    with pytest.raises(CorruptionError, match="follows frames that no COMMIT ends"):
        reopened(path)
