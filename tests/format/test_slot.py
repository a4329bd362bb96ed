"""The bytes of a slot: what is written is read, and nothing else passes for it."""

from __future__ import annotations

import uuid

import pytest

from spillable_stream.errors import CorruptionError, UnsupportedFormatError
from spillable_stream.format.commit_record import CommitRecord
from spillable_stream.format.file_names import log_name
from spillable_stream.format.frame import Frame, FrameType, encode, file_seed
from spillable_stream.format.slot import (
    HEADER_READ_BYTES,
    NO_TOKEN,
    OBJECT_FORMAT_VERSION,
    Slot,
    SlotHeader,
    claimed_channel,
    parse_slot_header,
)
from tests.support.object_logs import frames_of

CHANNEL, OTHER = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))
TOKEN, BEFORE = b"t" * 16, b"b" * 16


def header(number: int = 7, **changed: object) -> SlotHeader:
    fields = {"channel": CHANNEL, "number": number, "previous": BEFORE, "token": TOKEN, "writer": "host pid 1"}
    return SlotHeader(**{**fields, **changed})  # type: ignore[arg-type]


def slot(number: int = 7) -> bytes:
    """Return a slot of one event of 1,000 bytes and its COMMIT."""
    seed, head = file_seed(CHANNEL, log_name(number)), header(number)
    (put,) = frames_of(bytes(1000))
    commit = CommitRecord("put", head.size_bytes()).frame(1)
    append = b"".join([*encode(put, seed, 3, 5, 9), *encode(commit, seed, 3, 5, 9)])
    return b"".join(head.encode(len(append))) + append


def end_of_put() -> int:
    return Slot.parse(CHANNEL, 7, slot()).frames()[1].offset


def test_what_is_written_is_read() -> None:
    data = slot()
    found = Slot.parse(CHANNEL, 7, data)
    assert (found.header, found.number, found.end) == (header(), 7, len(data))
    put, commit = found.frames()
    assert (put.offset, put.header.write_order_id, put.payload) == (found.places[0][0], 5, None)
    assert commit.payload is not None and CommitRecord.parse(commit.payload).start == found.places[0][0]


def test_a_header_is_of_one_size_whatever_its_tokens_are() -> None:
    assert header(token=NO_TOKEN).size_bytes() == header().size_bytes() == Slot.parse(CHANNEL, 7, slot()).places[0][0]


def test_the_first_512_bytes_say_the_header_even_of_the_longest_writer() -> None:
    head = header(2**63 - 1, writer="ä" * 1000)
    data = b"".join(head.encode())
    assert len(data) <= HEADER_READ_BYTES
    found = parse_slot_header(CHANNEL, 2**63 - 1, (data + bytes(4096))[:HEADER_READ_BYTES])
    assert found is not None
    assert (found[0].token, found[0].previous, found[1]) == (TOKEN, BEFORE, len(data))
    assert found[0].writer == "ä" * 64


@pytest.mark.parametrize(("channel", "number"), [(OTHER, 7), (CHANNEL, 8)])
def test_another_channels_or_numbers_slot_is_refused_at_its_beginning(channel: str, number: int) -> None:
    assert parse_slot_header(channel, number, slot()) is None
    with pytest.raises(CorruptionError, match="another slot's") as caught:
        Slot.parse(channel, number, slot())
    assert caught.value.offset == 0


def test_a_slot_that_is_cut_short_anywhere_is_refused_where_its_frame_begins() -> None:
    data = slot()
    whole = Slot.parse(CHANNEL, 7, data)
    starts = [0, *(frame.offset for frame in whole.frames())]
    for size in range(0, len(data), 8):
        with pytest.raises(CorruptionError) as caught:
            Slot.parse(CHANNEL, 7, data[:size])
        assert caught.value.offset == max(start for start in starts if start <= size)


def test_a_flipped_bit_is_refused_where_its_frame_begins_and_in_events_when_they_are_read() -> None:
    data, begin, commit = slot(), header().size_bytes(), end_of_put()
    expected = {20: 0, 60: 0, begin + 20: begin, begin + 48 + 500: None, commit + 20: commit, commit + 50: commit}
    for at, offset in expected.items():
        flipped = bytearray(data)
        flipped[at] ^= 4
        if offset is None:
            assert len(Slot.parse(CHANNEL, 7, bytes(flipped)).frames()) == 2
            continue
        with pytest.raises(CorruptionError) as caught:
            Slot.parse(CHANNEL, 7, bytes(flipped))
        assert caught.value.offset == offset


def test_only_slot_0_says_a_state() -> None:
    first = header(0, previous=NO_TOKEN, state={"next": 1, "blob": bytes(2000)})
    data = b"".join(first.encode())
    assert Slot.parse(CHANNEL, 0, data).header == first
    assert Slot.parse(CHANNEL, 0, data).frames() == []
    assert b"state" not in b"".join(header().encode())
    assert Slot.parse(CHANNEL, 7, slot()).header.state is None


def test_a_slot_of_a_newer_version_is_refused_as_that() -> None:
    data = b"".join(header(format=OBJECT_FORMAT_VERSION + 1).encode())
    with pytest.raises(UnsupportedFormatError, match=r"format version 3.*upgrade spillable-stream"):
        Slot.parse(CHANNEL, 7, data)


@pytest.mark.parametrize("changed", [{"token": b"short"}, {"previous": b""}, {"token": 7}])
def test_a_header_with_valid_checksums_that_is_invalid_is_damage(changed: dict[str, object]) -> None:
    data = b"".join(header(**changed).encode())
    with pytest.raises(CorruptionError, match="the header of a slot"):
        Slot.parse(CHANNEL, 7, data)


def test_the_channel_that_a_slot_claims_is_found_without_knowing_it() -> None:
    assert claimed_channel(slot()) == CHANNEL
    assert claimed_channel(b"") == claimed_channel(bytes(100)) == claimed_channel(slot()[:60]) == ""
    no_header = encode(Frame.of(FrameType.TRIM, b""), file_seed(CHANNEL, log_name(0)))
    assert claimed_channel(b"".join(no_header)) == ""
