"""Targets, and the tables of what was reached."""

from __future__ import annotations

from benchmarks.report import comparison_table, failures, missed, number, targets_table
from benchmarks.rounds import Comparison
from benchmarks.targets import TARGETS, Outcome, Target, outcomes


def group(**rates: float) -> dict[str, Comparison]:
    """Return a group with these contestants' puts, in one round."""
    return {"g": Comparison("g", "G", "events/s", "floor", [{name: {"put": rate} for name, rate in rates.items()}])}


def outcome(target: Target, **rates: float) -> Outcome:
    return outcomes(group(**rates), (target,))[0]


def test_a_ratio_is_met_or_missed() -> None:
    target = Target("put", "g", "put", ("us",), least=0.75, against=("floor",))
    assert outcome(target, us=75, floor=100).verdict == "met"
    found = outcome(target, us=74, floor=100)
    assert (found.verdict, found.reached, found.beside_value, found.ratio) == ("missed", 74, 100, 0.74)


def test_a_value_is_met_or_missed_and_shown_beside_the_floor() -> None:
    target = Target("put", "g", "put", ("us",), least=1_000)
    found = outcome(target, us=1_000, floor=4_000)
    assert (found.verdict, found.beside, found.ratio) == ("met", "floor", 0.25)
    assert outcome(target, us=999, floor=1).verdict == "missed"
    assert outcome(Target("open", "g", "put", ("us",), most=50), us=50, floor=1).verdict == "met"
    assert outcome(Target("open", "g", "put", ("us",), most=50), us=51).verdict == "missed"


def test_the_best_of_several_counts() -> None:
    target = Target("put", "g", "put", ("threads", "processes"), least=10)
    assert outcome(target, threads=5, processes=15).reached == 15
    assert outcome(target, threads=5).verdict == "missed"
    assert outcome(Target("open", "g", "put", ("a", "b"), most=10), a=5, b=15).reached == 5


def test_every_peer_must_be_beaten() -> None:
    target = Target("put", "g", "put", ("us",), least=3.0, against=("slow", "near", "nearer", "not there"))
    found = outcome(target, us=30, slow=1, near=11, nearer=20)
    assert (found.verdict, found.beside, found.short) == ("missed", "nearer", ("near", "nearer"))
    assert "too near: near; nearer" in missed([found])
    assert outcome(target, us=60, slow=1, near=11, nearer=20).verdict == "met"


def test_a_difference_is_met_or_missed_and_shown() -> None:
    target = Target("start", "g", "put", ("us",), against=("floor",), most_above=50)
    found = outcome(target, us=150, floor=100)
    assert (found.verdict, found.above) == ("met", 50)
    slow = outcome(target, us=151, floor=100)
    assert slow.verdict == "missed" and "+51 events/s" in missed([slow])
    assert "at most +50 events/s" in targets_table([found])


def test_what_nobody_can_reach_here_is_not_a_miss() -> None:
    target = Target("source", "g", "put", ("us",), least=1.0, against=("peer",), bound="python")
    assert outcome(target, us=85, peer=100, python=90).verdict == "out of reach: at best 0.90 x"
    assert outcome(target, us=85, peer=100, python=110).verdict == "missed"
    assert outcome(target, us=100, peer=100, python=90).verdict == "met"
    start = Target("start", "g", "put", ("us",), against=("peer",), most_above=50, bound="python")
    assert outcome(start, us=300, peer=100, python=200).verdict == "out of reach: at best +100 events/s"
    assert outcome(start, us=300, peer=100, python=120).verdict == "missed"


def test_what_was_not_measured_is_said() -> None:
    target = Target("put", "elsewhere", "put", ("us",), least=3.0)
    assert outcomes(group(us=1), (target,))[0].verdict == "not measured"
    compared = Target("put", "g", "put", ("us",), least=3.0, against=("not there",))
    found = outcome(compared, us=1)
    assert (found.verdict, found.reached) == ("not measured", 1)
    assert missed([found]).startswith("0 of 1 targets are met. These are not:\n\n- put: not measured")


def test_the_targets_table() -> None:
    ratio = Target("put", "g", "put", ("us",), least=0.75, against=("floor",))
    value = Target("rate", "g", "put", ("us",), least=1_000)
    lines = targets_table(outcomes(group(us=800, floor=1_000), (ratio, value))).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[2] == ["put", "at least 0.75 x", "800 events/s", "floor", "1,000 events/s", "0.80 x", "met"]
    assert cells[3][1:3] == ["at least 1,000 events/s", "800 events/s"] and cells[3][-1] == "missed"
    assert missed(outcomes(group(us=1_000, floor=1_000), (ratio, value))) == "2 of 2 targets are met."


def test_a_table_leaves_empty_what_somebody_does_not_have() -> None:
    rounds = [{"floor": {"put": 100.0}, "us": {"put": 50.0, "take": 7.5}}]
    found = Comparison("g", "G", "events/s", "floor", rounds, {"peer": "the package is missing"})
    assert comparison_table(found).splitlines() == [
        "|       | put, events/s | of the floor | take, events/s |",
        "| ----- | ------------: | -----------: | -------------: |",
        "| floor |           100 |       1.00 x |                |",
        "| us    |            50 |       0.50 x |           7.50 |",
    ]
    assert failures(found) == "- peer: not measured; the package is missing"


def test_a_figure_may_have_a_unit_of_its_own() -> None:
    found = Comparison("g", "G", "events/s", "", [{"us": {"put": 50.0, "both, all threads": 2.0, "commit, ms": 7.25}}])
    assert (
        comparison_table(found).splitlines()[0] == "|    | put, events/s | both, all threads, events/s | commit, ms |"
    )
    (reached,) = outcomes({"g": found}, (Target("commit", "g", "commit, ms", ("us",), most=1.5),))
    assert (reached.unit, reached.reached) == ("ms", 7.25)


def test_a_small_difference_is_shown_with_the_digits_that_mean_something() -> None:
    target = Target("log", "g", "put", ("us",), against=("floor",), most_above=1.5)
    assert "+1.49 events/s" in targets_table([outcome(target, us=5.49, floor=4)])


def test_numbers_have_the_digits_that_mean_something() -> None:
    assert [number(v) for v in (1234567.8, 12.34, 1.234, 0.0, 5.0)] == ["1,234,568", "12.3", "1.23", "0", "5"]


def test_targets_have_names_of_their_own_and_one_limit() -> None:
    assert len({t.what for t in TARGETS}) == len(TARGETS)
    assert all([t.least, t.most, t.most_above].count(None) == 2 for t in TARGETS)
