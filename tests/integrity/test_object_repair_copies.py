"""What a repair of a channel in a store puts aside before it changes anything."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from spillable_stream.integrity import object_repair_copies
from spillable_stream.integrity.findings import Finding, Loss, Report, Severity
from spillable_stream.integrity.object_repair_copies import ObjectRepairCopies
from spillable_stream.objects.location import Location
from spillable_stream.objects.store import StoreError
from tests.support.faulty_store import Fault, FaultyStore, once
from tests.support.memory_store import MemoryStore

DATA = bytes(range(100))


def report_of(*findings: Finding) -> Report:
    return Report(Location("s3", "bucket", "orders"), "a channel", findings, Loss(), 1, 2, 3)


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    store.objects |= {"log/1": DATA, "hint": b"a hint", "log/2": b"not concerned", "empty": b""}
    return store


def kept(store: MemoryStore, copies: ObjectRepairCopies) -> dict[str, bytes]:
    return {k.removeprefix(copies.prefix): v for k, v in store.objects.items() if k.startswith(copies.prefix)}


@pytest.mark.parametrize("piece_bytes", [1, 16, 50, 100, 1000])
def test_whole_objects_and_damaged_stretches_are_copied_and_then_the_report(
    store: MemoryStore, piece_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_repair_copies, "_PIECE_BYTES", piece_bytes)
    report = report_of(
        Finding(Severity.DAMAGE, Path("log/1"), "damaged", 10, 60),
        Finding(Severity.WARNING, Path("log/3"), "missing"),
        Finding(Severity.NOTE, Path("log/2"), "a note", 0, 4),
    )
    copies = ObjectRepairCopies(store)
    copies.keep(report, ["hint", "empty", "nothing"])
    found = kept(store, copies)
    assert json.loads(found.pop("/report.json")) == json.loads(json.dumps(report.as_dict()))
    assert found == {
        "/files/log/1": DATA,
        "/files/hint": b"a hint",
        "/files/empty": b"",
        "/damaged/log/1-10": DATA[10:70],
    }
    assert copies.address == f"{store.root}/{copies.prefix}"


def test_two_repairs_in_one_second_have_a_place_each(store: MemoryStore) -> None:
    prefixes = set()
    for _ in range(3):
        copies = ObjectRepairCopies(store)
        copies.keep(report_of(), [])
        prefixes.add(copies.prefix)
    assert len(prefixes) == 3
    assert all(re.match(r"quarantine/\d{8}T\d{6}Z(-\d)?\Z", prefix) for prefix in prefixes)


def test_without_a_copy_there_is_no_report(store: MemoryStore) -> None:
    copies = ObjectRepairCopies(FaultyStore(store, once("replace", Fault.REFUSED)))
    with pytest.raises(StoreError):
        copies.keep(report_of(), ["hint"])
    assert kept(store, copies) == {}
