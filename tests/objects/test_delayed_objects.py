"""Side files in a store: an object is written once, read whole, and kept at hand."""

from __future__ import annotations

import pytest

from spillable_stream.errors import CorruptionError, DataLossError, StorageError
from spillable_stream.format.dues import dues_frame
from spillable_stream.format.file_names import delayed_name
from spillable_stream.format.frame import Frame, FrameType, encode, file_seed
from spillable_stream.format.packing import pack
from spillable_stream.objects import delayed_objects
from spillable_stream.objects.cache import ObjectCache
from spillable_stream.objects.delayed_objects import DelayedObjects
from spillable_stream.objects.staged_object import birth_of, owner_of
from spillable_stream.state.delays import DelayedFile
from tests.support.faulty_store import Fault, FaultyStore, once
from tests.support.memory_store import MemoryStore

FRAMES = [dues_frame([5, 6]), Frame.of(FrameType.PUT, b"a" * 16, 2), dues_frame([7]), Frame.of(FrameType.PUT, b"b", 1)]


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore(MemoryStore("s3://bucket/orders"))


@pytest.fixture
def objects(store: FaultyStore) -> DelayedObjects:
    return DelayedObjects(store, "uuid", ObjectCache(1 << 20))


def written(objects: DelayedObjects, birth: int = 3) -> DelayedFile:
    key, end = objects.write(birth, FRAMES)
    return DelayedFile(1, 5, 0, end, 3, 17, 5, name=key)


def without_cache(store: FaultyStore) -> DelayedObjects:
    return DelayedObjects(store, "uuid", ObjectCache(0))


def damage(store: FaultyStore, file: DelayedFile, at: int) -> None:
    data = bytearray(store.get(file.name))
    data[at] ^= 1
    store.replace(file.name, bytes(data))


def test_an_object_is_written_with_one_request_and_not_asked_for(store: FaultyStore, objects: DelayedObjects) -> None:
    file = written(objects)
    first, second = objects.frames(file, verify=True)
    assert (list(first.dues), list(second.dues)) == ([5, 6], [7])
    assert [bytes(payload) for _, payload in objects.puts(file, [second.offset, first.offset])] == [b"b", b"a" * 16]
    assert [request.kind for request in store.requests] == ["replace"]
    assert (birth_of(file.name), owner_of(file.name)) == (3, ("delayed", 0))


def test_a_large_object_is_written_in_parts(
    store: FaultyStore, objects: DelayedObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delayed_objects, "_PARTS_BYTES", 100)
    file = written(objects)
    assert [request.kind for request in store.requests] == ["upload", "write", "finish"]
    assert bytes(store.get(file.name)) == objects.content(file)
    store.schedule = once("finish", Fault.LOST)
    with pytest.raises(StorageError):
        written(objects)
    assert len(list(store.list("segments/"))) == 1


def test_two_objects_never_have_one_name(objects: DelayedObjects) -> None:
    assert written(objects).name != written(objects).name


def test_who_did_not_write_an_object_asks_for_it_once(store: FaultyStore, objects: DelayedObjects) -> None:
    file = written(objects)
    other = DelayedObjects(store, "uuid", ObjectCache(1 << 20))
    assert list(other.frames(file)) == list(objects.frames(file))
    assert other.content(file) == objects.content(file)
    assert [request.kind for request in store.requests] == ["replace", "get"]


def test_what_is_read_next_is_asked_for_at_once(store: FaultyStore, objects: DelayedObjects) -> None:
    files = [written(objects) for _ in range(3)]
    other = DelayedObjects(store, "uuid", ObjectCache(1 << 20))
    store.delete(files[2].name)
    other.expect(files, 0)  # that one is gone shows when it is read
    gets = [request.key for request in store.requests if request.kind == "get"]
    assert sorted(gets) == sorted(file.name for file in files)
    for file in files[:2]:
        list(other.frames(file))
    assert len([request for request in store.requests if request.kind == "get"]) == 3
    with pytest.raises(DataLossError):
        list(other.frames(files[2]))


def test_an_object_that_is_gone_is_named(store: FaultyStore, objects: DelayedObjects) -> None:
    file = written(objects)
    store.delete(file.name)
    with pytest.raises(DataLossError, match="the object was removed") as caught:
        list(without_cache(store).frames(file))
    assert caught.value.path == f"s3://bucket/orders/{file.name}"


def test_damage_is_named_and_what_came_damaged_is_asked_for_again(store: FaultyStore, objects: DelayedObjects) -> None:
    file = written(objects)
    _, second = objects.frames(file)
    whole = bytes(store.get(file.name))
    for at, message in ((second.offset + 48, "puts"), (second.offset + 8, "frames")):
        damage(store, file, at)
        reader = DelayedObjects(store, "uuid", ObjectCache(1 << 20))
        with pytest.raises(CorruptionError, match="a frame of delayed events is damaged") as caught:
            list(reader.puts(file, [second.offset]) if message == "puts" else reader.frames(file))
        assert caught.value.offset == second.offset
        with pytest.raises(CorruptionError):
            reader.content(file)
        store.replace(file.name, whole)
        assert reader.content(file) == whole


@pytest.mark.parametrize("name", ["", "segments/00000000000000000009-delayed.0.0123456789abcdef0123456789abcdef"])
def test_an_object_is_made_of_a_side_file_of_another_channel(store: FaultyStore, name: str) -> None:
    called = name or delayed_name(7)
    header = Frame.of(FrameType.SEGMENT_HEADER, pack({"format": 1, "channel": "abcd", "segment": called}))
    seed = file_seed("abcd", called)
    content = b"".join(bytes(part) for frame in (header, *FRAMES) for part in encode(frame, seed))
    before = DelayedFile(7, 5, 0, len(content), 3, 17, 5, name=name)
    objects = DelayedObjects(store, "uuid", ObjectCache(0))
    made = before._replace(name=objects.create(content, before, "abcd"))
    assert birth_of(made.name) == 0
    found = list(objects.frames(made, verify=True))
    assert [list(frame.dues) for frame in found] == [[5, 6], [7]]
    assert found[0].offset == len(b"".join(bytes(part) for part in encode(header, seed))) + 64
    assert len(objects.content(made)) == len(content)


def test_what_is_not_needed_any_more_is_left_to_the_collector(store: FaultyStore, objects: DelayedObjects) -> None:
    file = written(objects)
    objects.remove(file)
    assert list(objects.left) == [file.name]
    assert store.get(file.name)


# ── large objects ───────────────────────────────────────────────────────────────────────────────


def large(objects: DelayedObjects, pairs: int = 64, size: int = 256 << 10) -> DelayedFile:
    """Write an object of 16 MiB: events that are due one after the other, four of a frame."""
    frames = [
        frame
        for i in range(pairs)
        for frame in (
            dues_frame([4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3], [i] * 4),
            Frame.of(FrameType.PUT, bytes([i]) * size, 4),
        )
    ]
    key, end = objects.write(3, frames)
    return DelayedFile(1, 0, 1024, end, 4 * pairs, pairs * size, 0, name=key)


def asked(store: FaultyStore) -> list[str]:
    return [request.kind for request in store.requests if request.kind != "replace"]


def test_of_a_large_object_the_table_says_what_is_due_and_only_that_is_read(store: FaultyStore) -> None:
    file = large(without_cache(store))
    other = DelayedObjects(store, "uuid", ObjectCache(64 << 20))
    frames = list(other.frames(file))
    assert asked(store) == ["get_range"]
    first, second = [bytes(payload) for _, payload in other.puts(file, [frames[0].offset, frames[1].offset])]
    assert (first, second) == (bytes([0]) * len(first), bytes([1]) * len(second))
    assert asked(store) == ["get_range"] * 2, "both are in one window"
    list(other.puts(file, [frames[2].offset]))
    assert list(other.frames(file, frames[9].offset)) == frames[9:]
    assert asked(store) == ["get_range"] * 2, "what was read is at hand"
    whole = DelayedObjects(store, "uuid", ObjectCache(64 << 20))
    whole._read(file)
    assert list(whole.frames(file)) == frames


def test_where_most_is_due_a_large_object_is_read_whole_with_one_request(store: FaultyStore) -> None:
    file = large(without_cache(store))
    other = DelayedObjects(store, "uuid", ObjectCache(64 << 20))
    other.expect([file], 2048)  # all of its stretch is over
    frames = list(other.frames(file))
    assert len(list(other.puts(file, [frame.offset for frame in frames]))) == 64
    assert asked(store) == ["get"]


def test_however_the_frames_lie_a_large_object_is_read_with_few_requests(store: FaultyStore) -> None:
    file = large(without_cache(store))
    for step in range(1, 64):
        other = DelayedObjects(store, "uuid", ObjectCache(64 << 20))
        before = len(store.requests)
        frames = list(other.frames(file))[::step]
        found = [bytes(payload)[0] for _, payload in other.puts(file, [frame.offset for frame in frames])]
        assert found == list(range(0, 64, step))
        requests = store.requests[before:]
        assert len(requests) <= 1 + file.end // (2 << 20)


@pytest.mark.parametrize("damage_at", ["no table", "table", "window"])
def test_a_large_object_whose_table_is_damaged_is_read_whole_and_damage_is_named(
    store: FaultyStore, damage_at: str
) -> None:
    file = large(without_cache(store))
    expected = [frame.dues for frame in without_cache(store).frames(file)]
    if damage_at == "no table":  # a restore wrote it
        store.replace(file.name, bytes(store.get(file.name))[: file.end])
    else:
        damage(store, file, file.end + 60 if damage_at == "table" else 1000)
    other = DelayedObjects(store, "uuid", ObjectCache(64 << 20))
    frames = list(other.frames(file))
    assert [frame.dues for frame in frames] == expected
    if damage_at == "window":
        with pytest.raises(CorruptionError, match="a frame of delayed events is damaged"):
            list(other.puts(file, [frames[0].offset]))
        damage(store, file, 1000)  # it was damaged on its way
    assert [bytes(payload)[0] for _, payload in other.puts(file, [frames[0].offset])] == [0]


def test_an_event_that_is_larger_than_a_window_is_read(store: FaultyStore) -> None:
    file = large(without_cache(store), pairs=4, size=5 << 20)
    other = DelayedObjects(store, "uuid", ObjectCache(64 << 20))
    frames = list(other.frames(file))
    assert len(bytes(next(other.puts(file, [frames[2].offset]))[1])) == 5 << 20
    assert asked(store) == ["get_range"] * 3


def test_a_large_event_that_came_damaged_is_asked_for_again(store: FaultyStore) -> None:
    file = large(without_cache(store), pairs=8, size=3 << 20)
    other = DelayedObjects(store, "uuid", ObjectCache(64 << 20))
    frame = list(other.frames(file))[2]
    damage(store, file, frame.offset + (2 << 20))
    with pytest.raises(CorruptionError, match="a frame of delayed events is damaged"):
        list(other.puts(file, [frame.offset]))
    damage(store, file, frame.offset + (2 << 20))  # it was damaged on its way
    assert len(bytes(next(other.puts(file, [frame.offset]))[1])) == 3 << 20


def test_a_large_event_that_begins_with_a_window_is_not_taken_for_it(store: FaultyStore) -> None:
    objects = without_cache(store)
    first = objects.write(3, [dues_frame([1]), Frame.of(FrameType.PUT, bytes(8), 1)])[1] - 56
    begin, pair = 1 << 20, 56 + 48  # of a DUES frame, and the header of what is behind it
    frames = [
        dues_frame([1]),
        Frame.of(FrameType.PUT, bytes(begin - pair - first - 48), 1),
        dues_frame([2]),
        Frame.of(FrameType.PUT, b"l" * (3 << 20), 1),
        dues_frame([3]),
        Frame.of(FrameType.PUT, b"s" * 1000, 1),
    ]
    key, end = objects.write(3, frames)
    file = DelayedFile(1, 0, 1024, end, 3, 0, 0, name=key)
    other = DelayedObjects(store, "uuid", ObjectCache(64 << 20))
    _, event, _ = list(other.frames(file))
    assert event.offset + 48 == begin, "its payload begins where a window does"
    other._window(file, 1)
    assert len(bytes(next(other.puts(file, [event.offset]))[1])) == 3 << 20
