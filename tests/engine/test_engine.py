"""Group commit, following, checkpoints and cleaning, as one process and its threads see them."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import (
    Channel,
    ChannelBusyError,
    ChannelClosedError,
    CommitOutcomeUnknownError,
    CorruptionError,
    DataLossError,
    DiskSpaceError,
    Event,
    LockTimeoutError,
    StorageError,
)
from spillable_stream.format.record import NumberedBatch, Numbers
from spillable_stream.log.identity import read_identity
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import FileLock
from tests.support.damage import log_file
from tests.support.events import numbered, peek, put, take
from tests.support.fake_files import FaultyFileSystem, nth

Open = Callable[..., Channel]


def in_threads(count: int, work: Callable[[int], Any]) -> list[BaseException | None]:
    """Run ``work`` in threads at once and return what each raised."""
    raised: list[BaseException | None] = [None] * count

    def run(i: int) -> None:
        try:
            work(i)
        except BaseException as e:
            raised[i] = e

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


# ── group commit ────────────────────────────────────────────────────────────────────────────────


def while_the_lock_is_held(channel: Channel, count: int, work: Callable[[int], Any]) -> list[BaseException | None]:
    """Run ``work`` in threads that all wait for the channel's lock, then free it."""
    engine = channel.engine()
    blocker = FileLock.open(FileSystem(), engine.layout.lock)
    assert blocker.try_acquire()

    def free() -> None:
        # One thread waits for the lock with its own ticket; the others wait behind it.
        while engine.committer.group_commit.waiting() < count - 1:
            time.sleep(0.001)
        blocker.close()

    freer = threading.Thread(target=free)
    freer.start()
    raised = in_threads(count, work)
    freer.join()
    return raised


def test_threads_that_commit_at_once_share_one_sync(open_channel: Open) -> None:
    fs = FaultyFileSystem()
    channel = open_channel(fs=fs)
    fs.calls.clear()
    assert while_the_lock_is_held(channel, 8, lambda i: put(channel, *[b"%d" % i] * 10)) == [None] * 8
    assert fs.count("sync", "log") == 2  # of the thread that came first, and of the other seven
    bodies = peek(channel)
    assert sorted(bodies) == sorted(b"%d" % i for i in range(8) for _ in range(10))
    assert all(len(set(bodies[i : i + 10])) == 1 for i in range(0, 80, 10)), "transactions stay whole"


def test_a_request_that_is_refused_leaves_its_group_alone(open_channel: Open) -> None:
    channel = open_channel(overflow_capacity=100, keep_alive=0)
    raised = while_the_lock_is_held(channel, 8, lambda i: put(channel, *[b"%d" % i] * (200 if i == 3 else 10)))
    assert [type(e).__name__ for e in raised if e] == ["ChannelFullError"]
    assert len(peek(channel)) == 70


def test_a_request_that_can_not_be_encoded_leaves_its_group_alone(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=0)

    def work(i: int) -> None:
        with channel.put_transaction() as tx:
            tx.put_many(Event(b"%d" % i) for _ in range(10))
            if i == 3:
                tx.producer = NumberedBatch("\ud800", Numbers(1, 1))

    raised = while_the_lock_is_held(channel, 8, work)
    assert [type(e).__name__ for e in raised if e] == ["UnicodeEncodeError"]
    assert sorted(peek(channel)) == sorted(b"%d" % i for i in range(8) if i != 3 for _ in range(10))
    channel.close()
    (channel.path / "head").unlink()
    assert len(peek(open_channel())) == 70


def test_a_failed_sync_fails_every_commit_of_its_group(open_channel: Open) -> None:
    fs = FaultyFileSystem()
    channel = open_channel(fs=fs)
    with fs.failing(nth("sync", 2, "log")):
        raised = while_the_lock_is_held(channel, 8, lambda i: put(channel, b"%d" % i))
    assert [type(e) for e in raised if e] == [StorageError] * 7
    assert len(peek(channel)) == 1
    put(channel, b"later")
    assert len(peek(channel)) == 2


def test_an_unknown_outcome_closes_the_handle_and_the_next_open_settles_it(path: Path, open_channel: Open) -> None:
    fs = FaultyFileSystem()
    channel = open_channel(fs=fs)
    put(channel, b"kept")
    with fs.failing(lambda c: c.name == "sync"), pytest.raises(CommitOutcomeUnknownError, match="opened again"):
        put(channel, b"in doubt")
    for use in (lambda: put(channel, b"x"), lambda: peek(channel), channel.stats):
        with pytest.raises(ChannelClosedError, match="must be opened again"):
            use()
    channel.close()
    again = open_channel()
    assert peek(again) == [b"kept", b"in doubt"], "it is whole, and the recovery wrote and synced it anew"
    put(again, b"next")
    assert peek(again) == [b"kept", b"in doubt", b"next"]
    assert len(list((path / "data").glob("log-*"))) == 2, "a file whose sync failed is not written to again"


# ── every storage call may fail ─────────────────────────────────────────────────────────────────


def test_whichever_storage_call_fails_acknowledged_events_stay_and_others_do_not_come(tmp_path: Path) -> None:
    """A workload that rolls, stages, takes and checkpoints, with its n-th storage call failing, for every n."""

    def workload(channel: Channel, stored: list[bytes], taken: list[bytes]) -> int:
        failed = 0
        for i in range(6):
            bodies = [b"%d" % i * (300 if i % 3 else 900)] * 3
            try:
                put(channel, *bodies)
                stored += bodies
            except StorageError:
                failed += 1
            if i % 2:
                try:
                    taken += take(channel, 2)
                except StorageError:
                    failed += 1
            if i == 3:
                try:
                    channel.checkpoint()
                except StorageError:
                    failed += 1
        return failed

    number, unharmed = 0, False
    while not unharmed:
        number += 1
        fs, stored, taken = FaultyFileSystem(), list[bytes](), list[bytes]()
        path = tmp_path / str(number)
        options: dict[str, Any] = {"max_file_size": 2500, "max_inline_bytes": 2000, "minimum_required_space": 0}
        channel = Channel(path, checkpoint_on_close=False, **options)
        channel.close()
        channel = Channel(path, create=False, fs=fs)
        made = [0]

        def chosen(_: object, made: list[int] = made, number: int = number) -> bool:
            made[0] += 1
            return made[0] == number

        with fs.failing(chosen):
            workload(channel, stored, taken)
            unharmed = made[0] < number
        try:
            rest = take(channel)
        except ChannelClosedError:  # the outcome of a sync was unknown
            channel.close()
            channel = Channel(path, create=False)
            rest = take(channel)
        assert taken + rest == stored, f"call {number} failed"
        channel.close()
        (path / "head").unlink()
        with Channel(path, create=False) as again:
            assert peek(again) == [], f"call {number} failed"
    assert number > 100


# ── following other handles ─────────────────────────────────────────────────────────────────────


def test_handles_follow_each_other(open_channel: Open) -> None:
    one, two = open_channel(max_file_size=1500), open_channel()
    for i in range(20):
        put((one, two)[i % 2], b"%d" % i)
        assert one.stats().last_id == two.stats().last_id == i + 1
    assert take(two) == numbered(0, 20)
    assert one.stats().channel_size == 0


def test_a_handle_that_fell_behind_deleted_files_catches_up(open_channel: Open) -> None:
    behind, ahead = open_channel(max_file_size=1500), open_channel()
    for i in range(30):
        put(ahead, b"%d" % i)
        take(ahead)
        if i % 10 == 9:
            ahead.checkpoint()
    ahead.checkpoint()
    assert not log_file(ahead.path, 1).exists()
    put(ahead, b"new")
    assert behind.stats().channel_size == 1
    assert behind.stats().groups["default"].position == 30


def test_options_changed_by_one_handle_hold_for_all(open_channel: Open) -> None:
    one = open_channel()
    open_channel(overflow_capacity=7)
    assert one.options["overflow_capacity"] == 7


# ── space ───────────────────────────────────────────────────────────────────────────────────────


def test_a_full_drain_returns_the_disk_to_a_few_files(path: Path, open_channel: Open) -> None:
    channel = open_channel(max_file_size=20_000, max_inline_bytes=50_000)
    for i in range(60):
        put(channel, *[bytes(1000)] * (5 if i % 6 else 80))
    assert channel.stats().data_files > 15 and channel.stats().segments == 10
    take(channel, 10_000)
    channel.checkpoint()
    channel.checkpoint()
    put(channel, b"x")
    take(channel)
    channel.checkpoint()
    assert channel.stats().data_files <= 3 and channel.stats().segments == 0
    assert sum(f.stat().st_size for f in (path / "data").iterdir()) < 100_000


def test_files_stay_until_the_slowest_group_has_taken_them(open_channel: Open) -> None:
    channel = open_channel(max_file_size=1500)
    put(channel, b"0")
    peek(channel, group="slow")
    for i in range(1, 20):
        put(channel, b"%d" % i)
        take(channel, group="fast")
        channel.checkpoint()
    assert take(channel, group="slow") == numbered(0, 20)


def test_too_little_free_space_refuses_puts_and_not_takes(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, b"x")
    channel = open_channel(minimum_required_space=2**60)
    with pytest.raises(DiskSpaceError, match=r"bytes free, minimumRequiredSpace is 1,152,921,504,606,846,976"):
        put(channel, b"y")
    assert take(channel) == [b"x"]


# ── refusals ────────────────────────────────────────────────────────────────────────────────────


def test_a_lock_that_is_held_too_long_is_named(open_channel: Open) -> None:
    channel = open_channel(lock_timeout=0.05)
    blocker = FileLock.open(FileSystem(), channel.engine().layout.lock)
    assert blocker.try_acquire()
    with pytest.raises(LockTimeoutError, match=r"has held .*/lock for more than 0\.05 s"):
        put(channel, b"x")
    blocker.close()
    put(channel, b"y")
    assert peek(channel) == [b"y"]


def test_a_channel_that_another_host_has_open_is_refused(
    path: Path, open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another host shares the lock but not the boot ID."""
    from spillable_stream.engine.engine import Engine
    from spillable_stream.log import head

    open_channel()
    monkeypatch.setattr(head, "boot_id", lambda: bytes(16))
    with pytest.raises(ChannelBusyError, match="or its head is damaged, or that or a lock file"):
        Engine(FileSystem(), read_identity(FileSystem(), path), lock_timeout_seconds=0.05)


def test_a_head_damaged_under_open_handles_is_corruption_and_heals_when_they_close(
    path: Path, open_channel: Open
) -> None:
    channel = open_channel()
    put(channel, b"x")
    with (path / "head").open("r+b") as head:
        head.write(b"\xff" * 200)
    with pytest.raises(CorruptionError, match="the head is damaged; open the channel again"):
        put(channel, b"y")
    channel.engine().close()
    assert peek(open_channel()) == [b"x"]


def test_a_removed_segment_is_noticed_at_open(path: Path, open_channel: Open) -> None:
    with open_channel(max_inline_bytes=0) as channel:
        put(channel, *numbered(0, 5))
    next((path / "data").glob("segment.*")).unlink()
    with pytest.raises(DataLossError, match="the events 1 to 5 are missing: the file segment"):
        open_channel()


def test_an_interrupted_wait_withdraws_the_commit(open_channel: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while a commit waits for the lock: it is not committed later behind the caller's back."""
    channel = open_channel()
    engine = channel.engine()

    class Interrupted:
        def locked(self) -> bool:
            return False

        def __enter__(self) -> None:
            raise KeyboardInterrupt

        def __exit__(self, *_: object) -> None:
            """Never reached."""

    real = engine.committer.group_commit._lead
    engine.committer.group_commit._lead = Interrupted()  # type: ignore[assignment]
    tx = channel.put_transaction()
    tx.begin()
    tx.put(Event(b"withdrawn"))
    with pytest.raises(KeyboardInterrupt):
        tx.commit()
    tx.rollback()
    engine.committer.group_commit._lead = real
    put(channel, b"x")
    assert peek(channel) == [b"x"]


def test_handles_that_make_checkpoints_at_once_harm_none(path: Path, open_channel: Open) -> None:
    handles = [open_channel(max_file_size=1500) for _ in range(4)]

    def work(i: int) -> None:
        for _ in range(10):
            put(handles[i], b"%d" % i)
            handles[i].checkpoint()

    assert in_threads(4, work) == [None] * 4
    assert len(peek(handles[0])) == 40
    assert [f.name for f in (path / "checkpoint").iterdir() if f.suffix == ".tmp"] == []


def test_a_channel_whose_files_were_removed_says_so(path: Path, open_channel: Open) -> None:
    channel = open_channel()
    log_file(path).unlink()
    with pytest.raises(DataLossError, match="log-000001, the newest data file, is missing"):
        put(channel, b"x")


def test_replay_reads_headers_and_not_payloads(path: Path, open_channel: Open) -> None:
    with open_channel(checkpoint_interval=10**9) as channel:
        for _ in range(30):
            put(channel, *[bytes(200)] * 1000)
    size = sum(f.stat().st_size for f in (path / "data").iterdir() if f.name.startswith("log"))
    fs = FaultyFileSystem()
    with Channel(path, create=False, fs=fs, checkpoint_on_close=False) as channel:
        assert channel.stats().channel_size == 30_000
    assert fs.read_bytes < min(size, 30 * 200_000) / 5


# ── what a review found ─────────────────────────────────────────────────────────────────────────


def test_a_segment_that_is_gone_is_not_adopted(path: Path, open_channel: Open) -> None:
    channel = open_channel(max_inline_bytes=1000)
    tx = channel.put_transaction()
    tx.begin()
    tx.put(Event(bytes(5000)))
    tx._flush_events()
    next((path / "data").glob("segment.*")).unlink()
    with pytest.raises(StorageError, match="is gone or cut; nothing was committed"):
        tx.commit()
    tx.rollback()
    assert peek(channel) == []
    put(channel, b"x")
    channel.close()
    assert peek(open_channel()) == [b"x"]


def test_a_data_file_stays_while_it_holds_the_commit_of_a_live_segment(path: Path, open_channel: Open) -> None:
    """The log alone must do, checkpoints or not."""
    channel = open_channel(max_file_size=1500, max_inline_bytes=3000)
    put(channel, *[b"0"] * 5)
    put(channel, *[bytes(1000)] * 5)  # a segment
    take(channel, 5)
    for i in range(10):
        put(channel, b"%d" % i)
        channel.checkpoint()
    channel.close()
    shutil.rmtree(path / "checkpoint")
    (path / "head").unlink()
    assert peek(open_channel()) == [bytes(1000)] * 5 + numbered(0, 10)


def test_a_missing_checkpoint_directory_fails_no_commit(
    path: Path, open_channel: Open, caplog: pytest.LogCaptureFixture
) -> None:
    channel = open_channel(checkpoint_interval=1)
    shutil.rmtree(path / "checkpoint")
    time.sleep(1.1)  # the head keeps whole seconds
    put(channel, b"x")
    assert "no checkpoint was made" in caplog.text
    assert peek(channel) == [b"x"]
    with pytest.raises(ChannelClosedError, match=r"checkpoint was moved, removed or replaced"):
        channel.checkpoint()


def test_a_commit_does_not_wait_for_a_checkpoint_that_another_makes(open_channel: Open) -> None:
    channel = open_channel(checkpoint_interval=1, lock_timeout=60)
    other = FileLock.open(FileSystem(), channel.engine().layout.checkpoint_lock)
    assert other.try_acquire()
    time.sleep(1.1)
    started = time.monotonic()
    put(channel, b"x")
    assert time.monotonic() - started < 30
    other.close()


@pytest.mark.parametrize("whose", ["its own", "another's"])
def test_an_interrupt_while_the_state_is_applied_does_not_apply_it_twice(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    from spillable_stream.state.channel_state import ChannelState

    channel, other = open_channel(), open_channel()
    put(channel, b"0")
    real, applied = ChannelState.apply_record, [0]

    def apply(state: ChannelState, *arguments: Any) -> None:
        real(state, *arguments)
        applied[0] += 1
        if applied[0] == 1:
            raise KeyboardInterrupt

    if whose == "another's":
        put(other, b"1", b"2")
    monkeypatch.setattr(ChannelState, "apply_record", apply)
    with pytest.raises(KeyboardInterrupt):
        if whose == "another's":
            channel.stats()
        else:
            put(channel, b"1", b"2")
    monkeypatch.undo()
    assert peek(channel) == numbered(0, 3)
    channel.checkpoint()
    channel.close()
    other.close()
    assert peek(open_channel()) == numbered(0, 3)


def test_a_put_in_a_full_channel_wakes_when_a_take_came_right_after_the_refusal(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spillable_stream import ChannelFullError
    from spillable_stream.engine.group_commit import GroupCommit

    channel, other = open_channel(overflow_capacity=5, keep_alive=60), open_channel()
    put(channel, *numbered(0, 5))
    real = GroupCommit.submit

    def submit(commits: GroupCommit, request: Any) -> Any:
        try:
            return real(commits, request)
        except ChannelFullError:
            monkeypatch.undo()
            take(other, 3)
            raise

    monkeypatch.setattr(GroupCommit, "submit", submit)
    started = time.monotonic()
    put(channel, b"5")
    assert time.monotonic() - started < 30


def test_a_channel_that_was_removed_and_made_again_is_not_the_old_one(path: Path, open_channel: Open) -> None:
    """A handle of the old one would publish what no process sees."""
    old = open_channel()
    put(old, b"x")
    shutil.rmtree(path)
    new = open_channel()
    for use in (lambda: put(old, b"y"), lambda: peek(old), old.stats):
        with pytest.raises(ChannelClosedError, match=r"was moved, removed or replaced|was removed, or its head was"):
            use()
    put(new, b"z")
    assert peek(new) == [b"z"]
    old.engine().close()


def test_close_waits_for_the_commit_under_way(open_channel: Open) -> None:
    """What a commit stored is not reported as failed, and what close refused says so."""
    for _ in range(10):
        channel = open_channel()
        acknowledged: list[int] = []

        def work(i: int, channel: Channel = channel, acknowledged: list[int] = acknowledged) -> None:
            while True:
                acknowledged.append(put(channel, b"%d" % i)[0])

        def close(channel: Channel = channel, acknowledged: list[int] = acknowledged) -> None:
            while len(acknowledged) < 10:
                time.sleep(0.001)
            channel.close()

        closer = threading.Thread(target=close)
        closer.start()
        raised = in_threads(4, work)
        closer.join()
        assert [type(e) for e in raised] == [ChannelClosedError] * 4
        again = open_channel()
        assert again.stats().last_id == max(acknowledged)
        again.close()


def test_recovery_holds_one_append_in_memory_and_not_the_log(path: Path, open_channel: Open) -> None:
    import tracemalloc

    with open_channel() as channel:
        for _ in range(3000):
            put(channel, b"x")
    (path / "head").unlink()
    tracemalloc.start()
    with open_channel() as channel:
        assert channel.stats().channel_size == 3000
        _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20  # a mebibyte or two of buffers; every frame at once takes more than ten
