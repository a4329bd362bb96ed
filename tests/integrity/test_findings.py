"""What was found of one place is one finding, and the worst comes first."""

from __future__ import annotations

import json
from pathlib import Path

from spillable_stream.integrity.findings import Finding, Findings, Loss, Report, Severity

FILE, OTHER = Path("data/log-000001"), Path("head")


def test_of_one_place_there_is_one_finding_which_says_the_worst_and_all_events() -> None:
    found = Findings()
    found.note(FILE, "it is odd", 48, 10)
    found.damage(FILE, "it is damaged", 48, 10, [(1, 3)])
    found.damage(FILE, "it is damaged still", 48, 10, [(3, 5)])
    assert found.all() == (Finding(Severity.DAMAGE, FILE, "it is damaged", 48, 10, ((1, 5),)),)


def test_the_worst_come_first_and_others_in_the_order_in_which_they_were_found() -> None:
    found = Findings()
    found.note(OTHER, "a")
    found.warn(OTHER, "b", 1)
    found.note(OTHER, "c", 2)
    found.damage(FILE, "d")
    assert [finding.text for finding in found.all()] == ["d", "b", "a", "c"]


def test_notes_leave_a_channel_healthy_and_warnings_do_not_make_it_damaged() -> None:
    reports = [report(Finding(severity, FILE, "x")) for severity in (Severity.NOTE, Severity.WARNING, Severity.DAMAGE)]
    assert [r.healthy for r in reports] == [True, False, False]
    assert [r.damaged for r in reports] == [False, False, True]


def test_a_report_is_plain_values_for_json() -> None:
    said = json.loads(json.dumps(report(Finding(Severity.DAMAGE, FILE, "x", 48, 10, ((3, 4),))).as_dict()))
    assert said["findings"][0] == {
        "severity": "damage", "path": "data/log-000001", "text": "x", "offset": 48, "size": 10, "events": [[3, 4]],
        "transactions": [],
    }  # fmt: skip
    assert (said["healthy"], said["loss"]["count"], said["unrepairable"]) == (False, 2, None)


def report(*findings: Finding) -> Report:
    return Report(Path("channel"), "uuid", findings, Loss(((3, 4),)), 1, 2, 3)


def test_of_many_segments_without_events_a_few_are_named_and_the_others_counted() -> None:
    found = Findings()
    found.note_segments({f"segments/{n:02}" for n in range(23)}, Path)
    *named, others = found.all()
    assert [f.path.name for f in named] == [f"{n:02}" for n in range(10)]
    assert (others.path, others.text) == (
        Path("segments"),
        "no event in the channel is in 13 more segments of this folder",
    )
    few = Findings()
    few.note_segments({"segments/1"}, Path)
    assert len(few.all()) == 1
