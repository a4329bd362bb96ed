"""SIGKILL of producers at any call: what they acknowledged is there once, and input that is sent again is, too."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest

from spillable_stream import Channel, Producer, Result
from tests.lab.calls import kill_at, watching
from tests.lab.children import Child
from tests.lab.contents import contents
from tests.lab.ledger import LedgerFile, Outcome, body, check
from tests.lab.size import sized
from tests.lab.workload import OPTIONS

_ITEMS = 3_000


def send_until_killed(path: Path, ledger_path: Path, name: str, seed: int, producer_id: str | None) -> None:
    """Send lists of events, and write down which ones are about to be sent and which were acknowledged."""
    rng, ledger = random.Random(seed), LedgerFile(ledger_path)
    config = {"linger_ms": rng.choice([0, 1, 5]), "batch_count_threshold": rng.choice([1, 10, 100])}
    with (
        watching(kill_at(rng.randint(1, 200))),
        Channel(path, **OPTIONS) as channel,
        # One thread commits, so that the transactions come in the order in which the ledger has them.
        Producer(channel, producer_id=producer_id, io_thread_count=1, **config) as producer,
    ):
        for number in range(1, 100_000):
            count = rng.randint(1, 20)

            def acknowledged(result: Result, number: int = number) -> None:
                if result.successful:
                    ledger.write("ack", name, number, result.first_id)

            ledger.write("put", name, number, count)
            producer.send_many([body(name, number, i, count, 50) for i in range(count)], callback=acknowledged)
            if rng.random() < 0.05:
                producer.flush()


def resume_until_killed(path: Path, seed: int, dies: bool) -> None:
    """Send the numbers up to `_ITEMS` from where the last one stopped, in batches numbered by their ends."""
    rng = random.Random(seed)
    at = rng.randint(1, 300) if dies else 1 << 60
    with (
        watching(kill_at(at)),
        Channel(path, **OPTIONS) as channel,
        Producer(channel, producer_id="tail", io_thread_count=2, retries=2, base_retry_backoff_ms=1) as producer,
    ):
        start = producer.last_sequence()
        if rng.random() < 0.5:  # as a program does that is not told where it stopped
            start = max(0, start - rng.randint(0, 30) * 10)
        while start < _ITEMS:
            end = min(start + 10, _ITEMS)
            producer.send_many([b"%d" % i for i in range(start, end)], sequence=end)
            start = end


def kill_senders(directory: Path, cycles: int) -> None:
    with Channel(directory / "channel", **OPTIONS) as channel:
        channel.consumer("history")
    kills = 0
    for seed in range(cycles):
        name = f"sender-{seed}"
        do = partial(
            send_until_killed,
            directory / "channel",
            directory / f"{name}.ledger",
            name,
            seed,
            "steady" if seed % 2 else None,
        )
        with Child(do, directory / "stderr") as child:
            kills += child.killed_itself()
    outcome = Outcome.read(directory.glob("*.ledger"))
    with Channel(directory / "channel", **OPTIONS) as channel:
        assert check(outcome, contents(channel, "history")) == []
    assert kills == cycles
    assert len(outcome.acknowledged) > cycles, "they hardly worked"


def kill_resumers(directory: Path, cycles: int) -> None:
    kills = 0
    for seed in range(cycles + 1):
        do = partial(resume_until_killed, directory / "channel", seed, seed < cycles)
        with Child(do, directory / "stderr") as child:
            if seed < cycles:
                kills += child.killed_itself()
            else:
                assert child.wait() == 0
    with Channel(directory / "channel", **OPTIONS) as channel:
        found = list(contents(channel).bodies.values())
    assert found == [b"%d" % i for i in range(_ITEMS)]
    assert kills > cycles / 4


def test_what_a_killed_producer_acknowledged_is_there_once(shared_memory: Path) -> None:
    kill_senders(shared_memory, 12)


def test_input_that_is_resumed_after_kills_is_there_once_and_in_order(shared_memory: Path) -> None:
    kill_resumers(shared_memory, 12)


@pytest.mark.crash
@pytest.mark.timeout(3000)
def test_it_stays_so_over_many_kills(shared_memory: Path) -> None:
    for turn in range(sized(ci=1, full=20)):
        for kill in kill_senders, kill_resumers:
            (directory := shared_memory / f"{kill.__name__} {turn}").mkdir()
            kill(directory, 50)
