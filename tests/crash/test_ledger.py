"""The checker itself: what it accepts and what it finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.ledger import Found, Outcome, Said, body, check, parse_body


def bodies(*transactions: tuple[str, int, int]) -> dict[int, bytes]:
    found = [body(name, number, i, count, 5) for name, number, count in transactions for i in range(count)]
    return dict(enumerate(found, 1))


def outcome(taken: tuple[int, ...] = (), in_doubt: tuple[int, ...] = ()) -> Outcome:
    found = Outcome({("p", 1): 2, ("p", 2): 1, ("p", 3): 2}, {("p", 1): 1, ("p", 2): 3})
    found.taken.update(taken)
    found.in_doubt += [list(in_doubt)] if in_doubt else []
    return found


def saw(events: dict[int, Said]) -> Outcome:
    found = outcome(tuple(events))
    found.seen.update(events)
    return found


def brief(count: int) -> Outcome:
    """The last events of the first transaction expire at once."""
    found = outcome()
    found.brief["p", 1] = count
    return found


WHOLE = bodies(("p", 1, 2), ("p", 2, 1))


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (outcome(), Found(WHOLE, [1, 2, 3])),
        (outcome((1, 2)), Found(WHOLE, [3])),
        (outcome((1, 2), (2, 3)), Found(WHOLE, [3])),  # retaken later
        (outcome((1,), (2, 3)), Found(WHOLE, [2, 3])),
        (outcome((), (1, 2, 3)), Found(WHOLE, [])),
        (outcome(), Found(bodies(("p", 1, 2), ("p", 2, 1), ("p", 3, 2)), [1, 2, 3, 4, 5])),  # in doubt: may be there
        (saw({1: Said("p", 1, 0, 2)}), Found({i: WHOLE[i] for i in (2, 3)}, [2, 3])),  # taken events have left
        (outcome(), Found({3: WHOLE[3]}, [3], lost=[(1, 2)])),
        (brief(1), Found({i: WHOLE[i] for i in (1, 3)}, [1, 3], expired=1)),
        (brief(1), Found({i: WHOLE[i] for i in (1, 3)}, [1, 3], passed=1)),
        (brief(1), Found(WHOLE, [1, 2, 3])),  # it was not yet over
        (brief(1), Found({i: WHOLE[i] for i in (1, 3)}, [1, 3], is_counted=False)),
        (outcome(), Found(bodies(("p", 1, 2)), [1, 2], doubtful=[(3, 1 << 60)])),
        (outcome(), Found({**bodies(("p", 1, 2), ("p", 2, 1)), 9: body("p", 3, 0, 2, 0), 10: body("p", 3, 1, 2, 0)},
                          [1, 2, 3, 9, 10], doubtful=[(4, 8)])),
    ],
)  # fmt: skip
def test_the_checker_accepts_what_is_right(said: Outcome, found: Found) -> None:
    assert check(said, found) == []


@pytest.mark.parametrize(
    ("said", "found", "wrong"),
    [
        (outcome(), Found(bodies(("p", 1, 2)), [1, 2]), "acknowledged and is lost"),
        (outcome(), Found(bodies(("p", 1, 2), ("p", 2, 1), ("p", 9, 1)), [1, 2, 3, 4]), "was never committed"),
        (outcome(), Found(bodies(("p", 2, 1), ("p", 1, 2)), [1, 2, 3]), "comes after a later one"),
        (outcome(), Found(bodies(("p", 1, 2), ("p", 2, 1), ("p", 2, 1)), [1, 2, 3, 4]), "out of order or there twice"),
        (outcome(), Found({i: WHOLE[i] for i in (1, 3)}, [1, 3]), "have gaps"),
        (brief(1), Found({i: WHOLE[i] for i in (1, 3)}, [1, 3], passed=2, is_counted=False), "2 were passed over"),
        (outcome(), Found({1: WHOLE[1], 2: WHOLE[3]}, [1, 2]), "is not whole"),
        (outcome(), Found({2: WHOLE[1], 3: WHOLE[2], 4: WHOLE[3]}, [2, 3, 4]), "it was acknowledged at 1"),
        (outcome((1, 1)), Found(WHOLE, [2, 3]), "taken 2 times"),
        (outcome((1,)), Found(WHOLE, [1, 2, 3]), "came back"),
        (outcome((1,)), Found(WHOLE, [3]), "event 2 is neither taken nor in the channel"),
        (outcome((), (1, 2, 3)), Found(WHOLE, [2, 3]), "committed in part"),
        (outcome(), Found(WHOLE, [1, 2, 3], lost=[(3, 3)]), "is reported lost and is there"),
        (saw({1: Said("p", 1, 1, 2)}), Found(WHOLE, [2, 3]), "event 1 is another one than was taken"),
        (outcome(), Found(WHOLE, [2, 1, 3]), "remains is out of order"),
        (outcome(), Found({**WHOLE, 1: WHOLE[1].replace(b"x", b"y", 1)}, [1, 2, 3]), "a damaged body"),
        (brief(1), Found({i: WHOLE[i] for i in (1, 3)}, [1, 3]), "1 events expired; 0 were passed over"),
        (brief(1), Found({i: WHOLE[i] for i in (1, 3)}, [1, 3], expired=1, passed=1), "1 were passed over, and 1"),
        (brief(1), Found({3: WHOLE[3]}, [3], passed=2), "is lost"),
        (Outcome({("p", 1): 2, ("q", 1): 1}, {("p", 1): 1, ("q", 1): 2}), Found(WHOLE, [1, 2, 3]), "ID 2 was"),
    ],
)  # fmt: skip
def test_the_checker_finds_what_is_wrong(said: Outcome, found: Found, wrong: str) -> None:
    assert any(wrong in w for w in check(said, found)), check(said, found)


def test_ledgers_are_read_line_by_line() -> None:
    lines = [["put p 1 2", "ack p 1 7", "put p 2 1"], ["take 7:p:1:0:2", "ack take", "take 8:p:1:1:2"], ["brief p 1 1"]]
    found = Outcome.of(lines)
    assert found.started == {("p", 1): 2, ("p", 2): 1}
    assert (found.acknowledged, found.brief) == ({("p", 1): 7}, {("p", 1): 1})
    assert (found.taken, found.in_doubt) == ({7: 1}, [[8]])
    assert found.seen[8] == Said("p", 1, 1, 2)
    with pytest.raises(ValueError, match="not a line"):
        Outcome.of([["ack p 1"]])


def test_a_line_that_a_kill_cut_off_is_none(tmp_path: Path) -> None:
    (tmp_path / "p.ledger").write_text("put p 1 2\ntake 7:p:1:0:2\nack take\ntake 8:p:1")
    assert Outcome.read(tmp_path.glob("*.ledger")).seen.keys() == {7}
    (tmp_path / "p.ledger").write_text("put p 1 2\nack p 1 1")  # of 10, perhaps
    assert Outcome.read(tmp_path.glob("*.ledger")).acknowledged == {}


def test_a_body_says_whose_it_is() -> None:
    assert parse_body(body("p", 3, 1, 2, 10)) == Said("p", 3, 1, 2)
