"""Which log files count."""

from __future__ import annotations

from pathlib import Path

import pytest

from spillable_stream.errors import CorruptionError
from spillable_stream.format.file_names import memory_file_id
from spillable_stream.format.frame import FrameHeader, FrameType
from spillable_stream.format.head_page import TierEnd
from spillable_stream.format.record import FileHeader
from spillable_stream.log.chain import (
    NewestFile,
    first_of_chain,
    judge_newest_file,
    named_end,
    newest_generation,
    stale_file,
)
from spillable_stream.log.frames import LocatedFrame
from spillable_stream.log.layout import Layout
from spillable_stream.log.tail import pass_over, refuse

LAYOUT = Layout(Path("/channel"), "c", (Path("/channel/data"),), Path("/channel/checkpoint"), None)
COMMIT = LocatedFrame(64, FrameHeader(FrameType.COMMIT, 0, 1, 0, 0, 0, 0, 0), b"")


def header(file_id: int, previous: tuple[int, int] | None) -> FileHeader:
    return FileHeader("c", file_id, previous, {})


def chain(*numbers: int) -> dict[int, FileHeader | None]:
    """Return the headers of files each of which follows the one before it, ended at 100 times its number."""
    return {b: header(b, (a, 100 * a) if a else None) for a, b in zip((0, *numbers), numbers, strict=False)}


# ── the first file ──────────────────────────────────────────────────────────────────────────────


def test_a_header_names_the_end_of_the_file_before_it() -> None:
    assert named_end(header(2, (1, 100)), 1) == 100
    assert named_end(header(3, (2, 200)), 1) is None
    assert named_end(header(1, None), 1) is None
    assert named_end(None, 1) is None


def test_a_chain_begins_with_its_first_file() -> None:
    assert first_of_chain(LAYOUT, [1, 2, 3], chain(1, 2, 3).__getitem__, refuse) == 0


def test_files_before_a_break_are_left_over() -> None:
    headers = {**chain(1, 2), **chain(4, 5)} | {4: header(4, (3, 300))}
    assert first_of_chain(LAYOUT, [1, 2, 4, 5], headers.__getitem__, refuse) == 2


def test_a_file_of_a_repair_has_none_before_it() -> None:
    headers = chain(1, 2) | {3: header(3, None)}
    assert first_of_chain(LAYOUT, [1, 2, 3], headers.__getitem__, refuse) == 2


@pytest.mark.parametrize("damaged", [1, 2, 3])
def test_a_damaged_header_is_refused_or_passed_over(damaged: int) -> None:
    headers = chain(1, 2, 3) | {damaged: None}
    with pytest.raises(CorruptionError, match=f"the header of log-00000{damaged} is damaged"):
        first_of_chain(LAYOUT, [1, 2, 3], headers.__getitem__, refuse)
    assert first_of_chain(LAYOUT, [1, 2, 3], headers.__getitem__, pass_over) == 0


# ── the newest file ─────────────────────────────────────────────────────────────────────────────


def judge(headers: dict[int, FileHeader | None], published: int = 0, commit: LocatedFrame | None = None) -> NewestFile:
    return judge_newest_file(sorted(headers), headers.__getitem__, lambda: published, lambda: commit)


def test_a_newest_file_without_a_header_was_being_created() -> None:
    assert judge(chain(1, 2)) is NewestFile.WHOLE
    assert judge(chain(1, 2) | {3: None}, published=2) is NewestFile.UNFINISHED


def test_a_file_that_was_published_is_damaged() -> None:
    assert judge(chain(1, 2) | {3: None}, published=3) is NewestFile.DAMAGED


def test_a_file_that_holds_a_commit_was_whole_once() -> None:
    assert judge(chain(1, 2) | {3: None}, published=2, commit=COMMIT) is NewestFile.COMMITTED


def test_a_data_file_is_created_only_behind_one_that_is_whole() -> None:
    assert judge({1: None}) is NewestFile.DAMAGED
    assert judge({1: None, 2: None}) is NewestFile.DAMAGED


def test_the_first_file_of_a_memory_tier_may_be_unfinished() -> None:
    first, second = memory_file_id(3, 1), memory_file_id(3, 2)
    assert judge({first: None}) is NewestFile.UNFINISHED
    assert judge({second: None}) is NewestFile.DAMAGED  # there was one before it
    assert judge({first: None, second: None}) is NewestFile.UNFINISHED


def test_files_of_earlier_memory_tiers_do_not_count() -> None:
    old, new = memory_file_id(1, 7), memory_file_id(2, 1)
    assert newest_generation([old, new, new + 1]) == [new, new + 1]
    assert newest_generation([]) == []


# ── a file that came back ───────────────────────────────────────────────────────────────────────


def test_a_file_that_begins_before_what_was_published_is_stale() -> None:
    assert stale_file([1, 2, 3], chain(1, 2, 3).__getitem__, TierEnd(1, 101), 1) == 2
    assert stale_file([1, 2, 3], chain(1, 2, 3).__getitem__, TierEnd(1, 100), 1) is None


def test_a_left_over_before_the_start_makes_nothing_stale() -> None:
    assert stale_file([1, 2, 3], chain(1, 2, 3).__getitem__, TierEnd(1, 101), 2) is None
