"""Which events and transactions were in damaged bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from spillable_stream.format.frame import FrameHeader, FrameType
from spillable_stream.integrity.damage_findings import DamageFindings
from spillable_stream.integrity.findings import Finding, Findings, Severity
from spillable_stream.integrity.log_file import LogFile
from spillable_stream.integrity.partial_transactions import PartialTransactions
from spillable_stream.integrity.verify import verify
from spillable_stream.log.frames import Damage
from spillable_stream.state.channel_state import Pending
from tests.support.channels import damage_of, three_puts
from tests.support.damage import flip, log_file, offsets


@pytest.mark.parametrize("part, text", [(60, "the payload of a PUT frame is damaged"), (20, "no frame is whole here")])
def test_a_damaged_frame_in_the_middle_is_named_with_its_events(path: Path, part: int, text: str) -> None:
    at = three_puts(path)
    flip(log_file(path), at[1] + part)
    report = verify(path)
    found = damage_of(report)
    assert (found.path, found.offset, found.text) == (log_file(path), at[1], text)
    assert found.size == offsets(path, FrameType.COMMIT)[1] - at[1] if part == 60 else found.size
    assert (found.events, found.transactions) == (((3, 4),), (2,))
    assert (report.loss.lost, report.loss.repeated) == (((3, 4),), {} if part == 60 else {"default": ((2, 2),)})


def test_every_damaged_frame_is_named(path: Path) -> None:
    at = three_puts(path)
    for offset in at:
        flip(log_file(path), offset + 60)
    found = [f for f in verify(path).findings if f.severity is Severity.DAMAGE]
    assert [(f.offset, f.events) for f in found] == [(at[0], ((1, 2),)), (at[1], ((3, 4),)), (at[2], ((5, 6),))]
    assert verify(path).loss.lost == ((2, 6),)


FILE = LogFile(3, Path("data/log-000003"), 0, None, 0)


@pytest.fixture
def findings() -> Findings:
    return Findings()


@pytest.fixture
def damage(findings: Findings) -> DamageFindings:
    return DamageFindings(findings, PartialTransactions())


def header(type_: FrameType, tx: int = 7, first_id: int = 0, count: int = 0) -> FrameHeader:
    return FrameHeader(type_, 0, tx, first_id, count, 0, 0, 0)


def only(findings: Findings) -> Finding:
    (found,) = findings.all()
    return found


def test_damage_with_a_whole_header_is_of_the_events_that_it_names(findings: Findings, damage: DamageFindings) -> None:
    damage.add(FILE, Damage(100, 164, header(FrameType.PUT, 7, 11, 3)), "broken", 11)
    assert only(findings) == Finding(Severity.DAMAGE, FILE.path, "broken", 100, 64, ((11, 13),), (7,))
    assert damage.files == {3}


def test_damage_without_a_header_is_of_the_events_up_to_the_next_put(
    findings: Findings, damage: DamageFindings
) -> None:
    damage.add(FILE, Damage(100, 164, None), "broken", 11)
    assert only(findings).events == ()
    damage.follow(header(FrameType.PUT, 8, 15, 2), None)
    damage.follow(header(FrameType.PUT, 9, 20, 2), None)
    assert only(findings).events == ((11, 14),)


def test_damage_without_a_header_has_the_events_of_the_next_commit(findings: Findings, damage: DamageFindings) -> None:
    damage.add(FILE, Damage(100, 164, None), "broken", 11)
    damage.follow(header(FrameType.COMMIT, 8, 11, 4), None)
    assert (only(findings).events, only(findings).transactions) == (((11, 14),), (8,))


def test_a_commit_whose_frames_are_all_there_is_not_of_the_damage_before_it(
    findings: Findings, damage: DamageFindings
) -> None:
    damage.add(FILE, Damage(100, 164, None), "broken", 11)
    put = header(FrameType.PUT, 8, 11, 4)
    damage.follow(header(FrameType.COMMIT, 8, 0, 4), Pending(frames=[(3, 200, put)]))
    assert only(findings).transactions == ()


def test_a_frame_before_damage_whose_commit_is_not_there_is_of_a_transaction_in_it(
    findings: Findings, damage: DamageFindings
) -> None:
    damage.follow(header(FrameType.PUT, 7, 5, 6), None)
    damage.add(FILE, Damage(100, 164, None), "broken", 11)
    assert only(findings).transactions == (7,)


def test_a_transaction_that_has_ended_before_damage_is_not_in_it(findings: Findings, damage: DamageFindings) -> None:
    damage.follow(header(FrameType.COMMIT, 7, 5, 6), None)
    damage.add(FILE, Damage(100, 164, None), "broken", 11)
    assert only(findings).transactions == ()


def test_damage_before_a_control_record_held_no_events(findings: Findings, damage: DamageFindings) -> None:
    damage.add(FILE, Damage(100, 164, None), "broken", 11)
    damage.follow(header(FrameType.GROUP, 8), None)
    damage.follow(header(FrameType.PUT, 9, 15, 2), None)
    assert only(findings).events == ()


def test_damage_at_the_end_is_of_the_events_up_to_the_last_that_is_known(
    findings: Findings, damage: DamageFindings
) -> None:
    damage.add(FILE, Damage(100, 164, None), "broken", 11)
    damage.close(20)
    damage.close(30)
    assert only(findings).events == ((11, 19),)
