from __future__ import annotations

import uuid

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillable_stream.format.dues import pack_dues, parse_dues
from spillable_stream.format.frame import (
    HEADER_SIZE_BYTES,
    MAX_PAYLOAD_BYTES,
    MOST_HEADER_BYTES,
    TTL_SIZE_BYTES,
    Frame,
    FrameType,
    dues_of,
    encode,
    file_seed,
    frame_size,
    header_size,
    message_of,
    parse_header,
    payload_matches,
    total_size,
)

CHANNEL = str(uuid.UUID(int=1))
SEED = file_seed(CHANNEL, "log-000001")
U64 = st.integers(0, 2**64 - 1)


def encoded(frame: Frame, seed: int = SEED, *ids: int) -> bytes:
    return b"".join(bytes(b) for b in encode(frame, seed, *ids))


@given(
    payload=st.binary(max_size=5000),
    type_=st.sampled_from(FrameType),
    count=st.integers(0, 2**32 - 1),
    schema_id=st.integers(0, 2**16 - 1),
    tx=U64,
    order=U64,
    time_us=U64,
)
def test_a_frame_reads_back_as_it_was_written(
    payload: bytes, type_: FrameType, count: int, schema_id: int, tx: int, order: int, time_us: int
) -> None:
    data = encoded(Frame.of(type_, payload, count, schema_id), SEED, tx, order, time_us)
    header = parse_header(data, 0, SEED)

    assert header is not None
    assert header[:7] == (type_, len(payload), tx, order, count, schema_id, time_us)
    assert payload_matches(header, data[HEADER_SIZE_BYTES : HEADER_SIZE_BYTES + len(payload)])
    assert len(data) == frame_size(len(payload)) == total_size([Frame.of(type_, payload)])


def test_the_bytes_of_a_frame_never_change() -> None:
    """This very frame is the worked example of docs/format.md."""
    seed = file_seed("00000000-0000-0000-0000-000000000001", "log-000001")
    data = encoded(Frame.of(FrameType.COMMIT, b"payload", 2, 3), seed, 4, 5, 6)
    assert data.hex(" ", 4) == (
        "53504c31 07000000 04000300 02000000 04000000 00000000 05000000 00000000 "
        "06000000 00000000 7069e3f4 ac39c853 7061796c 6f616400"
    )


def test_every_flipped_bit_of_a_header_is_noticed() -> None:
    data = encoded(Frame.of(FrameType.TAKE, b"x" * 20, 1), SEED, 7, 8, 9)
    for bit in range(HEADER_SIZE_BYTES * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        assert parse_header(bytes(damaged), 0, SEED) is None, f"bit {bit}"


def test_every_flipped_bit_of_a_payload_is_noticed() -> None:
    payload = bytes(range(64))
    header = parse_header(encoded(Frame.of(FrameType.PUT, payload, 1)), 0, SEED)
    assert header is not None
    for bit in range(len(payload) * 8):
        damaged = bytearray(payload)
        damaged[bit // 8] ^= 1 << bit % 8
        assert not payload_matches(header, bytes(damaged)), f"bit {bit}"


def test_a_frame_of_another_file_or_channel_is_refused() -> None:
    data = encoded(Frame.of(FrameType.PUT, b"body", 1))
    assert parse_header(data, 0, file_seed(CHANNEL, "log-000002")) is None
    assert parse_header(data, 0, file_seed(str(uuid.UUID(int=2)), "log-000001")) is None


@pytest.mark.parametrize("type_", [0, max(FrameType) + 1, 255])
def test_an_unknown_type_is_refused(type_: int) -> None:
    frame = Frame.of(FrameType.PUT, b"")._replace(type=type_)  # type: ignore[arg-type]
    assert parse_header(encoded(frame), 0, SEED) is None


def test_a_length_beyond_the_limit_is_refused() -> None:
    class Long(bytes):
        def __len__(self) -> int:
            return MAX_PAYLOAD_BYTES + 1

    header = encode(Frame(FrameType.PUT, Long(), 0), SEED)[0]
    assert parse_header(bytes(header), 0, SEED) is None


@given(message=st.binary(max_size=5000), ttl_us=st.integers(1, 2**64 - 1), count=st.integers(0, 2**32 - 1))
def test_a_put_with_a_ttl_tells_it_in_the_bytes_that_its_headers_checksum_covers(
    message: bytes, ttl_us: int, count: int
) -> None:
    frame = Frame.of(FrameType.PUT, message, count, ttl_us=ttl_us)
    data = encoded(frame, SEED, 4, 5, 6)
    header = parse_header(data[:MOST_HEADER_BYTES], 0, SEED)
    assert header is not None
    assert (header.ttl_us, header.count, header.length) == (ttl_us, count, len(message) + TTL_SIZE_BYTES)
    payload = data[HEADER_SIZE_BYTES : HEADER_SIZE_BYTES + header.length]
    assert payload_matches(header, payload)
    assert bytes(message_of(header, pa.py_buffer(payload))) == message
    assert len(data) == frame_size(header.length) == total_size([frame])
    assert header_size(data, 0) == MOST_HEADER_BYTES
    assert parse_header(data[: MOST_HEADER_BYTES - 1], 0, SEED) is None
    for at in range(MOST_HEADER_BYTES):
        assert parse_header(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], 0, SEED) is None


def test_only_a_put_has_a_ttl_and_it_is_not_zero() -> None:
    ours = Frame.of(FrameType.PUT, b"body", ttl_us=7)
    assert parse_header(encoded(ours._replace(type=FrameType.TAKE)), 0, SEED) is None
    assert parse_header(encoded(ours._replace(payload=b"short")), 0, SEED) is None
    plain = encoded(Frame.of(FrameType.PUT, b"body"))
    assert header_size(plain, 0) == header_size(b"", 0) == HEADER_SIZE_BYTES
    assert parse_header(plain, 0, SEED) is not None


@given(
    message=st.binary(max_size=5000),
    ttl_us=st.integers(0, 2**64 - 1),
    dues=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=40),
)
def test_a_put_tells_when_each_of_its_events_is_due(message: bytes, ttl_us: int, dues: list[int]) -> None:
    frame = Frame.of(FrameType.PUT, message, len(dues), ttl_us=ttl_us, dues=pack_dues(dues))
    data = encoded(frame, SEED, 4, 5, 6)
    header = parse_header(data[:MOST_HEADER_BYTES], 0, SEED)
    assert header == frame.header(4, 5, 6) and header.has_dues and header.ttl_us == ttl_us
    payload = data[HEADER_SIZE_BYTES : HEADER_SIZE_BYTES + header.length]
    assert payload_matches(header, payload)
    assert bytes(message_of(header, pa.py_buffer(payload))) == message
    assert list(parse_dues(dues_of(header, pa.py_buffer(payload)), header.count)) == dues
    for at in range(MOST_HEADER_BYTES):  # one of an earlier version, which knows no flags, finds a wrong checksum, too
        assert parse_header(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], 0, SEED) is None


def test_a_put_without_due_times_says_none() -> None:
    for ttl_us in (0, 7):
        frame = Frame.of(FrameType.PUT, b"body", 1, ttl_us=ttl_us)
        assert not frame.has_dues and dues_of(frame.header(), pa.py_buffer(bytes(frame.payload))) == b""


def test_a_put_that_is_too_short_for_its_due_times_and_unknown_flags_are_not_frame() -> None:
    ours = Frame.of(FrameType.PUT, b"", 3, dues=pack_dues([1, 2, 3]))
    assert parse_header(encoded(ours), 0, SEED) is not None
    assert parse_header(encoded(ours._replace(count=4)), 0, SEED) is None
    assert parse_header(encoded(ours._replace(type=FrameType.TAKE)), 0, SEED) is None
    data = bytearray(encoded(ours))
    data[9] |= 4
    assert parse_header(bytes(data), 0, None) is None


def test_zeros_and_short_buffers_are_not_frame() -> None:
    data = encoded(Frame.of(FrameType.PUT, b"body", 1))
    assert parse_header(bytes(4096), 0, SEED) is None
    assert all(parse_header(data[:n], 0, SEED) is None for n in range(HEADER_SIZE_BYTES))
    assert parse_header(data, len(data) - 8, SEED) is None


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 4096, 4097, 5000])
def test_frames_are_padded_with_zeros_to_eight_bytes(length: int) -> None:
    data = encoded(Frame.of(FrameType.PUT, b"\xff" * length))
    assert len(data) % 8 == 0
    assert data[HEADER_SIZE_BYTES + length :] == bytes(-length & 7)


def test_a_large_payload_is_not_copied() -> None:
    payload = pa.py_buffer(bytes(100_000))
    assert encode(Frame.of(FrameType.PUT, payload), SEED)[1] is payload
