from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spillable_stream.engine.local.memory_origin import MemoryOrigin
from spillable_stream.storage.filesystem import FileSystem

FS = FileSystem()


@pytest.fixture
def origin(tmp_path: Path) -> MemoryOrigin:
    (tmp_path / "ram").mkdir()
    return replace(MemoryOrigin.here(FS, "0" * 32, tmp_path / "ram" / "tier", 7), in_memory=False)


@pytest.fixture
def earlier(origin: MemoryOrigin) -> MemoryOrigin:
    """The origin of a tier that was created before the machine was booted."""
    return replace(origin, boot="00" * 16)


def test_a_tier_that_is_not_where_it_was_created_in_this_boot_is_gone(origin: MemoryOrigin) -> None:
    assert origin.is_of_this_boot()
    assert origin.is_certainly_gone(FS)


def test_a_tier_on_another_file_system_may_come_back(origin: MemoryOrigin) -> None:
    assert not replace(origin, device=origin.device + 1).is_certainly_gone(FS)


def test_a_tier_whose_parent_is_not_there_may_come_back(origin: MemoryOrigin, tmp_path: Path) -> None:
    (tmp_path / "ram").rmdir()
    assert not origin.is_certainly_gone(FS)


def test_a_reboot_empties_shared_memory_of_the_same_machine(earlier: MemoryOrigin) -> None:
    assert not earlier.is_of_this_boot()
    in_memory = replace(earlier, in_memory=True)
    assert in_memory.is_certainly_gone(FS)
    assert not replace(in_memory, host="other").is_certainly_gone(FS)
    assert not replace(in_memory, machine="other").is_certainly_gone(FS)


def test_after_a_reboot_a_disk_has_to_be_mounted_before_a_tier_on_it_is_gone(earlier: MemoryOrigin) -> None:
    assert earlier.is_certainly_gone(FS)
    assert not replace(earlier, parent=earlier.parent + 1).is_certainly_gone(FS)
