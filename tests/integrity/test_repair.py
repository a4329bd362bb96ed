"""`repair` gives up what can't be read, says exactly what that is, and keeps everything else."""

from __future__ import annotations

import random
import shutil
import warnings
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream import Channel, ChannelBusyError, CorruptionError, OptionError, Progress
from spillable_stream.format.frame import FrameType
from spillable_stream.integrity.repair import repair
from spillable_stream.integrity.verify import verify
from spillable_stream.log.frames import LocatedFrame
from spillable_stream.log.identity_file import read_identity
from spillable_stream.storage.filesystem import FileSystem
from tests.support.channels import (
    check_outcome,
    contents,
    contents_of_copy,
    fill,
    repaired,
    snapshot,
    spilled,
    three_puts,
)
from tests.support.damage import age_head, flip, frames, kill, log_file, memory_of, offsets, reboot
from tests.support.events import numbered, peek, put, take

Open = Callable[..., Channel]


# ── what is not touched ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("locks", ["kept", "removed"])
def test_a_healthy_channel_is_not_touched(path: Path, locks: str) -> None:
    fill(path)
    if locks == "removed":
        (path / "open.lock").unlink()
    before = snapshot(path)
    report = repair(path)
    assert snapshot(path) == before
    assert report.healthy and report.quarantine is None


@pytest.mark.parametrize("damaged", [False, True])
def test_a_channel_that_is_open_is_refused(path: Path, open_channel: Open, damaged: bool) -> None:
    at = three_puts(path)
    channel = open_channel()
    if damaged:
        flip(log_file(path), at[0] + 60)
    before = snapshot(path)
    with pytest.raises(ChannelBusyError, match="is open on the host"):
        repair(path)
    assert snapshot(path) == before
    channel.close()
    assert repair(path).healthy is not damaged


def test_the_report_of_a_repair_is_about_what_it_found_and_a_verify_about_what_is_now(path: Path) -> None:
    at = three_puts(path)
    flip(log_file(path), at[1] + 60)
    report = repair(path)
    assert report.quarantine is not None and not report.healthy
    assert verify(path).healthy


def test_not_a_byte_of_a_data_file_is_changed(path: Path) -> None:
    at = three_puts(path)
    flip(log_file(path), at[1] + 60)
    before = log_file(path).read_bytes()
    repaired(path)
    assert log_file(path).read_bytes() == before


# ── what is lost, and what is not ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("seed", "head"),
    [
        pytest.param(
            seed, head, marks=[] if (seed, head) in ((0, "same boot"), (1, "earlier boot")) else pytest.mark.slow
        )
        for seed in range(3)
        for head in ("same boot", "earlier boot")
    ],
)
def test_exactly_the_reported_events_are_missing_wherever_bits_flip(
    path: Path, tmp_path: Path, seed: int, head: str
) -> None:
    fill(path, **({"max_inline_bytes": 400} if seed == 1 else {}))
    if head == "earlier boot":
        age_head(path)
    before = contents_of_copy(path)
    files = sorted((path / "data").iterdir()) + sorted((path / "checkpoint").iterdir())
    chosen = random.Random(seed)
    lossy = 0
    for number in range(25):
        copy = tmp_path / f"copy-{number}"
        shutil.copytree(path, copy)
        for file in chosen.sample(files, chosen.choice([1, 1, 2])):
            target = copy / file.relative_to(path)
            offset = _covered(copy, target, chosen)
            flip(target, offset, chosen.randrange(8))
            assert target in {f.path for f in verify(copy).findings}, f"{target} at {offset}"
        report = repaired(copy)
        check_outcome(before, contents(copy), report)
        assert verify(copy).healthy
        lossy += bool(report.loss.lost)
        shutil.rmtree(copy)
    assert lossy


def _covered(path: Path, file: Path, chosen: random.Random) -> int:
    """Return an offset in a file that some checksum covers: padding is not."""
    if file.name.startswith("log-"):
        found: list[LocatedFrame] = frames(path, int(file.name[4:]))
        if not found:
            return 0
        frame = chosen.choice(found)
        return frame.offset + chosen.randrange(48 + frame.header.length)
    return chosen.randrange(40)


def test_the_loss_is_what_groups_and_readers_see_of_a_lost_memory_tier(path: Path) -> None:
    at = three_puts(path)
    flip(log_file(path), at[1] + 60)
    assert repaired(path).loss.lost == ((3, 4),)
    with Channel(path, create=False) as channel:
        assert channel.stats().groups["default"].lost == ((3, 4),)
        assert list(channel.engine().state.lost) == [(3, 4)]
        assert put(channel, b"next") == (7, 7)
        assert peek(channel) == [b"1", b"20", b"21", b"next"]
    reboot(path)
    for _ in range(2):  # remembered by every later file too
        with Channel(path, create=False) as channel:
            assert list(channel.engine().state.lost) == [(3, 4)]
            with channel.engine().committing():
                channel.engine().log.tiers.disk.roll(channel.engine().state.small)


def test_a_group_that_is_created_after_a_repair_does_not_wait_for_what_is_lost(path: Path) -> None:
    at = three_puts(path)
    flip(log_file(path), at[2] + 60)
    repaired(path)
    with Channel(path, create=False) as channel:
        assert peek(channel, group="new") == [b"1", b"10", b"11"]


@pytest.mark.parametrize("checkpoints", ["kept", "removed"])
@pytest.mark.parametrize("which", [0, 1, -1])
def test_a_damaged_file_header_costs_no_event(path: Path, which: int, checkpoints: str) -> None:
    fill(path)
    file_id = read_identity(FileSystem(), path).log_files(FileSystem())[which]
    before = contents_of_copy(path)
    if checkpoints == "removed":
        shutil.rmtree(path / "checkpoint")
    flip(log_file(path, file_id), 100)
    report = repaired(path)
    assert report.loss.lost == ()
    check_outcome(before, contents(path), report)


@pytest.mark.parametrize("left", ["nothing", "zeros", "noise"])
@pytest.mark.parametrize("tier", ["disk", "memory"])
def test_a_file_without_a_whole_frame_is_damaged_though_no_head_says_that_it_counts(
    path: Path, open_channel: Open, tier: str, left: str
) -> None:
    """`verify` called it healthy, a repair did nothing, and an open refused it."""
    if tier == "disk":
        three_puts(path)
    else:
        channel = open_channel(memory_capacity=20)
        put(channel, b"taken")
        take(channel)
        channel.checkpoint()  # which begins a second file, and the first one is not needed any more
        put(channel, b"in memory")
        kill(channel)
    reboot(path)
    (file,) = [log_file(path)] if tier == "disk" else memory_of(path).glob("memory-*")
    file.write_bytes({"nothing": b"", "zeros": bytes(4096), "noise": b"noise" * 1000}[left])
    with pytest.raises(CorruptionError, match=r"header of .* is damaged"):
        open_channel()
    report = repaired(path)
    assert [f.text for f in report.findings if f.path.name == file.name and f.severity == "damage"] == [
        "the file's header is damaged"
    ]
    (doubtful,) = report.loss.doubtful
    with Channel(path, create=False, minimum_required_space=0) as channel:
        assert put(channel, b"next") == (doubtful[1] + 1, doubtful[1] + 1)


def test_damaged_checkpoints_are_taken_away_and_the_log_stays(path: Path) -> None:
    fill(path)
    before = contents_of_copy(path)
    checkpoint = max((path / "checkpoint").glob("checkpoint-*"))
    flip(checkpoint, 90)
    files = snapshot(path / "data")
    report = repaired(path)
    assert not checkpoint.exists() and snapshot(path / "data") == files
    check_outcome(before, contents(path), report)


def test_half_a_head_does_not_cost_the_last_transaction(path: Path) -> None:
    three_puts(path)
    before = contents_of_copy(path)
    head = (path / "head").read_bytes()
    newer = max((0, 128), key=lambda slot: int.from_bytes(head[slot : slot + 8], "little"))
    flip(path / "head", newer + 33)
    assert verify(path).healthy, "nobody holds the channel, so the head does not count"
    assert contents(path) == before


# ── the memory tier ─────────────────────────────────────────────────────────────────────────────


def test_damage_on_disk_costs_nothing_of_what_is_in_memory(path: Path, open_channel: Open) -> None:
    bodies = spilled(open_channel)
    flip(log_file(path), offsets(path, FrameType.PUT)[0] + 60)
    memory = memory_of(path)
    report = repaired(path)
    assert report.loss.lost == ((21, 30),)
    assert not memory.exists()
    with Channel(path, create=False) as channel:
        assert peek(channel) == [b for b in bodies if b not in numbered(20, 10)]
        assert put(channel, b"next") == (36, 36)


@pytest.mark.parametrize("part", ["header", "event"])
def test_damage_in_memory_costs_what_was_in_the_damaged_frame(path: Path, open_channel: Open, part: str) -> None:
    bodies = spilled(open_channel)
    file = max(memory_of(path).glob("memory-*"))
    data = file.read_bytes()
    flip(file, 100 if part == "header" else data.index(b"in memory"))
    report = repaired(path)
    assert report.loss.lost == (() if part == "header" else ((31, 35),))
    with Channel(path, create=False) as channel:
        assert peek(channel)[-25:] == (bodies if part == "header" else bodies[:-5])


def test_memory_that_is_gone_is_recorded_as_an_open_does(path: Path, open_channel: Open) -> None:
    spilled(open_channel)
    shutil.rmtree(memory_of(path))
    assert repaired(path).loss.lost == ((13, 20), (31, 35))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Channel(path, create=False) as channel:
            assert peek(channel) == numbered(20, 10)


def test_a_repaired_channel_lives_on(path: Path) -> None:
    """Old files go when their events are taken, and a channel that was repaired can be damaged and repaired again."""
    fill(path)
    flip(log_file(path, 4), 100)
    repaired(path)
    with Channel(path, create=False, max_file_size=2500) as channel:
        for group in ("fast", "slow"):
            assert len(take(channel, 1000, group)) > 20
        put(channel, *numbered(0, 50))
        channel.checkpoint()
        put(channel, b"more")
        channel.checkpoint()
        assert not log_file(path, 4).exists()
    assert verify(path).healthy
    newest = max(int(p.name[4:]) for p in (path / "data").glob("log-*"))
    flip(log_file(path, newest), 100)
    assert repaired(path).loss.lost == ()
    with Channel(path, create=False) as channel:
        assert peek(channel, group="fast") == [*numbered(0, 50), b"more"]
        assert put(channel, b"x") == (92, 92)


def test_a_damaged_image_of_an_earlier_repair_costs_nothing_more(path: Path) -> None:
    at = three_puts(path)
    flip(log_file(path), at[1] + 60)
    repaired(path)
    flip(log_file(path, 2), 100)
    report = repaired(path)
    assert set(report.loss.lost) <= {(3, 4)}
    assert [b for b in contents(path).groups["default"].values()] == [b"1", b"20", b"21"]


def test_a_repair_says_how_far_it_is_of_the_whole(path: Path) -> None:
    told: list[Progress] = []
    flip(log_file(path), three_puts(path)[1] + 4)
    repair(path, progress=told.append)
    assert [what for what, _ in groupby(told, lambda t: t.what)] == ["verify", "repair"]
    for what in ("verify", "repair"):
        fractions = [t.fraction for t in told if t.what == what]
        assert fractions[0] is not None and fractions[0] < 0.5 and fractions[-1] == 1.0


@pytest.mark.parametrize("value", [None, b"orders", 3, "a\0b"])
def test_what_is_not_a_path_is_refused_as_such(value: object) -> None:
    with pytest.raises(OptionError, match=r"path (must be a path|can't be)"):
        repair(value)  # type: ignore[arg-type]


def test_a_repair_forgets_all_recoveries_since_damage_may_hide_one(path: Path) -> None:
    three_puts(path)
    with Channel(path, checkpoint_on_close=False) as channel:
        (first,) = channel.engine().state.recoveries
        put(channel, b"after another recovery")
        assert channel.engine().state.recoveries[0] == first
    flip(log_file(path), offsets(path, FrameType.COMMIT)[-1] + 60)
    repair(path)
    with Channel(path) as channel:
        assert channel.engine().state.recoveries == []
        _, last_id = put(channel, b"x")
        assert [found.last_id for found in channel.engine().state.recoveries] == [last_id - 1]


@pytest.mark.parametrize("where", ["a side file", "a segment"])
def test_a_typed_channel_is_not_taken_for_one_of_events_by_what_is_not_in_its_log(path: Path, where: str) -> None:
    rows = pa.table({"n": list(range(200))})
    with (
        Channel(path, schema=rows.schema, max_inline_bytes=100, minimum_required_space=0) as channel,
        channel.put_transaction() as tx,
    ):
        if where == "a side file":
            tx.put_batch(rows, deliver_after="1h")
        else:
            tx.put_batch(rows)
    shutil.rmtree(path / "checkpoint")
    flip(log_file(path), 60)
    with pytest.raises(CorruptionError, match="nothing else says its schema"):
        repair(path)
