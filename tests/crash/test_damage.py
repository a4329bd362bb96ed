"""Damage of every file, everywhere: healed, or refused with file and offset; never wrong data, never a hang."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from spillable_stream.format.frame import HEADER_SIZE_BYTES, FrameType
from tests.lab.damage_image import Image, make_image
from tests.lab.damage_kinds import (
    bit_flips,
    bursts,
    cuts,
    files_exchanged,
    frames_exchanged,
    noise,
    random_flips,
    sectors,
    stale,
    tails_glued,
)
from tests.lab.damage_lab import EVERY_HEAD, Damage, Head, wrongs
from tests.lab.mutants import broken
from tests.lab.size import sized
from tests.lab.workload import Program

_SHARED_MEMORY = Path("/dev/shm")
_LAST_RECORDS = 8

SPREAD = sized(ci=True, full=False)
"""Whether each damage is tried with one of the heads, in turn, and not with all."""


@pytest.fixture(scope="module")
def base() -> Iterator[Path]:
    """A directory where a sync costs nothing: what is damaged here was written."""
    base = Path(tempfile.mkdtemp(prefix="spillable-damage-", dir=_SHARED_MEMORY if _SHARED_MEMORY.exists() else None))
    yield base
    shutil.rmtree(base)


@pytest.fixture(scope="module")
def small(base: Path) -> Image:
    """One file, no checkpoint: nothing but the commits proves anything."""
    image = make_image(
        base / "small", rounds=1, without=("put_many", "checkpoint", "roll", "prepare_a_take", "use_again")
    )
    assert (len(image.names("log-")), image.names("checkpoint-")) == (1, [])
    return image


@pytest.fixture(scope="module")
def large(base: Path) -> Image:
    """Several files, segments, checkpoints and copies of them; the last word is a take.

    Every directory is inside the channel's: a flipped bit in the identity must not lead out of it.
    """
    options = {"max_file_size": 12_000, "backup_checkpoint_dir": str(base / "large" / "channel" / "backup")}
    return make_image(base / "large", rounds=2, seed=5, last=_after_a_checkpoint, **options)


@pytest.fixture(scope="module")
def taken(base: Path) -> Image:
    """A channel in use, of two disks: what was taken has left it."""
    directories = [str(base / "taken" / "channel" / name) for name in ("one", "two")]
    return make_image(base / "taken", rounds=3, seed=7, history=False, max_file_size=8_000, data_dirs=directories)


@pytest.fixture(scope="module")
def memory(base: Path) -> Image:
    """A channel whose process was killed while events were in memory and on disk."""
    return make_image(base / "memory", "small memory", rounds=2, last=_into_both_tiers)


def _after_a_checkpoint(program: Program) -> None:
    for step in (program.put_small, program.checkpoint, program.put_many, program.put_small, program.take_some):
        step()


def _into_both_tiers(program: Program) -> None:
    for step in (program.put_small, program.take_some, program.put_small, program.put_small):
        step()


def thinned(damages: Iterable[Damage], ci: int, full: int = 1) -> list[Damage]:
    """Keep every so many-th damage."""
    return list(damages)[:: sized(ci, full)]


def last_records(image: Image, name: str) -> int:
    """Return where the last records of a file begin."""
    frames = image.frames(name)
    return frames[-min(_LAST_RECORDS, len(frames))].offset


def header_end(image: Image, name: str) -> int:
    """Return where a file's first frame ends."""
    return image.frames(name)[0].end


# ── cuts ────────────────────────────────────────────────────────────────────────────────────────


def test_a_cut_without_a_head_leaves_the_longest_committed_beginning(small: Image) -> None:
    assert wrongs(small, thinned(cuts(small, small.newest), 59), [Head.NONE]) == []


@pytest.mark.crash
@pytest.mark.timeout(3600)
def test_the_newest_file_is_cut_at_every_byte(small: Image, large: Image) -> None:
    assert wrongs(small, thinned(cuts(small, small.newest), 37), [Head.NONE]) == []
    assert wrongs(small, thinned(cuts(small, small.newest), 127), [Head.SAME_BOOT, Head.OTHER_BOOT], SPREAD) == []
    assert wrongs(large, thinned(cuts(large, large.newest), 113), spread=SPREAD) == []


@pytest.mark.crash
@pytest.mark.timeout(3600)
def test_every_other_file_is_cut_at_every_byte(large: Image, taken: Image) -> None:
    for image, names in ((large, large.names("log-", "segment.")), (taken, taken.names("log-", "segment."))):
        for name in set(names) - {image.newest}:
            assert wrongs(image, thinned(cuts(image, name), 2_803, 3), spread=True) == []


@pytest.mark.crash
@pytest.mark.timeout(3600)
def test_memory_is_cut_at_every_byte(memory: Image) -> None:
    for name in memory.names("memory-"):
        assert wrongs(memory, thinned(cuts(memory, name), 389, 3), spread=SPREAD) == []


# ── flipped bits ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.crash
def test_flipped_bits_are_found_or_change_nothing(large: Image) -> None:
    flips = bit_flips(large, large.newest, 0, len(large.files[large.newest]))
    assert wrongs(large, thinned(flips, 701, 29), spread=SPREAD) == []


@pytest.mark.crash
@pytest.mark.timeout(7200)
def test_every_bit_of_the_last_records_and_of_the_headers_is_flipped(small: Image, large: Image) -> None:
    end = len(small.files[small.newest])
    last = bit_flips(small, small.newest, last_records(small, small.newest), end)
    assert wrongs(small, thinned(last, 73), spread=SPREAD) == []
    for name in [large.newest, *large.names("segment.")[:1]]:
        assert wrongs(large, thinned(bit_flips(large, name, 0, header_end(large, name)), 157), spread=True) == []


@pytest.mark.crash
@pytest.mark.timeout(7200)
def test_ten_thousand_flips_and_bursts_anywhere(large: Image, taken: Image, memory: Image) -> None:
    for seed, image in enumerate((large, taken)):
        names = image.names("log-", "segment.", "checkpoint-", "channel.json")
        assert wrongs(image, random_flips(image, names, sized(40, 10_000), seed), spread=True) == []
        assert wrongs(image, bursts(image, names, sized(30, 10_000), seed), spread=True) == []
    names = memory.names("memory-", "log-", "consumers.position")
    assert wrongs(memory, random_flips(memory, memory.names("memory-"), sized(15, 5_000), 3), spread=True) == []
    assert wrongs(memory, bursts(memory, names, sized(10, 5_000), 4), [Head.SAME_BOOT, Head.OTHER_BOOT], True) == []


# ── sectors, frames, files ──────────────────────────────────────────────────────────────────────


@pytest.mark.crash
@pytest.mark.timeout(3600)
def test_every_sector_and_page_is_zeroed_or_full_of_noise(small: Image, large: Image, memory: Image) -> None:
    for image in (small, large, memory):
        heads = EVERY_HEAD if image is not memory else (Head.SAME_BOOT, Head.OTHER_BOOT)
        for name in image.names("log-", "segment.", "memory-", "checkpoint-"):
            for size in (512, 4096):
                assert wrongs(image, thinned(sectors(image, name, size), 11), heads, spread=SPREAD) == []
                assert wrongs(image, thinned(noise(image, name, size, seed=size), 11), heads, spread=SPREAD) == []


def test_frames_that_are_swapped_doubled_or_gone_are_noticed(small: Image) -> None:
    assert wrongs(small, thinned(frames_exchanged(small, small.newest), 3), spread=True) == []


@pytest.mark.crash
@pytest.mark.timeout(3600)
def test_frames_of_every_file_are_swapped_doubled_and_deleted(large: Image, taken: Image, memory: Image) -> None:
    for image, kinds in ((large, ("log-", "segment.")), (taken, ("log-", "segment.")), (memory, ("memory-",))):
        for name in image.names(*kinds):
            assert wrongs(image, thinned(frames_exchanged(image, name), 19), spread=SPREAD) == []


@pytest.mark.crash
def test_files_that_are_swapped_or_gone_are_noticed(large: Image) -> None:
    assert wrongs(large, files_exchanged(large, large.names("log-", "segment.")), spread=SPREAD) == []


@pytest.mark.crash
def test_files_of_memory_that_are_swapped_or_gone_are_reported(memory: Image) -> None:
    names = memory.names("memory-", "log-")
    assert wrongs(memory, files_exchanged(memory, names), [Head.SAME_BOOT, Head.OTHER_BOOT], SPREAD) == []
    for name in names:
        assert wrongs(memory, [Damage(f"{name} removed", {name: None})]) == []


@pytest.mark.crash
def test_what_other_files_hold_is_glued_behind_the_newest(large: Image, memory: Image) -> None:
    assert wrongs(large, thinned(tails_glued(large, large.names("log-", "segment.")), 3), spread=SPREAD) == []
    assert wrongs(memory, tails_glued(memory, memory.names("log-", "memory-")), [Head.SAME_BOOT]) == []


def test_stale_files_and_those_of_another_channel_are_noticed(base: Path, large: Image) -> None:
    older = make_image(base / "older", rounds=1, seed=5, max_file_size=12_000)
    names = large.names("log-", "segment.", "checkpoint-")
    assert wrongs(large, stale(large, {n: d for n, d in older.files.items()}, names)) == []
    mine = {name: data[: header_end(large, name)] for name, data in large.files.items() if name in large.names("log-")}
    assert wrongs(large, stale(large, mine, names)) == []  # as they were when they were created


# ── what can be missed ──────────────────────────────────────────────────────────────────────────


@pytest.mark.crash
@pytest.mark.timeout(3600)
def test_a_checkpoint_is_a_cache(large: Image, taken: Image) -> None:
    """Cut, flipped, gone, or another one: replay of the log says the same."""
    for image in (large, taken):
        every = image.names("checkpoint-")
        newest = every[-1]
        size = len(image.files[newest])
        assert wrongs(image, thinned(cuts(image, newest, harmless=True), 131), spread=True) == []
        assert wrongs(image, thinned(bit_flips(image, newest, 0, size, harmless=True), 521), spread=True) == []
        exchanged = (d._replace(harmless=True) for d in files_exchanged(image, every))
        assert wrongs(image, exchanged, spread=SPREAD) == []
        none = [Damage("no checkpoint", dict.fromkeys(every), harmless=True)]
        empty = [Damage("empty checkpoints", dict.fromkeys(every, b""), harmless=True)]
        assert wrongs(image, none + empty) == []


@pytest.mark.crash
@pytest.mark.timeout(3600)
def test_the_head_is_a_cache(large: Image, memory: Image) -> None:
    for image, step in ((large, 43), (memory, 389)):
        heads = [Head.SAME_BOOT, Head.OTHER_BOOT]
        flips = bit_flips(image, "channel/head", 0, 512, harmless=True)
        assert wrongs(image, thinned(flips, step), heads, spread=True) == []
        assert wrongs(image, thinned(cuts(image, "channel/head", harmless=True), step), heads, spread=True) == []
        noisy = (d._replace(harmless=True) for d in noise(image, "channel/head", 64, seed=1))
        assert wrongs(image, noisy, heads, SPREAD) == []


def test_what_is_in_locks_and_positions_hinders_nobody(large: Image, memory: Image) -> None:
    for image in (large, memory):
        names = image.names("lock", "open.lock", "checkpoint.lock", "consumers.", "history.")
        garbage = [Damage(f"garbage in {n}", {n: bytes(range(256))}, harmless=True) for n in names]
        gone = [Damage(f"no {n}", {n: None}, harmless=True) for n in names]
        assert wrongs(image, garbage + gone, spread=SPREAD) == []
    for name in memory.names("consumers.position"):
        flips = bit_flips(memory, name, 0, len(memory.files[name]), harmless=True)
        assert wrongs(memory, thinned(flips, 67), spread=True) == []


@pytest.mark.crash
@pytest.mark.timeout(3600)
def test_every_bit_of_the_positions_is_flipped(memory: Image) -> None:
    for name in memory.names("consumers.position"):
        flips = bit_flips(memory, name, 0, len(memory.files[name]), harmless=True)
        assert wrongs(memory, thinned(flips, 17), spread=SPREAD) == []


@pytest.mark.crash
@pytest.mark.timeout(3600)
def test_every_bit_of_the_identity_is_flipped(taken: Image) -> None:
    name = "channel/channel.json"
    flips = bit_flips(taken, name, 0, len(taken.files[name]))
    assert wrongs(taken, thinned(flips, 13), spread=True) == []
    assert wrongs(taken, thinned(cuts(taken, name), 5), spread=True) == []


# ── the laboratory itself ───────────────────────────────────────────────────────────────────────


def test_the_laboratory_notices_that_checksums_are_skipped(small: Image) -> None:
    commit = small.frames(small.newest)[-1]  # of events whose checksum is wrong, Arrow may read what is not there
    assert commit.header.type is FrameType.COMMIT
    with broken("skip the checksum"):
        flips = bit_flips(small, small.newest, commit.offset + HEADER_SIZE_BYTES, commit.end, step=5)
        assert wrongs(small, flips) != []
