"""Side files that are damaged or missing: verify says what can't be read, and a repair keeps the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream import Channel
from spillable_stream.format.frame import FrameType
from spillable_stream.integrity.repair import repair
from spillable_stream.integrity.verify import verify
from spillable_stream.objects.slots import slot_key
from tests.support.damage import flip, log_file, offsets
from tests.support.delays import clock_of, deliver_all, deliveries_of, put_late
from tests.support.events import put, take
from tests.support.object_channels import URL, stores_in_memory
from tests.support.object_damage import flip_at, open_here, wrong

Open = Callable[..., Channel]


@pytest.fixture
def side_file(open_channel: Open, path: Path) -> Path:
    """The side file of a channel with three transactions that wait, two events each, closed."""
    channel = open_channel()
    clock_of(channel).begin_stretch(10_000)
    for number in (1, 2, 3):
        put_late(channel, 10_000 + number, b"%d a" % number, b"%d b" % number)
    channel.close()
    (found,) = (path / "data").glob("delayed-*")
    return found


def delivered(path: Path) -> list[bytes]:
    with Channel(path) as channel:
        clock_of(channel).pass_by(20_000)
        now_ms = clock_of(channel).now_ms + 20_000_000
        deliveries_of(channel).clock_ms = lambda: now_ms
        return take(channel)


def test_a_whole_side_file_is_healthy(side_file: Path, path: Path) -> None:
    assert verify(path).healthy
    assert delivered(path) == [b"1 a", b"1 b", b"2 a", b"2 b", b"3 a", b"3 b"]


def test_what_is_behind_the_end_does_not_matter(side_file: Path, path: Path) -> None:
    with side_file.open("ab") as file:
        file.write(b"left by a crash")
    (side_file.parent / "delayed-000009").write_bytes(b"left by a crash, too")
    report = verify(path)
    assert (report.healthy, report.findings) == (True, ())


@pytest.mark.parametrize(("at", "kept"), [(0.5, "13"), (0.95, "12"), (0.01, "123"), (0.25, "23")])
def test_a_repair_keeps_what_can_be_read(side_file: Path, path: Path, at: float, kept: str) -> None:
    data = bytearray(side_file.read_bytes())
    data[int(len(data) * at)] ^= 0x55
    side_file.write_bytes(data)
    report = verify(path)
    (finding,) = [f for f in report.findings if f.path == side_file]
    assert finding.text == f"{2 * (3 - len(kept))} delayed events can't be read"
    assert not report.healthy
    repair(path)
    assert verify(path).healthy
    assert delivered(path) == [b"%s %s" % (n.encode(), x) for n in kept for x in (b"a", b"b")]
    assert not side_file.exists()


def test_a_repair_continues_without_a_side_file_that_is_missing(side_file: Path, path: Path) -> None:
    side_file.unlink()
    with pytest.raises(Exception, match="delayed events are missing"):
        Channel(path)
    (finding,) = [f for f in verify(path).findings if f.path == side_file]
    assert finding.text == "the side file is missing, and with it 6 delayed events"
    repair(path)
    assert verify(path).healthy
    assert delivered(path) == []


def test_a_repaired_identity_tells_earlier_versions_of_what_waits(side_file: Path, path: Path) -> None:
    (path / "channel.json").write_text("{")
    repair(path)
    assert '"format": 3' in (path / "channel.json").read_text()
    assert len(delivered(path)) == 6


def test_a_repair_keeps_a_copy_of_a_damaged_side_file(side_file: Path, path: Path) -> None:
    data = bytearray(side_file.read_bytes())
    data[len(data) // 2] ^= 0x55
    side_file.write_bytes(data)
    quarantine = repair(path).quarantine
    assert isinstance(quarantine, Path)
    assert (quarantine / "files" / "data" / side_file.name).read_bytes() == data


@pytest.mark.parametrize("damaged", [0, 1])
def test_events_whose_commit_is_damaged_come_back_if_a_later_one_proves_that_they_were_put(
    open_channel: Open, path: Path, damaged: int
) -> None:
    channel = open_channel()
    clock_of(channel).begin_stretch(10_000)
    ends = []
    for number in range(3):
        put_late(channel, 10_000 + number, b"%d" % number)
        ends.append(channel.engine().follower.positions.disk.offset)
    channel.close()
    flip(log_file(path), ends[damaged] - 10)
    side_file = path / "data" / "delayed-000001"
    (finding,) = [f for f in verify(path).findings if f.path == side_file]
    assert finding.text == "no commit that can be read names 1 delayed event; a repair brings back what is whole"
    repair(path)
    report = verify(path)
    assert (report.healthy, [f for f in report.findings if f.path == side_file]) == (True, [])
    assert delivered(path) == [b"0", b"1", b"2"]
    assert delivered(path) == []


def test_what_comes_back_was_not_delivered_before(open_channel: Open, path: Path) -> None:
    channel = open_channel()
    clock = clock_of(channel)
    clock.begin_stretch(10_000)
    put_late(channel, 10_000, b"first", b"at once")
    end = channel.engine().follower.positions.disk.offset
    put_late(channel, 10_001, b"then")
    put_late(channel, 10_500, b"last")
    clock.pass_by(10_200)
    assert take(channel) == [b"first", b"at once", b"then"]
    channel.close()
    flip(log_file(path), end - 10)
    repair(path)
    assert delivered(path) == [b"last"]


def test_events_whose_commit_is_damaged_are_named_and_a_repair_keeps_a_copy(open_channel: Open, path: Path) -> None:
    """Nothing proves that they were put: a put that failed, or was killed, may have left the same bytes."""
    channel = open_channel()
    clock_of(channel).begin_stretch(10_000)
    put_late(channel, 10_000, b"a", b"b")
    put_late(channel, 1_000_000, b"a", b"b")
    end = channel.engine().follower.positions.disk.offset
    put(channel, b"c")
    channel.close()
    flip(log_file(path), end - 10)
    side_file = path / "data" / "delayed-000002"
    report = repair(path)
    (finding,) = [f for f in report.findings if f.path == side_file]
    assert finding.text == "no commit that can be read names 2 delayed events; a repair keeps a copy"
    assert finding.severity == "warning"
    assert isinstance(report.quarantine, Path)
    copy = report.quarantine / "files" / "data" / side_file.name
    assert copy.read_bytes() == side_file.read_bytes()
    assert delivered(path)[:1] == [b"c"]


def test_events_whose_columns_are_lost_are_given_up_and_do_not_wait_forever(path: Path, open_channel: Open) -> None:
    one, two = pa.schema([("n", pa.int64())]), pa.schema([("n", pa.int64()), ("m", pa.int64())])
    with open_channel(schema=one, checkpoint_on_close=False) as channel:
        for schema, rows in ((one, {"n": [1]}), (two, {"n": [2, 3], "m": [2, 3]})):
            channel.evolve(schema)
            with channel.put_transaction() as tx:
                tx.put_batch(pa.record_batch(rows, schema), deliver_after=60)
    flip(log_file(path), offsets(path, FrameType.SCHEMA)[0] + 60)
    report = repair(path)
    assert (report.loss.delayed, verify(path).healthy) == (2, True)
    with open_channel() as channel:
        clock_of(channel).pass_by(100)
        deliver_all(channel)
        assert [n for batch in channel.read() for n in batch.column("n").to_pylist()] == [1]
        assert channel.stats().delayed.events == 0


def test_what_was_delivered_is_not_lost_with_its_bytes(open_channel: Open, path: Path) -> None:
    channel = open_channel()
    clock = clock_of(channel)
    clock.begin_stretch(10_000)
    put_late(channel, 10_000, b"1")
    put_late(channel, 10_500, b"2")
    clock.pass_by(10_200)
    assert take(channel) == [b"1"]
    channel.close()
    (side_file,) = (path / "data").glob("delayed-*")
    data = bytearray(side_file.read_bytes())
    data[len(data) // 3] ^= 1
    side_file.write_bytes(data)
    repair(path)
    assert verify(path).healthy
    assert delivered(path) == [b"2"]


# ── in a store ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def objects() -> Iterator[dict[str, bytes]]:
    """The objects of a channel with three transactions that wait, two events each, closed."""
    with stores_in_memory() as stores:
        with open_here() as channel:
            for number in (1, 2, 3):
                put_late(channel, 10_000 + number, b"%d a" % number, b"%d b" % number)
            put(channel, b"now")
        yield stores[URL].objects


def side_objects(objects: dict[str, bytes]) -> list[str]:
    """Return the keys of the objects in which events wait, in the order in which they were put."""
    return sorted(key for key in objects if "-delayed." in key)


def delivered_in_store() -> list[bytes]:
    with open_here() as channel:
        clock_of(channel).pass_by(20_000)
        deliver_all(channel)
        return take(channel)


def test_whole_objects_are_healthy_and_no_leftovers(objects: dict[str, bytes]) -> None:
    report = verify(URL)
    assert (report.healthy, report.findings) == (True, ())
    assert delivered_in_store() == [b"now", b"1 a", b"1 b", b"2 a", b"2 b", b"3 a", b"3 b"]
    assert verify(URL).healthy


@pytest.mark.parametrize(
    ("at", "text"),
    [(None, "the object is missing, and with it 2 delayed events"), (0.6, "2 delayed events can't be read")],
)
def test_a_repair_continues_without_an_object_that_is_damaged_or_missing(
    objects: dict[str, bytes], at: float | None, text: str
) -> None:
    key = side_objects(objects)[1]
    damaged = b"" if at is None else flip_at(objects[key], int(len(objects[key]) * at))
    if at is None:
        del objects[key]
    else:
        objects[key] = damaged
    (finding,) = wrong(verify(URL))
    assert (str(finding.path), finding.text) == (key, text)
    quarantine = repair(URL).quarantine
    assert at is None or objects[f"{str(quarantine).removeprefix(URL)[1:]}/files/{key}"] == damaged
    assert verify(URL).healthy
    assert delivered_in_store() == [b"now", b"1 a", b"1 b", b"3 a", b"3 b"]


def test_events_whose_slot_is_damaged_are_named_and_a_repair_keeps_a_copy(objects: dict[str, bytes]) -> None:
    key, whole = side_objects(objects)[1], objects[side_objects(objects)[1]]
    objects[slot_key(2)] = flip_at(objects[slot_key(2)], len(objects[slot_key(2)]) - 10)
    report = repair(URL)
    (finding,) = [f for f in wrong(report) if str(f.path) == key]
    assert finding.text == (
        "no commit that can be read names 2 delayed events, which may have been delivered; a repair keeps a copy"
    )
    assert objects[f"{str(report.quarantine).removeprefix(URL)[1:]}/files/{key}"] == whole
    assert delivered_in_store() == [b"now", b"1 a", b"1 b", b"3 a", b"3 b"]


def test_a_repaired_identity_of_a_store_tells_earlier_versions_of_what_waits(objects: dict[str, bytes]) -> None:
    objects["channel.json"] = b"{"
    repair(URL)
    assert b'"format": 3' in objects["channel.json"]
    assert len(delivered_in_store()) == 7
