"""`repair` gives up what can't be read, says exactly what that is, and keeps everything else."""

from __future__ import annotations

import json
import random
import shutil
import warnings
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spillable_stream import (
    BackupCheckpointWarning,
    Channel,
    ChannelBusyError,
    CorruptionError,
    DataLossError,
    ForeignDirectoryError,
    OptionError,
    Progress,
    StorageError,
)
from spillable_stream.format.frame import FrameType
from spillable_stream.integrity.repair import repair
from spillable_stream.integrity.verify import verify
from spillable_stream.log.frames import LocatedFrame
from spillable_stream.log.identity_file import read_identity
from spillable_stream.log.owner_file import OWNER_FILE
from spillable_stream.storage.filesystem import FileSystem
from tests.support.channels import (
    check_outcome,
    contents,
    contents_of_copy,
    fill,
    first_bytes,
    repaired,
    snapshot,
    spread,
    three_puts,
)
from tests.support.damage import age_head, flip, frames, kill, log_file, memory_of, offsets, reboot
from tests.support.delays import clock_of, deliver_all, put_late
from tests.support.events import numbered, peek, put, take
from tests.support.fake_files import Call, DeadDirectory, FaultyFileSystem

Open = Callable[..., Channel]
MEMORY = {"memory_capacity": 20, "overflow_timeout": 0}


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
    assert lossy > 1


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


@pytest.mark.parametrize("which", ["middle", "newest", "first"])
@pytest.mark.parametrize("checkpoints", ["kept", "removed"])
def test_a_missing_data_file_costs_what_was_in_it(path: Path, which: str, checkpoints: str) -> None:
    fill(path)
    before = contents_of_copy(path)
    if checkpoints == "removed":
        shutil.rmtree(path / "checkpoint")
    files = sorted((path / "data").glob("log-*"))
    with_events = [f for f in files if offsets(path, FrameType.PUT, int(f.name[4:]))]
    {"middle": with_events[len(with_events) // 2], "newest": files[-1], "first": files[0]}[which].unlink()
    report = repaired(path)
    check_outcome(before, contents(path), report)
    assert report.loss.lost or which == "first"


@pytest.mark.parametrize("missing", [["d0"], ["d1"], ["d0", "d1"], ["images"]])
def test_a_directory_elsewhere_that_is_missing_is_waited_for_and_given_up_only_if_it_is_created(
    tmp_path: Path, missing: list[str]
) -> None:
    """Its disk may not be mounted. A repair said that it was done, and the channel was refused ever after."""
    path = spread(tmp_path, checkpoint_dir=str(tmp_path / "images"))
    left = {"d0": b"b", "d1": b"a"}
    for name in missing:
        shutil.rmtree(tmp_path / name)
        left.pop(name, None)
    before = snapshot(path)
    with pytest.raises(
        CorruptionError, match=rf"can't be repaired: .*/{missing[0]} is missing: mount its disk; or, if"
    ):
        repair(path)
    assert snapshot(path) == before and not (tmp_path / missing[0]).exists()
    for name in missing:
        (tmp_path / name).mkdir()
    repair(path)
    assert verify(path).healthy
    assert sorted(first_bytes(path)) == sorted(left.values())


def test_a_data_directory_inside_of_the_channel_that_is_gone_is_created_by_one_repair(path: Path) -> None:
    fill(path)
    shutil.rmtree(path / "data")
    repair(path)
    assert verify(path).healthy
    with Channel(path, create=False) as channel:
        put(channel, b"it lives on")


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


def spilled(open_channel: Open) -> list[bytes]:
    """Create a channel with events in memory, on disk, and in memory again; it was killed."""
    channel = open_channel(**MEMORY)
    put(channel, *numbered(0, 20))
    put(channel, *numbered(20, 10))
    take(channel, 12)
    put(channel, *[b"in memory"] * 5)
    kill(channel)
    return numbered(12, 18) + [b"in memory"] * 5


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


# ── killed in between ───────────────────────────────────────────────────────────────────────────


class DyingFileSystem(FaultyFileSystem):
    """Dies at the n-th call that changes anything, and does nothing from then on."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self.left = calls
        self._fails = self._dies

    def _dies(self, call: Any) -> bool:
        self.left -= call.name not in ("read", "open")
        return self.left < 0


@pytest.mark.parametrize(
    ("damage", "step"),
    [
        *((damage, 7) for damage in ("file", "identity", "segment")),
        *(pytest.param(damage, 3, marks=pytest.mark.slow) for damage in ("file", "identity", "segment")),
        pytest.param("header", 1, marks=pytest.mark.slow),
    ],
)
def test_a_repair_that_is_killed_anywhere_is_done_by_the_next(
    path: Path, tmp_path: Path, damage: str, step: int
) -> None:
    fill(path, max_inline_bytes=300)
    before = contents_of_copy(path)
    files = sorted((path / "data").glob("log-*"))
    if damage == "segment":
        flip(max((path / "data").glob("segment.*")), 80)
    elif damage == "file":
        files[-1].unlink()
    else:
        flip(files[len(files) // 2], 100)
    if damage == "identity":
        (path / "channel.json").write_text("{")
    damaged = verify(path)
    number, finished = 0, False
    while not finished:
        number += step
        copy = tmp_path / f"copy-{number}"
        shutil.copytree(path, copy)
        try:
            repair(copy, fs=DyingFileSystem(number))
            finished = True
        except StorageError:
            _opens_unchanged_or_refuses(copy, before.last_id)
        report = repair(copy)
        assert verify(copy).healthy, f"killed at call {number}"
        kept = [json.loads(p.read_text()) for p in (copy / "quarantine").glob("*/report.json")]
        assert kept and (report.loss == damaged.loss or report.healthy or not report.loss.lost)
        check_outcome(before, contents(copy), damaged)
        shutil.rmtree(copy)
    assert number > 45


def test_a_repair_that_is_killed_again_and_again_keeps_what_is_in_memory(path: Path, open_channel: Open) -> None:
    bodies = spilled(open_channel)
    flip(log_file(path), offsets(path, FrameType.PUT)[0] + 60)
    for number in range(1, 200, 2):
        try:
            repair(path, fs=DyingFileSystem(number))
            break
        except StorageError:
            report = verify(path)
            assert report.damaged and report.loss.lost in {((21, 30),), ()}, f"killed at call {number}"
    assert verify(path).healthy and number > 15
    reports = [json.loads(p.read_text()) for p in (path / "quarantine").glob("*/report.json")]
    assert [[21, 30]] in [r["loss"]["lost"] for r in reports]
    with Channel(path, create=False) as channel:
        assert peek(channel) == [b for b in bodies if b not in numbered(20, 10)]


def _opens_unchanged_or_refuses(path: Path, last_id: int) -> None:
    """Prove that an open after a repair that was cut short gives nothing wrong to anybody."""
    copy = path.with_name(f"{path.name}-opened")
    shutil.copytree(path, copy)
    try:
        assert contents(copy).last_id >= last_id
    except (CorruptionError, DataLossError):
        pass
    finally:
        shutil.rmtree(copy)


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


def test_a_repair_that_is_interrupted_while_it_reads_changes_nothing(path: Path) -> None:
    def interrupt(now: Progress) -> None:
        if now.what == "repair":
            raise KeyboardInterrupt

    flip(log_file(path), three_puts(path)[1] + 4)
    before = snapshot(path)
    with pytest.raises(KeyboardInterrupt):
        repair(path, progress=interrupt)
    assert snapshot(path) == before


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


# ── files that are missing ──────────────────────────────────────────────────────────────────────


def test_whatever_data_file_is_missing_a_repaired_channel_opens(path: Path, tmp_path: Path) -> None:
    """Also one that has takes alone: the header of the next one says them, and an open needs the files before it."""
    with Channel(path, minimum_required_space=0, max_file_size=1500, checkpoint_on_close=False) as channel:
        for group in ("a", "b"):
            channel.consumer(group)
        for i in range(4):
            put(channel, b"%d" % i * 300)
            take(channel, 1, "a")
    shutil.rmtree(path / "checkpoint")
    before = contents_of_copy(path)
    files = sorted((path / "data").glob("log-*"))
    assert len(files) > 5
    shutil.copytree(path, tmp_path / "whole")
    for file in files:
        shutil.rmtree(path)
        shutil.copytree(tmp_path / "whole", path)
        file.unlink()
        report = verify(path)
        if not report.healthy:
            assert repair(path).loss == report.loss
        check_outcome(before, contents(path), report)


def test_the_newest_file_of_a_memory_tier_is_missed_and_the_others_keep_their_events(path: Path) -> None:
    channel = Channel(path, minimum_required_space=0, memory_capacity=100)
    put(channel, b"1", b"2")
    channel.checkpoint()
    put(channel, b"3", b"4")
    kill(channel)
    *_, second = sorted(memory_of(path).glob("memory-0*"))
    second.unlink()
    report = verify(path)
    assert path / "memory" / second.name in {found.path for found in report.findings}
    assert report.loss.lost == ((3, 4),)
    repair(path)
    assert first_bytes(path) == [b"1", b"2"]


def test_a_put_to_memory_bounds_no_take_that_the_data_files_hide(path: Path) -> None:
    channel = Channel(path, minimum_required_space=0, memory_capacity=2, overflow_timeout=0)
    put(channel, b"1")
    put(channel, b"2")
    put(channel, b"3", b"4", b"5")  # to disk
    assert take(channel, 4) == [b"1", b"2", b"3", b"4"]
    put(channel, b"6")  # to memory
    kill(channel)
    log_file(path).write_bytes(bytes(log_file(path).stat().st_size))
    repeated = repaired(path).loss.repeated["default"]
    again = contents(path).groups["default"].keys() & {1, 2, 3, 4}
    assert again == {1, 2} and again <= {i for first, last in repeated for i in range(first, last + 1)}


# ── what is left in part, or comes twice ────────────────────────────────────────────────────────


@pytest.mark.parametrize("where", ["inline", "staged", "moved"])
def test_a_transaction_that_is_left_in_part_is_named(path: Path, where: str) -> None:
    options: dict[str, Any] = {
        "inline": {},
        "staged": {"max_inline_bytes": 10},
        "moved": {"memory_capacity": 10, "overflow_timeout": 0},
    }[where]
    with Channel(path, minimum_required_space=0, checkpoint_on_close=False, **options) as channel:
        put(channel, b"whole")
        with channel.put_transaction() as tx:
            for body in (b"first", b"second", b"third"):
                tx.put_batch(pa.RecordBatch.from_pydict({"headers": [{}], "body": [body * 9]}, channel.schema))
    found = [f for f in (path / "data").iterdir() if b"second" * 9 in f.read_bytes()]
    flip(found[0], found[0].read_bytes().index(b"second" * 9))
    report = repaired(path)
    assert report.loss.lost == ((3, 3),)
    assert report.loss.partial == (tx.committed.transaction_id,)
    assert first_bytes(path) == [b"w", b"f", b"t"]


@pytest.mark.parametrize("where", ["inline", "moved"])
def test_a_transaction_whose_end_is_cut_off_is_named(path: Path, where: str) -> None:
    options: dict[str, Any] = {} if where == "inline" else {"memory_capacity": 10, "overflow_timeout": 0}
    with Channel(path, minimum_required_space=0, checkpoint_on_close=False, **options) as channel:
        with channel.put_transaction() as tx:
            for body in (b"first", b"second", b"third"):
                tx.put_batch(pa.RecordBatch.from_pydict({"headers": [{}], "body": [body * 9]}, channel.schema))
        put(channel, b"later")
    file = next(f for f in (path / "data").iterdir() if b"third" * 9 in f.read_bytes())
    file.write_bytes(file.read_bytes()[: file.read_bytes().index(b"third" * 9)])
    report = repaired(path)
    assert report.loss.lost == ((3, 4),)
    assert report.loss.partial == (tx.committed.transaction_id,)


def test_a_transaction_that_is_lost_or_left_as_a_whole_is_not_named_as_left_in_part(path: Path) -> None:
    at = three_puts(path)
    flip(log_file(path), at[1] + 60)
    assert repaired(path).loss.partial == ()


@pytest.mark.parametrize("hides", ["the end of the log", "what is before another put"])
def test_delayed_events_that_may_come_twice_are_counted(path: Path, hides: str) -> None:
    with Channel(path, minimum_required_space=0, checkpoint_on_close=False) as channel:
        clock = clock_of(channel)
        clock.pass_by(-100_000)  # so that what waits 10,000 seconds is due by now
        clock.begin_stretch(10_000)
        put_late(channel, 10_000, b"0", b"1")
        put_late(channel, 10_001, b"later")
        clock.pass_by(10_000)
        deliver_all(channel)
        assert channel.stats().delayed.events == 1
        if hides != "the end of the log":
            put(channel, b"2")
    commit = offsets(path, FrameType.COMMIT)[-1 if hides == "the end of the log" else -2]
    flip(log_file(path), commit + 50)
    if hides == "the end of the log":
        age_head(path)
    assert verify(path).loss.redelivered == repaired(path).loss.redelivered == 3  # all that were due by now


# ── the backup of checkpoints ───────────────────────────────────────────────────────────────────


def with_backup(tmp_path: Path) -> Path:
    """Create a channel with a copy of its checkpoint elsewhere, closed, and return its path."""
    return spread(tmp_path, backup_checkpoint_dir=str(tmp_path / "backup"))


@pytest.mark.parametrize("whose", ["channel", "backup"])
@pytest.mark.parametrize("kind", ["damaged", "missing"])
def test_one_repair_mends_the_owner_file_and_a_damaged_copy_of_a_checkpoint(
    tmp_path: Path, whose: str, kind: str
) -> None:
    path = with_backup(tmp_path)
    (copy,) = (tmp_path / "backup").glob("checkpoint-*")
    flip(copy, 60)
    if kind == "damaged":
        (tmp_path / whose / OWNER_FILE).write_bytes(b"{")
    else:
        (tmp_path / whose / OWNER_FILE).unlink()
    report = repair(path)
    assert (copy in {found.path for found in report.findings}) is ((whose, kind) != ("backup", "missing"))
    assert verify(path).healthy
    assert first_bytes(path) == [b"a", b"b"]


def test_a_damaged_owner_file_of_the_backup_is_mended(tmp_path: Path) -> None:
    path = with_backup(tmp_path)
    owner = tmp_path / "backup" / OWNER_FILE
    owner.write_bytes(b"{")
    report = repair(path)
    assert [found.path for found in report.findings if found.severity == "warning"] == [owner]
    assert verify(path).healthy
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert first_bytes(path) == [b"a", b"b"]


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize(("whose", "kind"), [("copy", "damaged"), ("copy", "missing"), ("backup", "damaged")])
def test_a_repair_of_a_copy_leaves_the_checkpoints_in_the_backup_of_its_original_alone(
    tmp_path: Path, whose: str, kind: str, opened: bool
) -> None:
    backup = {"backup_checkpoint_dir": str(tmp_path / "backup")}
    path, copy = tmp_path / "channel", tmp_path / "copy"
    with Channel(path, minimum_required_space=0, **backup) as channel:
        put(channel, b"a")
    shutil.copytree(path, copy)
    if opened:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BackupCheckpointWarning)
            assert first_bytes(copy) == [b"a"]
    with Channel(path, max_file_size=1000) as channel:
        put(channel, b"b" * 600)
        put(channel, b"c" * 600)
    if kind == "damaged":
        flip(tmp_path / whose / OWNER_FILE, 60)
    else:
        (tmp_path / whose / OWNER_FILE).unlink()
    if whose == "copy":
        flip(log_file(copy), 60)
    before = snapshot(tmp_path / "backup")
    healthy = verify(copy).healthy
    report = repair(copy)
    assert snapshot(tmp_path / "backup") == before
    assert report.healthy is healthy is (whose == "backup")
    assert verify(copy).healthy
    repair(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert first_bytes(path) == [b"a", b"b", b"c"]


def test_a_copy_is_known_for_one_after_its_repair(tmp_path: Path) -> None:
    """A second repair took what the first one had left to the original."""
    path, copy = tmp_path / "channel", tmp_path / "copy"
    with Channel(path, backup_checkpoint_dir=str(tmp_path / "backup"), minimum_required_space=0) as channel:
        put(channel, b"a")
    shutil.copytree(path, copy)
    for directory in (copy, tmp_path / "backup"):
        flip(directory / OWNER_FILE, 60)
    before = snapshot(tmp_path / "backup")
    repair(copy)
    assert verify(copy).healthy and repair(copy).healthy
    assert snapshot(tmp_path / "backup") == before


@pytest.mark.parametrize("kind", ["damaged", "missing"])
def test_a_repair_of_a_copy_leaves_a_data_directory_that_does_not_say_whose_it_is_to_the_original(
    tmp_path: Path, kind: str
) -> None:
    path, copy = tmp_path / "channel", tmp_path / "copy"
    with Channel(path, data_dirs=[str(tmp_path / "d0")], minimum_required_space=0) as channel:
        put(channel, b"a")
    shutil.copytree(path, copy)
    if kind == "damaged":
        flip(tmp_path / "d0" / OWNER_FILE, 60)
    else:
        (tmp_path / "d0" / OWNER_FILE).unlink()
    before = snapshot(tmp_path / "d0")
    with pytest.raises(ForeignDirectoryError, match=r"d0 can't be given .* is a copy of the channel at .*/channel,"):
        repair(copy)
    assert snapshot(tmp_path / "d0") == before
    repair(path)
    assert first_bytes(path) == [b"a"]


def test_a_repair_reads_the_copies_of_checkpoints_before_it_removes_them(tmp_path: Path) -> None:
    """They alone say the schema here, and the copy of a file goes to the quarantine before the file does."""
    path, backup = tmp_path / "channel", tmp_path / "backup"
    rows = pa.table({"n": [1, 2, 3]})
    with (
        Channel(path, schema=rows.schema, backup_checkpoint_dir=str(backup), minimum_required_space=0) as channel,
        channel.put_transaction() as tx,
    ):
        tx.put_batch(rows)
    shutil.rmtree(path / "checkpoint")
    flip(log_file(path), 60)
    (backup / OWNER_FILE).write_bytes(b"{")
    copies = {found.name: found.read_bytes() for found in backup.iterdir()}
    report = repair(path)
    assert report.quarantine is not None and report.loss.lost == ()
    kept = {found.name: found.read_bytes() for found in (report.quarantine / "files" / "backup").iterdir()}
    assert kept == copies
    said = json.loads((report.quarantine / "report.json").read_text())["findings"]
    assert [found["text"] for found in said] == [found.text for found in report.findings]
    assert backup / OWNER_FILE in {found.path for found in report.findings}
    assert verify(path).healthy
    with Channel(path, create=False) as channel, channel.take_transaction() as taken:
        found = taken.take_batch(10)
    assert found is not None and found["n"].to_pylist() == [1, 2, 3]


def test_what_is_found_behind_a_damaged_owner_file_of_the_backup_is_in_the_loss(tmp_path: Path) -> None:
    path, backup = tmp_path / "channel", tmp_path / "backup"
    with Channel(path, backup_checkpoint_dir=str(backup), minimum_required_space=0) as channel:
        put(channel, b"a")
    shutil.copytree(path, tmp_path / "older")
    with Channel(path, max_file_size=1000) as channel:
        put(channel, b"b" * 600)
        put(channel, b"c" * 600)
    shutil.rmtree(path)
    (tmp_path / "older").rename(path)
    (backup / OWNER_FILE).write_bytes(b"{")
    report = repair(path)
    ((first, last),) = report.loss.doubtful
    assert first == 2 and last > 1000
    assert report.quarantine is not None and [*(path / "quarantine").iterdir()] == [report.quarantine]
    assert {found.name for found in (report.quarantine / "files" / "backup").glob("checkpoint-*")}
    with Channel(path, create=False) as channel:
        assert put(channel, b"x") == (last + 1, last + 1)


@pytest.mark.parametrize("readable", [False, True])
def test_a_backup_that_refuses_does_not_stop_the_repair_of_owner_files(tmp_path: Path, readable: bool) -> None:
    path = with_backup(tmp_path)
    (path / OWNER_FILE).write_bytes(b"{")
    (tmp_path / "backup" / OWNER_FILE).write_bytes(b"{")
    flip(tmp_path / "d1" / "log-000001", 60)
    fs = DeadDirectory(tmp_path / "backup", readable=readable)
    repair(path, fs=fs)
    assert verify(path, fs=fs).damaged is False
    assert first_bytes(path) == [b"a", b"b"]


def test_a_directory_that_a_repair_gives_to_a_channel_is_durable_above_it(tmp_path: Path) -> None:
    """Events that are acknowledged from now on would be in a directory that a power cut may take."""
    path = spread(tmp_path)
    shutil.rmtree(tmp_path / "d0")
    (tmp_path / "d0").mkdir()
    fs = FaultyFileSystem()
    repair(path, fs=fs)
    names = [call for call in fs.calls if call.name in ("rename", "sync_directory")]
    names = names[names.index(Call("rename", "report.json")) :]  # from there on nothing else syncs the directory
    assert Call("sync_directory", tmp_path.name) in names[: names.index(Call("rename", OWNER_FILE))]
