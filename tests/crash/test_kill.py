"""SIGKILL of producers and consumers at any moment, in loops."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.crash.harness import DISK, MEMORY, Harness
from tests.crash.ledger import Outcome, Said, body, check


def run(directory: Path, cycles: int, seed: int, configurations: Sequence[str]) -> None:
    harness, rng = Harness(directory, configurations=configurations), random.Random(seed)
    for i in range(cycles):
        harness.cycle(rng)
        if i % 5 == 4:
            assert harness.verdict() == []
    assert harness.verdict() == []
    assert harness.errors() == ""
    outcome = Outcome.read(directory.glob("*.ledger"))
    assert harness.kills >= 3 * cycles - 3  # nearly all were alive when they were killed
    assert len(outcome.acknowledged) > 5 * cycles and len(outcome.taken) > 5 * cycles, "they hardly worked"

    assert (harness.spilled > cycles) == (configurations != DISK)


TIERS = pytest.mark.parametrize("configurations", [DISK, MEMORY], ids=["disk", "memory"])


@TIERS
@pytest.mark.timeout(400)
def test_fifty_kills_lose_nothing_and_double_nothing(tmp_path: Path, configurations: Sequence[str]) -> None:
    run(tmp_path, 18, 20261121, configurations)


@TIERS
@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_a_thousand_kills_lose_nothing_and_double_nothing(tmp_path: Path, configurations: Sequence[str]) -> None:
    run(tmp_path, 340, 7, configurations)


@TIERS
@pytest.mark.parametrize(
    ("broken", "noticed"),
    [
        ("acknowledges too early", "was acknowledged and is lost"),
        ("commits in two halves", "is not whole"),
        ("forgets its takes", "times|came back"),
        ("publishes before it writes", "is damaged"),
    ],
)
def test_the_harness_notices_broken_code(
    tmp_path: Path, broken: str, noticed: str, configurations: Sequence[str]
) -> None:
    harness, rng = Harness(tmp_path, broken, configurations), random.Random(1)
    for _ in range(20):
        harness.cycle(rng)
        wrong = harness.verdict() + harness.errors().splitlines()
        if wrong:
            break
    assert any(re.search(noticed, w) for w in wrong), wrong


# ── the checker itself ──────────────────────────────────────────────────────────────────────────


def history(*transactions: tuple[str, int, int]) -> dict[int, bytes]:
    bodies = [body(name, number, i, count, 5) for name, number, count in transactions for i in range(count)]
    return dict(enumerate(bodies, 1))


def outcome(taken: tuple[int, ...] = (), in_doubt: tuple[int, ...] = ()) -> Outcome:
    found = Outcome({("p", 1): 2, ("p", 2): 1, ("p", 3): 2}, {("p", 1), ("p", 2)})
    found.taken.update(taken)
    found.in_doubt.update(in_doubt)
    return found


def saw(events: dict[int, Said]) -> Outcome:
    found = outcome(tuple(events))
    found.seen.update(events)
    return found


WHOLE = history(("p", 1, 2), ("p", 2, 1))


@pytest.mark.parametrize(
    ("said", "events", "remaining"),
    [
        (outcome(), WHOLE, [1, 2, 3]),
        (outcome((1, 2)), WHOLE, [3]),
        (outcome((1,), (2, 3)), WHOLE, [3]),
        (outcome(), history(("p", 1, 2), ("p", 2, 1), ("p", 3, 2)), [1, 2, 3, 4, 5]),  # in doubt: may be there
        (saw({1: ("p", 1, 0, 2)}), {i: WHOLE[i] for i in (2, 3)}, [2, 3]),  # taken events have left
    ],
)
def test_the_checker_accepts_what_is_right(said: Outcome, events: dict[int, bytes], remaining: list[int]) -> None:
    assert check(said, events, remaining) == []


@pytest.mark.parametrize(
    ("said", "events", "remaining", "wrong"),
    [
        (outcome(), history(("p", 1, 2)), [1, 2], "acknowledged and is lost"),
        (outcome(), history(("p", 1, 2), ("p", 2, 1), ("p", 9, 1)), [1, 2, 3, 4], "was never committed"),
        (outcome(), history(("p", 2, 1), ("p", 1, 2)), [1, 2, 3], "comes after a later one"),
        (outcome(), history(("p", 1, 2), ("p", 2, 1), ("p", 2, 1)), [1, 2, 3, 4], "out of order or there twice"),
        (outcome(), {i: WHOLE[i] for i in (1, 3)}, [1, 3], "have gaps"),
        (outcome((), ()), {1: WHOLE[1], 2: WHOLE[3]}, [1, 2], "is not whole"),
        (outcome((1, 1)), WHOLE, [2, 3], "taken 2 times"),
        (outcome((1,)), WHOLE, [1, 2, 3], "came back"),
        (outcome((1,)), WHOLE, [3], "event 2 is neither taken nor in the channel"),
        (saw({1: ("p", 1, 1, 2)}), WHOLE, [2, 3], "event 1 is another one than was taken"),
        (outcome(), WHOLE, [2, 1, 3], "remains is out of order"),
    ],
)
def test_the_checker_finds_what_is_wrong(
    said: Outcome, events: dict[int, bytes], remaining: list[int], wrong: str
) -> None:
    assert any(wrong in w for w in check(said, events, remaining))


def test_a_damaged_body_is_noticed() -> None:
    damaged = WHOLE[1].replace(b"x", b"y", 1)
    with pytest.raises(ValueError, match="damaged"):
        check(outcome(), {1: damaged}, [1])
