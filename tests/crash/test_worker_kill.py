"""SIGKILL of a worker at any call: every good event has its effect, every bad one is a dead letter, once."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from spillable_stream import Channel, Event, dead_letters
from spillable_stream.workers import transfer, worker
from tests.lab.calls import kill_at, watching
from tests.lab.children import Child
from tests.lab.object_worker import at_once, open_channel
from tests.lab.size import sized
from tests.lab.workload import OPTIONS
from tests.support.events import numbered, put

_NEVER = 1 << 60


def opened(directory: Path, name: str) -> Channel:
    """Open one of the two channels: on disk, or in a store where the directory's name says so."""
    if directory.name.startswith("store"):
        return open_channel(f"object+file://{directory}/{name}")
    return Channel(directory / name, **OPTIONS)


def is_bad(body: bytes, every: int) -> bool:
    """Tell whether an event always fails: one of ``every`` so many; none of 0, when the function is mended."""
    return every > 0 and int(body) % every == 7 % every


def work_until_killed(directory: Path, seed: int, dies_at: int, every: int, batch_size: int | None) -> None:
    """Work until nothing is left, or until the process is killed: note each effect in a sink with a key."""
    with (
        (directory / "sink").open("ab", buffering=0) as sink,
        at_once(),
        watching(kill_at(dies_at)),
        opened(directory, "channel") as channel,
        opened(directory, "dead") as dead,
    ):

        def function(given: Event | list[Event]) -> None:
            events = given if isinstance(given, list) else [given]
            if any(is_bad(event.body, every) for event in events):
                raise ValueError("always")
            sink.write(b"".join(b"%d %b\n" % (event.write_order_id, event.body) for event in events))

        channel.worker(
            "g", function, batch_size=batch_size, max_attempts=2, backoff=0, dead_letter=dead, threads=1 + seed % 3
        ).run(until_empty=True)


def replay_until_killed(directory: Path, dies_at: int) -> None:
    with (
        at_once(),
        watching(kill_at(dies_at)),
        opened(directory, "channel") as channel,
        opened(directory, "dead") as dead,
    ):
        dead_letters.replay(dead, channel)


def effects(directory: Path) -> dict[int, bytes]:
    """Return what the sink has by key."""
    return {int(key): body for key, body in (line.split() for line in (directory / "sink").read_bytes().splitlines())}


def kill_workers(directory: Path, events: int, every: int, kills: int, batch_size: int | None, seed: int = 0) -> None:
    rng, killed = random.Random(seed), 0
    with opened(directory, "channel") as channel:
        for first in range(0, events, 100):
            put(channel, *numbered(first, min(100, events - first)))
    bad = [body for body in numbered(0, events) if is_bad(body, every)]
    calls = 5 * events // (batch_size or 1) + 40 * len(bad)  # of all the work, about
    for turn in range(kills + 1):
        dies_at = rng.randint(50, 200 + 2 * calls // kills) if turn < kills else _NEVER
        do = partial(work_until_killed, directory, turn, dies_at, every, batch_size)
        with Child(do, directory / "stderr", 600) as child:
            killed += child.killed_itself() if turn < kills else child.wait()
    assert killed >= kills / 2, (directory / "stderr").read_text()

    assert effects(directory) == {i + 1: b"%d" % i for i in range(events) if not is_bad(b"%d" % i, every)}
    with opened(directory, "dead") as dead:
        letters = [row for batch in dead.read() for row in batch.to_pylist()]
    origins = Counter(dict(letter["headers"])["dead_letter_write_order_id"] for letter in letters)
    assert origins == Counter(str(int(body) + 1) for body in bad), "each bad event is a dead letter once"

    for _ in range(3):
        with Child(partial(replay_until_killed, directory, rng.randint(5, 60)), directory / "stderr") as child:
            child.wait()
    replay_until_killed(directory, _NEVER)
    work_until_killed(directory, 0, _NEVER, 0, batch_size)  # the function is mended
    found = effects(directory)
    assert len(found) == events and set(found) >= set(range(events + 1, events + len(bad) + 1)), "all got new IDs, once"
    assert Counter(found.values()) == Counter(numbered(0, events)), "each event has had its effect, under one ID"


def test_each_event_of_killed_workers_has_its_effect_or_is_a_dead_letter_once(shared_memory: Path) -> None:
    kill_workers(shared_memory, events=200, every=20, kills=10, batch_size=None)


def test_so_it_is_with_batches(shared_memory: Path) -> None:
    kill_workers(shared_memory, events=1000, every=50, kills=10, batch_size=50, seed=1)


def test_so_it_is_in_an_object_store(shared_memory: Path) -> None:
    (directory := shared_memory / "store").mkdir()
    kill_workers(directory, events=60, every=10, kills=8, batch_size=None, seed=2)


@pytest.mark.crash
@pytest.mark.parametrize("mutant", ["puts without its number", "commits nothing that is stored", "commits what is not"])
def test_a_transfer_that_is_broken_is_noticed(
    shared_memory: Path, monkeypatch: pytest.MonkeyPatch, mutant: str
) -> None:
    if mutant == "puts without its number":
        monkeypatch.setattr(transfer, "NumberedBatch", lambda *_: None)
    elif mutant == "commits nothing that is stored":
        monkeypatch.setattr(worker, "Transfer", _RollsBack)
    else:
        monkeypatch.setattr(worker, "Transfer", _Commits)
    with pytest.raises(AssertionError):
        for seed in range(10):
            (directory := shared_memory / str(seed)).mkdir()
            kill_workers(directory, events=60, every=2, kills=20, batch_size=None, seed=seed)


class _RollsBack(transfer.Transfer):
    def __init__(self, consumer: transfer.Consumer, to: Channel, name: str) -> None:
        for tx in consumer.prepared():
            consumer.release((), tx)
        super().__init__(consumer, to, name)


class _Commits(transfer.Transfer):
    def __init__(self, consumer: transfer.Consumer, to: Channel, name: str) -> None:
        for tx, ranges in consumer.prepared().items():
            consumer.commit(ranges, tx)
        super().__init__(consumer, to, name)


@pytest.mark.crash
@pytest.mark.timeout(3000)
def test_ten_thousand_events_with_a_hundred_bad_ones_outlive_twenty_kills(shared_memory: Path) -> None:
    for turn in range(sized(ci=1, full=10)):
        for place, batch_size in ("disk", None), ("disk", 100), ("store", 100):
            (directory := shared_memory / f"{place}-{turn}-{batch_size}").mkdir()
            kill_workers(directory, events=10_000, every=100, kills=20, batch_size=batch_size, seed=turn)
