from __future__ import annotations

import pytest

from spillable_stream.format import file_names
from spillable_stream.format.file_names import Tier

HEX = "0123456789abcdef" * 2


@pytest.mark.parametrize("number", [1, 999_999, 1_000_000, (1 << 32) - 1])
def test_names_read_back(number: int) -> None:
    assert file_names.parse_data_file(file_names.data_file_name(number)) == number
    assert file_names.parse_memory_file(file_names.memory_file_name(number, 7)) == (number, 7)
    assert file_names.parse_checkpoint(file_names.checkpoint_name(number, 1 << 60)) == (number, 1 << 60)
    data, memory = file_names.data_file_name(number), file_names.memory_file_name(1, number)
    assert file_names.parse_spare(file_names.spare_name(data), Tier.DISK) == number
    assert file_names.parse_spare(file_names.spare_name(memory), Tier.MEMORY) == file_names.memory_file_id(1, number)
    assert file_names.parse_spare(file_names.spare_name(data), Tier.MEMORY) is None
    assert file_names.parse_spare(file_names.spare_name(memory), Tier.DISK) is None
    assert file_names.is_spare_segment(file_names.spare_segment_name(1 + number % 16))


@pytest.mark.parametrize(
    "name",
    [
        *("log-1", "log-000000", "log-0000001", "log-4294967296", "log-99999999999999999999", "log-000001.bak"),
        *(
            "log-000001\n",
            "log-\u0660\u0660\u0660\u0660\u0660\u0661",
            "log--00001",
            "log-+00001",
            "xlog-000001",
            "LOG-000001",
            "",
        ),
    ],
)
def test_other_names_are_not_data_files(name: str) -> None:
    assert file_names.parse_data_file(name) is None
    assert file_names.parse_memory_file(name.replace("log", "memory-000001")) is None
    assert file_names.parse_memory_file(name.replace("log-", "memory-") + "-000001") is None
    assert file_names.parse_checkpoint(f"checkpoint-{name.removeprefix('log-')}-000000000001") is None
    assert file_names.parse_spare(f"spare-memory-000001-{name}", Tier.MEMORY) is None
    assert file_names.parse_spare(f"spare-{name}", Tier.DISK) is None


@pytest.mark.parametrize("name", ["checkpoint-1-2", "checkpoint-000001-1", "checkpoint-000001-000000000001.old"])
def test_files_with_other_names_are_not_checkpoints(name: str) -> None:
    assert file_names.parse_checkpoint(name) is None


@pytest.mark.parametrize("name", [f"events/{7:020}", f"states/{7:020}", f"delays/{7:020}-{9:020}"])
def test_the_files_of_a_backup_have_numbers_and_a_token(name: str) -> None:
    key = f"{name}-{HEX}"
    assert file_names.is_copy(key)
    for other in (name, f"{key}0", f"{key}\n", key[:-1], f"inner/{key}", key.replace("/", "/inner/"), f"x{key}"):
        assert not file_names.is_copy(other)


def test_segments_have_an_owner_a_batch_and_a_uuid() -> None:
    assert file_names.segment_tier(f"segment.local.0.{HEX}") == "disk"
    assert file_names.segment_tier(f"memory-segment.0f0e-query.12.{HEX}") == "memory"
    for name in ("segment.bak", f"segment.local.x.{HEX}", f"segment.a.b.0.{HEX}", f"segment..0.{HEX}"):
        assert file_names.segment_tier(name) == ""
    for name in (
        f"segment.q.0.{HEX}0",
        f"segment.é.0.{HEX}",
        f"segment.q.-1.{HEX}",
        f"segment.q.0.{HEX}.bak",
        f"a.q.0.{HEX}",
    ):
        assert file_names.segment_tier(name) == ""


def test_files_of_groups() -> None:
    assert file_names.group_of("a.lock", "lock") == "a"
    assert file_names.group_of("a.lock.lock", "lock") == "a.lock"
    assert file_names.group_of("é-1_x.position", "position") == "é-1_x"
    for name in ("a.position", ".lock", ".a.lock", "a b.lock", "a/b.lock", "lock", "a.lock\n", "x" * 129 + ".lock"):
        assert file_names.group_of(name, "lock") is None


@pytest.mark.parametrize("name", ["00", "17", "1", "001", "01\n", "01.bak", "\u0660\u0661"])
def test_other_names_are_not_a_spare_segments(name: str) -> None:
    assert not file_names.is_spare_segment(f"spare-segment-{name}")
