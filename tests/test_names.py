"""Names from outside: what each kind may be, and that none becomes a path that was not checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spillable_stream.errors import CorruptionError, OptionError
from spillable_stream.format.file_names import segment_tier
from spillable_stream.log.claim import make_directories
from spillable_stream.log.identity_file import planned_layout
from spillable_stream.log.staged_file import StagedFileWriter
from spillable_stream.names import check_group, check_owner, check_producer, parse_application, parse_name
from spillable_stream.option_types import CreationOptions
from spillable_stream.storage.filesystem import FileSystem

GOOD = ["g", "my-group_1.x", "群" * 80, "g" * 128, "a..b"]


HEX = "0a" * 16
BAD: list[Any] = [
    "", ".", "..", ".hidden", "../../x", "a/b", "/etc/x", "a\0b", "a\n", "\n", "a b", "a\\b", "g" * 129, "群" * 81,
    "\ud800", None, 7, b"g", ["g"],
]  # fmt: skip
BAD_SEGMENTS: list[Any] = [
    "segment.a", "segment.../../x.1.a", "segment.q.1.a/../../x", f"segment.q.1.{HEX}\n", f"segment.q.-1.{HEX}",
    f"segment.q.x.{HEX}",
    f"../segment.q.1.{HEX}", "log-000001", "memory-log-000001", "", None, "segment." + "q" * 129 + f".1.{HEX}",
]  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_names_of_groups_and_producers_are_returned_as_they_are(name: str) -> None:
    assert check_group(name) == check_producer(name) == parse_name(name) == name


@pytest.mark.parametrize("name", BAD, ids=ascii)
def test_what_can_be_no_files_name_is_refused(name: Any) -> None:
    with pytest.raises(OptionError, match="group must be letters"):
        check_group(name)
    with pytest.raises(OptionError, match="producer_id must be letters"):
        check_producer(name)
    with pytest.raises(ValueError):
        parse_name(name)


@pytest.mark.parametrize("name", [*BAD, "a.b", "ä"], ids=ascii)
def test_what_can_own_no_segment_is_refused_before_a_file_is_created(tmp_path: Path, name: Any) -> None:
    layout = planned_layout(tmp_path / "channel", CreationOptions())
    make_directories(FileSystem(), layout)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(OptionError, match="a query's ID must be"):
        check_owner(name)
    with pytest.raises(OptionError, match="a query's ID must be"):
        StagedFileWriter(FileSystem(), layout, name, 3)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", BAD, ids=ascii)
def test_no_path_is_made_of_a_name_that_is_not_allowed(tmp_path: Path, name: Any) -> None:
    layout = planned_layout(tmp_path, CreationOptions())
    for path_of in (layout.group_lock, layout.group_position, layout.group_query, layout.producer_lock):
        with pytest.raises(OptionError):
            path_of(name)


@pytest.mark.parametrize("name", BAD_SEGMENTS, ids=ascii)
def test_a_segment_that_a_forged_log_names_has_no_path(tmp_path: Path, name: Any) -> None:
    assert not segment_tier(name)
    with pytest.raises(CorruptionError, match="which is not the name of a segment"):
        planned_layout(tmp_path, CreationOptions()).segment_file(name)


def test_files_that_are_called_like_segments_and_are_none_are_left_alone(tmp_path: Path) -> None:
    layout = planned_layout(tmp_path, CreationOptions())
    make_directories(FileSystem(), layout)
    own = f"segment.q.1.{HEX}"
    for name in (own, "segment.x", f"segment.q.one.{HEX}", f"memory-{own}"):
        (layout.data_dirs[0] / name).touch()
    assert layout.segments(FileSystem()) == [own]


@pytest.mark.parametrize("value", ["a", 7, "my app: 8/9", "ä" * 512])
def test_an_application_may_be_called_anything_short(value: Any) -> None:
    assert parse_application(value) == str(value)


@pytest.mark.parametrize("value", ["", "\ud800", "a" * 1025, "ä" * 513], ids=ascii)
def test_an_application_that_a_log_cannot_hold_is_refused(value: Any) -> None:
    with pytest.raises(ValueError):
        parse_application(value)
