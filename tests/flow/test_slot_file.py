from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillable_stream.errors import CorruptionError, StorageError
from spillable_stream.flow import slot_file
from spillable_stream.flow.descriptor import Descriptor
from spillable_stream.flow.durable_file import make_directory
from spillable_stream.flow.slot_file import SlotFile, newest_value


@pytest.fixture
def file(tmp_path: Path) -> Iterator[SlotFile]:
    file = SlotFile(tmp_path / "f")
    yield file
    file.close()


def value_of(file: SlotFile) -> bytes | None:
    return newest_value(file.path.read_bytes())


def write_interrupted(file: SlotFile, value: bytes, owner: object, call: str) -> None:
    """Write a value, and be interrupted where that calls something."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, call, interrupted)
        with pytest.raises(KeyboardInterrupt):
            file.write(value)


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the syncs that are made from now on."""
    found: list[str] = []
    for name in ("fsync", "fdatasync"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda fd, name=name, real=real: (found.append(name), real(fd))[1])
    return found


def test_each_value_replaces_the_one_before(file: SlotFile) -> None:
    for value in (b"one", b"two", b"", b"four", b"a five that is longer", b"6"):
        file.write(value)
        assert value_of(file) == value


def test_a_value_costs_one_sync_after_the_first(file: SlotFile, tmp_path: Path, syncs: list[str]) -> None:
    make_directory(tmp_path)  # whose name is durable from here on
    syncs.clear()
    file.write(b"one")
    assert syncs == ["fsync", "fsync"]  # the file, and its name
    syncs.clear()
    file.write(b"two")
    file.write(b"three")
    assert syncs == ["fdatasync", "fdatasync"]


def test_the_bytes_are_as_the_module_draws_them(file: SlotFile) -> None:
    for number in range(3):
        file.write(b"value %d" % number)
    slots = (b"0000000000000002 %08x value 2", b"0000000000000001 %08x value 1")
    checksums = (google_crc32c.value(b"0000000000000002value 2"), google_crc32c.value(b"0000000000000001value 1"))
    drawn = [slot % checksum for slot, checksum in zip(slots, checksums, strict=True)]
    assert file.path.read_bytes() == b"".join(slot.ljust(4095) + b"\n" for slot in drawn)


@given(st.lists(st.binary(max_size=40).map(lambda b: b.rstrip()), min_size=1, max_size=5), st.data())
def test_a_torn_slot_leaves_the_value_before(
    tmp_path_factory: pytest.TempPathFactory, values: list[bytes], data: st.DataObject
) -> None:
    file = SlotFile(tmp_path_factory.mktemp("torn") / "f")
    before: bytes | None = None
    try:
        for value in values[:-1]:
            file.write(value)
            before = value
        old = file.path.read_bytes() if before is not None else b""
        file.write(values[-1])
        new = file.path.read_bytes()
    finally:
        file.close()
    if before is None:
        return
    changed = [i for i, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
    cut = data.draw(st.integers(changed[0], changed[-1] + 1))
    for torn in (new[:cut] + old[cut:], old[:cut] + new[cut:]):  # a disk may write the end first
        assert newest_value(torn) == (values[-1] if torn == new else before)


def test_what_was_read_outlives_a_power_cut(file: SlotFile) -> None:
    """The process was killed between the write and its sync: the value is in the page cache alone."""
    file.write(b"one")
    write_interrupted(file, b"two", os, "fdatasync")
    in_page_cache = file.path.stat().st_ino
    assert SlotFile(file.path).read() == b"two"
    assert file.path.stat().st_ino != in_page_cache  # a new file, which is synced before it has the name


def test_a_value_that_is_read_is_synced_with_its_name(file: SlotFile, syncs: list[str]) -> None:
    file.write(b"one")
    file.write(b"two")
    syncs.clear()
    assert SlotFile(file.path).read() == b"two"
    assert syncs == ["fsync", "fsync"]


def test_a_file_that_is_missing_has_no_value(file: SlotFile) -> None:
    assert file.read() is None


def test_a_file_without_a_whole_slot_is_refused_and_left(file: SlotFile) -> None:
    file.path.write_bytes(b"x" * 8192)
    with pytest.raises(CorruptionError, match=r"no slot of the file is whole .*/f\]"):
        file.read()
    assert file.path.read_bytes() == b"x" * 8192


@pytest.mark.parametrize("at", [0, 20, 30])
def test_a_damaged_slot_is_logged_and_the_other_one_counts(
    file: SlotFile, at: int, caplog: pytest.LogCaptureFixture
) -> None:
    file.write(b"value one")
    assert file.read() == b"value one" and not caplog.records
    file.write(b"value two")
    file.write(b"value three")
    data = bytearray(file.path.read_bytes())
    data[4096 + at] ^= 1
    file.path.write_bytes(data)
    assert file.read() == b"value two"
    assert caplog.messages == [
        f"{file.path}: a slot is damaged, so the other one counts. A power cut in a write leaves that, and does no "
        "harm; if there was none, check the disk"
    ]


def test_a_disk_that_writes_a_part_is_asked_for_the_rest(file: SlotFile, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write(b"one")
    real = os.pwrite
    monkeypatch.setattr(slot_file.os, "pwrite", lambda fd, data, offset: real(fd, data[:7], offset))
    file.write(b"two")
    assert value_of(file) == b"two"


def test_an_interrupted_write_makes_the_next_one_replace_the_file(file: SlotFile, syncs: list[str]) -> None:
    file.write(b"one")
    write_interrupted(file, b"two", os, "pwrite")
    syncs.clear()
    file.write(b"three")
    assert value_of(file) == b"three" and syncs == ["fsync", "fsync"]


def test_an_interrupt_before_a_slot_is_written_makes_the_next_write_replace_the_file(
    file: SlotFile, syncs: list[str]
) -> None:
    """Else the next value would go over the newest one, and a tear would leave the one before that."""
    file.write(b"one")
    file.write(b"two")
    write_interrupted(file, b"three", slot_file, "_slot")
    syncs.clear()
    file.write(b"four")
    assert value_of(file) == b"four" and syncs == ["fsync", "fsync"]


def test_an_interrupt_when_a_larger_file_was_opened_keeps_its_geometry(
    file: SlotFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write(b"small")

    def interrupted(path: Path, flags: int) -> Descriptor:
        file._descriptor = Descriptor(path, flags)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(slot_file, "Descriptor", interrupted)
        with pytest.raises(KeyboardInterrupt):
            file.write(b"x" * 5000)
    for value in (b"y" * 4500, b"z", b"zz"):
        file.write(value)
        assert value_of(file) == value


def test_a_close_that_fails_is_no_error_and_is_not_repeated(file: SlotFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """The descriptor is gone then, and may be another file's."""
    file.write(b"one")
    closed: list[int] = []
    real = os.close

    def closes(descriptor: int) -> None:
        closed.append(descriptor)
        real(descriptor)
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(slot_file.os, "close", closes)
        file.close()
        file.close()
    assert len(closed) == 1


def test_a_value_that_is_larger_than_a_slot_gets_larger_slots(file: SlotFile) -> None:
    file.write(b"small")
    for size in (5000, 9000, 100_000, 10):
        file.write(b"x" * size)
        assert value_of(file) == b"x" * size


def test_a_file_that_was_removed_or_replaced_is_created_anew(file: SlotFile) -> None:
    file.write(b"one")
    file.path.unlink()
    file.write(b"two")
    assert value_of(file) == b"two"
    other = file.path.with_name("other")
    other.write_bytes(b"x")
    os.replace(other, file.path)
    file.write(b"three")
    assert value_of(file) == b"three"


def test_nothing_is_left_of_a_file_that_is_replaced_as_a_whole(file: SlotFile) -> None:
    file.write(b"one")
    file.write(b"two")
    file.replace(b"one")
    assert b"two" not in file.path.read_bytes()
    file.write(b"three")
    assert value_of(file) == b"three"


@pytest.mark.parametrize("data", [b"", b"{}", bytes(8192), b" " * 8191 + b"\n", b"0" * 8192])
def test_bytes_of_no_such_file_have_no_value(data: bytes) -> None:
    assert newest_value(data) is None


def test_a_disk_that_refuses_is_told_by_the_path(file: SlotFile, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write(b"one")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(slot_file.os, "pwrite", full)
        with pytest.raises(StorageError, match=f"can't write {file.path} .No space left on device"):
            file.write(b"two")
    file.write(b"three")
    assert value_of(file) == b"three"
