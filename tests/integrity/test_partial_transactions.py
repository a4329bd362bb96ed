"""Transactions that are left in part are told from those that are whole or gone."""

from __future__ import annotations

from pathlib import Path

from spillable_stream.integrity.findings import Finding, Findings, Severity
from spillable_stream.integrity.partial_transactions import PartialTransactions

GONE = [(3, 4)]


def findings(*transactions: int) -> Findings:
    found = Findings()
    found.add(Finding(Severity.DAMAGE, Path("log"), "damage", 8, 8, ((3, 4),), transactions))
    return found


def test_one_with_whole_and_damaged_frames_is_left_in_part() -> None:
    for frames in ([True, False], [False, True]):
        partial = PartialTransactions()
        for is_whole in frames:
            partial.add_frame(7, is_whole)
        assert partial.among(findings(7), GONE) == {7}


def test_one_with_damage_between_its_frames_is_left_in_part() -> None:
    partial = PartialTransactions()
    partial.add_frame(7, is_whole=True)
    partial.add_hole()
    partial.add_frame(7, is_whole=True)
    partial.add_hole()
    partial.add_frame(8, is_whole=True)
    assert partial.among(findings(7, 8), GONE) == {7}


def test_one_whose_frames_are_all_whole_or_all_damaged_is_not() -> None:
    partial = PartialTransactions()
    for tx, is_whole in [(7, True), (7, True), (8, False), (8, False), (9, True)]:
        partial.add_frame(tx, is_whole)
    assert partial.among(findings(7, 8, 9), GONE) == set()


def test_only_those_with_lost_events_count() -> None:
    partial = PartialTransactions()
    partial.add(7)
    assert partial.among(findings(7), [(5, 6)]) == set()
    assert partial.among(findings(8), GONE) == set()
    assert partial.among(findings(7), GONE) == {7}
