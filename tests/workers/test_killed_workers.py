"""What the next worker knows of calls and failures: after a kill, a stop, a loss of power, a change of the group."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import Channel, Event, GroupOwnedError, OptionError, WorkerFailedError
from spillable_stream.channel.consumer import Consumer
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.workers.unfinished import Unfinished
from tests.lab.children import Child
from tests.lab.disk import Disk
from tests.lab.recorder import Operation, Recording, recording
from tests.support.events import put
from tests.support.object_channels import URL, kill, stores_in_memory


def work_until_killed(
    address: str, dead: str, done: Path, batch_size: int | None, threads: int, attempts: int
) -> Callable[[], None]:
    def die(event: Event) -> None:
        if event.body in (b"killer", b"13"):
            os.kill(os.getpid(), signal.SIGKILL)
        with done.open("a") as file:
            file.write(f"{event.write_order_id}\n")

    def work() -> None:
        with Channel(address) as channel:
            worker = channel.worker(
                "g",
                (lambda events: [die(event) for event in events]) if batch_size else die,
                batch_size=batch_size,
                threads=threads,
                max_attempts=attempts,
                backoff=0.01,
                dead_letter=dead,
            )
            worker.run(until_empty=True)

    return work


def runs_of(tmp_path: Path, address: str, **given: int | None) -> tuple[int, Counter[str], list[dict[str, str]]]:
    """Start a worker again until it ends in order; return how often, what it did, and the headers of dead letters."""
    done, dead = tmp_path / "done", tmp_path / "dead"
    work = work_until_killed(address, str(dead), done, **given)  # type: ignore[arg-type]
    runs = 0
    while (child := Child(work, tmp_path / f"stderr-{runs}")).wait():
        assert child.code == -signal.SIGKILL, (tmp_path / f"stderr-{runs}").read_text()
        runs += 1
        assert runs < 40
    with Channel(address) as channel:
        assert channel.stats().groups["g"].lag == 0
    with Channel(dead, minimum_required_space=0) as letters:
        headers = [dict(row["headers"]) for batch in letters.read() for row in batch.to_pylist()]
    return runs, Counter(done.read_text().split()), headers


@pytest.mark.parametrize(
    ("kind", "batch_size", "threads", "most_kills"),
    [
        ("disk", None, 1, 7),
        pytest.param("disk", 20, 1, 9, marks=pytest.mark.slow),
        pytest.param("disk", 7, 3, 14, marks=pytest.mark.slow),
        pytest.param("store", None, 1, 7, marks=pytest.mark.slow),
        pytest.param("store", 20, 2, 14, marks=pytest.mark.slow),
    ],
)
def test_events_that_kill_their_process_become_dead_letters_once_and_the_others_are_done(
    tmp_path: Path, kind: str, batch_size: int | None, threads: int, most_kills: int
) -> None:
    address = str(tmp_path / "c") if kind == "disk" else f"object+file://{tmp_path}/c"
    with Channel(address) as channel:
        put(channel, *(b"killer" if i == 3 else b"%d" % i for i in range(1, 31)))
    runs, done, headers = runs_of(tmp_path, address, batch_size=batch_size, threads=threads, attempts=3)
    assert set(done) == {str(i) for i in range(1, 31)} - {"3", "13"}
    assert sorted(header["dead_letter_write_order_id"] for header in headers) == ["13", "3"]
    for header in headers:
        assert header["dead_letter_error_code"] == "WorkerKilledError"
        assert header["dead_letter_error_message"] == "the process ended during this event (attempt 3)"
        assert header["dead_letter_attempts"] == "3"
    assert runs <= most_kills


def test_without_dead_letters_an_event_that_kills_stops_the_worker_instead(tmp_path: Path) -> None:
    path = tmp_path / "c"
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, b"killer")

    def die() -> None:
        with Channel(path, minimum_required_space=0) as channel:
            worker = channel.worker("g", lambda event: os._exit(9), max_attempts=1)
            worker.run(until_empty=True)

    assert [Child(die, tmp_path / "stderr").wait() for _ in range(2)] == [9, 9]
    with Channel(path, minimum_required_space=0) as channel:
        worker = channel.worker("g", lambda event: os._exit(9), max_attempts=1)
        with pytest.raises(WorkerFailedError, match=r"failed once for the event 1 .*ended during this event"):
            worker.run(until_empty=True)


def test_a_killer_is_known_to_the_worker_that_comes_after_one_which_stopped_for_it(tmp_path: Path) -> None:
    path = tmp_path / "c"
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, b"killer")

    def die() -> None:
        with Channel(path, minimum_required_space=0) as channel:
            channel.worker("g", lambda event: os._exit(9), max_attempts=1).run(until_empty=True)

    assert [Child(die, tmp_path / "stderr").wait() for _ in range(2)] == [9, 9]
    for _ in range(3):
        with Channel(path, minimum_required_space=0) as channel:
            worker = channel.worker("g", lambda event: os._exit(9), max_attempts=1)
            with pytest.raises(WorkerFailedError, match=r"raise max_attempts"):
                worker.run(until_empty=True)
    called: list[bytes] = []
    with Channel(path, minimum_required_space=0) as channel:  # it is mended
        worker = channel.worker("g", lambda event: called.append(event.body), max_attempts=2, backoff=0)
        worker.run(until_empty=True)
    assert called == [b"killer"]


def test_a_worker_that_ends_in_order_and_has_done_all_leaves_nothing_behind(tmp_path: Path) -> None:
    with Channel(tmp_path / "c", minimum_required_space=0) as channel, Channel(tmp_path / "dead") as dead:
        put(channel, b"a")
        channel.worker("g", lambda event: None).run(until_empty=True)
        assert "worker" not in channel.engine().owners.owner_of("g")
        put(channel, b"b")
        channel.worker("g", lambda event: 1 / 0, max_attempts=2, backoff=0, dead_letter=dead).run(until_empty=True)
        assert "worker" not in channel.engine().owners.owner_of("g")


def stopped_at_the_first_failure(channel: Channel, letters: Channel, called: list[bytes]) -> None:
    def fail(event: Event) -> None:
        called.append(event.body)
        if event.body == b"bad":
            worker.stop()
            raise ValueError("always")

    worker = channel.worker("g", fail, max_attempts=3, backoff=0, dead_letter=letters)
    worker.run(until_empty=True)


def restarted_until_dead(open_channel: Callable[[], Channel], dead: Path) -> tuple[list[bytes], list[dict[str, str]]]:
    """Stop a worker in order after each failure and start another one; return the calls, and the dead letters."""
    called: list[bytes] = []
    for _ in range(4):
        with open_channel() as channel, Channel(dead) as letters:
            stopped_at_the_first_failure(channel, letters, called)
            found = [dict(row["headers"]) for batch in letters.read() for row in batch.to_pylist()]
    with open_channel() as channel:
        assert channel.stats().groups["g"].lag == 0
    return called, found


def test_an_event_reaches_its_attempts_though_the_worker_is_restarted_between_them(tmp_path: Path) -> None:
    with Channel(tmp_path / "c") as channel:
        put(channel, b"bad", b"good")
    called, found = restarted_until_dead(lambda: Channel(tmp_path / "c"), tmp_path / "dead")
    assert Counter(called) == {b"bad": 3, b"good": 1}
    assert [(h["dead_letter_attempts"], h["dead_letter_error_code"]) for h in found] == [("3", "ValueError")]


def test_so_it_is_in_an_object_store_and_the_group_is_free_at_once(tmp_path: Path) -> None:
    with stores_in_memory():
        with Channel(URL, commit_interval=0) as channel:
            put(channel, b"bad", b"good")
        called, found = restarted_until_dead(lambda: Channel(URL, commit_interval=0), tmp_path / "dead")
        assert Counter(called) == {b"bad": 3, b"good": 1}
        assert [h["dead_letter_attempts"] for h in found] == ["3"]
        with Channel(URL, commit_interval=0) as channel:
            assert "g" not in channel.engine().state.owners, "a worker that has done all leaves nothing"


def test_in_a_store_one_that_left_a_note_can_take_no_more_and_looks_gone(tmp_path: Path) -> None:
    with stores_in_memory(), Channel(URL, commit_interval=0) as channel:
        put(channel, b"bad")
        consumer = channel.consumer("g")
        ownership, epoch = consumer._ownership, channel.engine().state.owners["g"].epoch
        consumer.leave_note("a worker that stopped; failed 1x2")
        consumer.close()
        owner = channel.engine().state.owners["g"]
        assert owner.epoch > epoch and not channel.engine().owners.look("g").is_alive
        with pytest.raises(GroupOwnedError):
            ownership.require()
        assert "failed 1x2" in Consumer(channel.engine(), "g").former_owner


def test_an_event_that_failed_often_enough_is_called_again_by_a_worker_that_comes_later(tmp_path: Path) -> None:
    with Channel(tmp_path / "c", minimum_required_space=0) as channel:
        put(channel, b"bad")
        for times in ("once", "2 times", "3 times"):
            with pytest.raises(WorkerFailedError, match=f"failed {times} for the event 1"):
                channel.worker("g", lambda event: 1 / 0, max_attempts=1, backoff=0).run(until_empty=True)
        channel.worker("g", lambda event: None, max_attempts=1, backoff=0).run(until_empty=True)  # it is mended
        assert channel.stats().groups["g"].lag == 0


def test_no_note_is_written_where_all_succeeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    monkeypatch.setattr(Consumer, "write_note", lambda self, note: written.append(note))
    with Channel(tmp_path / "c", minimum_required_space=0) as channel:
        put(channel, *(b"%d" % i for i in range(100)))
        channel.worker("g", lambda events: None, batch_size=10, threads=2).run(until_empty=True)
    assert written == []


def test_in_a_store_the_note_is_said_again_under_the_same_ownership() -> None:
    with stores_in_memory(), Channel(URL, commit_interval=0) as channel:
        consumer = channel.consumer("g")
        epoch = channel.engine().state.owners["g"].epoch
        consumer.write_note(Unfinished(5, [[(1, 1)]], []).note())
        owner = channel.engine().state.owners["g"]
        assert owner.epoch == epoch
        assert Unfinished.parse(owner.note) == Unfinished(5, [[(1, 1)]], [])
        put(channel, b"a")
        assert consumer.commit(consumer.claim(1))
        kill(channel)


def test_a_group_that_is_created_again_knows_nothing_of_the_failures_of_the_one_that_was_dropped(
    tmp_path: Path,
) -> None:
    with stores_in_memory():
        for path in (str(tmp_path / "c"), URL):
            with Channel(path) as channel, Channel(tmp_path / "dead") as letters:
                put(channel, b"bad")
                stopped_at_the_first_failure(channel, letters, [])
                channel.drop_group("g")
                assert "failed" not in channel.consumer("g").former_owner


def test_a_group_that_is_moved_back_knows_nothing_of_failures_from_before(tmp_path: Path) -> None:
    with stores_in_memory():
        for path in (str(tmp_path / "c"), URL):
            with Channel(path) as channel, Channel(tmp_path / "dead") as letters:
                put(channel, b"bad")
                stopped_at_the_first_failure(channel, letters, [])
                channel.seek("g", "earliest")
                assert "failed" not in channel.consumer("g").former_owner


def test_a_seek_that_is_refused_leaves_what_is_known_of_failures(tmp_path: Path) -> None:
    with Channel(tmp_path / "c") as channel, Channel(tmp_path / "dead") as letters:
        put(channel, b"bad")
        stopped_at_the_first_failure(channel, letters, [])
        with pytest.raises(OptionError):
            channel.seek("g", 99)
        assert "failed 1x1" in channel.consumer("g").former_owner


def durable_note(done: Recording) -> str:
    """Return what is on the medium of the note about the group's owner, where nothing but syncs has brought it there.

    Also at the moment at which the log is synced last: what makes the change durable comes after the note.
    """
    disk, at_the_last_sync = Disk(), b""
    for operation in done.operations:
        assert isinstance(operation, Operation)
        disk.do(operation)
        found = disk.after([]).names.get("c/groups/g.lock", b"")
        assert isinstance(found, bytes)
        if operation.name == "sync" and "log-" in operation.path:
            at_the_last_sync = found
    assert at_the_last_sync == found
    return found.decode()


def seek(channel: Channel) -> None:
    channel.seek("g", "earliest")


def seek_as_owner(channel: Channel) -> None:
    channel.consumer("g").seek(0)


def drop(channel: Channel) -> None:
    channel.drop_group("g")


@pytest.mark.parametrize("change", [seek, seek_as_owner, drop])
def test_no_loss_of_power_after_a_change_of_the_group_brings_its_failures_back(
    change: Callable[[Channel], None], tmp_path: Path
) -> None:
    with recording(tmp_path) as done, Channel(tmp_path / "dead") as letters:
        channel = Channel(tmp_path / "c")
        put(channel, b"bad")
        stopped_at_the_first_failure(channel, letters, [])
        note = FileSystem().open(tmp_path / "c/groups/g.lock")
        note.sync()  # as the kernel does in its own time
        note.close()
        FileSystem().sync_directory(tmp_path / "c/groups")
        change(channel)
    assert "failed" not in durable_note(done)
    channel.close()


def test_no_loss_of_power_after_the_stop_of_a_worker_takes_its_failures_away(tmp_path: Path) -> None:
    with Channel(tmp_path / "dead") as letters, recording(tmp_path) as done:
        channel = Channel(tmp_path / "c")
        put(channel, b"bad")
        stopped_at_the_first_failure(channel, letters, [])
        FileSystem().sync_directory(tmp_path / "c/groups")
        put(channel, b"the log is synced")
    assert "failed 1x1" in durable_note(done)
    channel.close()
