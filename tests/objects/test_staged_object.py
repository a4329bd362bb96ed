from __future__ import annotations

import pyarrow as pa
import pytest

from spillable_stream.errors import OptionError, StorageError
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.format.extent import Extent
from spillable_stream.format.file_names import seed_name
from spillable_stream.format.frame import HEADER_SIZE_BYTES, FrameType, file_seed, parse_header
from spillable_stream.format.packing import unpack
from spillable_stream.format.slot import OBJECT_FORMAT_VERSION
from spillable_stream.objects.object_reader import ObjectReader
from spillable_stream.objects.staged_object import StagedObjectWriter, birth_of, owner_of, segment_key
from tests.support.faulty_store import Fault, FaultyStore, once
from tests.support.memory_store import MemoryStore
from tests.support.object_logs import frames_of

CHANNEL = "0f0e0d0c-0b0a-0908-0706-050403020100"


@pytest.fixture
def memory() -> MemoryStore:
    return MemoryStore()


def test_a_key_says_how_old_a_segment_is_and_whose() -> None:
    key = segment_key(17, "a-query_1", 4)
    assert key.startswith("segments/00000000000000000017-a-query_1.4.")
    assert (birth_of(key), owner_of(key)) == (17, ("a-query_1", 4))
    assert segment_key(17, "a-query_1", 4) != key


@pytest.mark.parametrize(
    "key",
    [
        "segments/notes.txt",
        "segments/17-query.1." + "0" * 32,
        f"segments/{17:020d}-query.1.{'0' * 32}.tmp",
        f"{17:020d}-query.1.{'0' * 32}",
    ],
)
def test_other_keys_are_not_segments(key: str) -> None:
    assert (birth_of(key), owner_of(key)) == (None, None)


def test_what_is_staged_is_one_object_that_says_its_channel_and_its_name(memory: MemoryStore) -> None:
    writer = StagedObjectWriter(memory, CHANNEL, 5, "query", 1)
    for bodies in ((b"0", b"1"), (b"2",)):
        writer.write(frames_of(*bodies))
    assert memory.objects == {}
    found = writer.finish()
    writer.close()
    data = memory.objects[found.name]
    assert (found.end, found.count, found.payload_bytes) == (len(data), 3, writer.payload_bytes)
    header = parse_header(data, 0, file_seed(CHANNEL, seed_name(found.name)))
    assert header is not None and header.type == FrameType.SEGMENT_HEADER
    fields = unpack(data[HEADER_SIZE_BYTES : HEADER_SIZE_BYTES + header.length])
    assert fields == {"format": OBJECT_FORMAT_VERSION, "channel": CHANNEL, "segment": found.name}


def test_its_events_are_read_with_the_ids_that_a_commit_gives_them(memory: MemoryStore) -> None:
    writer = StagedObjectWriter(memory, CHANNEL, 5)
    for body in (b"0", b"1", b"2"):
        writer.write(frames_of(body))
    found = writer.finish()
    extent = Extent(found.name, 0, 101, 102, base_id=100, transaction_id=7, time_us=9)
    batches = list(ObjectReader(memory, CHANNEL, lambda _: EVENT_SCHEMA).read(extent))
    assert [batch.first_id for batch in batches] == [101, 102]
    assert {(batch.transaction_id, batch.time_us) for batch in batches} == {(7, 9)}
    assert pa.Table.from_batches([b.batch for b in batches])["body"].to_pylist() == [b"1", b"2"]


@pytest.mark.parametrize("kind", ["write", "finish"])
def test_after_a_failure_nothing_more_is_staged_and_nothing_is_adopted(memory: MemoryStore, kind: str) -> None:
    store = FaultyStore(memory)
    writer = StagedObjectWriter(store, CHANNEL, 5)
    store.schedule = once(kind, Fault.UNAVAILABLE)  # type: ignore[arg-type]
    with pytest.raises(StorageError):
        writer.write(frames_of(b"0"))
        writer.finish()
    for verb in (writer.finish, lambda: writer.write(frames_of(b"1"))):
        with pytest.raises(StorageError, match="can only be discarded"):
            verb()
    writer.discard()
    assert memory.objects == {}


def test_what_is_discarded_is_never_there(memory: MemoryStore) -> None:
    writer = StagedObjectWriter(memory, CHANNEL, 5)
    writer.write(frames_of(b"0"))
    writer.discard()
    assert memory.objects == {}


@pytest.mark.parametrize("owner", ["a/b", "", "a.b", "x" * 129])
def test_an_owner_that_no_key_can_name_is_refused(memory: MemoryStore, owner: str) -> None:
    with pytest.raises(OptionError):
        StagedObjectWriter(memory, CHANNEL, 5, owner)
