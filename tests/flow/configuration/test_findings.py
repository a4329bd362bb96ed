from __future__ import annotations

import pytest

from spillable_stream.flow.configuration.findings import CODES, ENVIRONMENT, Findings
from spillable_stream.flow.configuration.model import Finding
from spillable_stream.flow.configuration.properties import Entry


def at(file: str, line: int) -> Entry:
    return Entry("a1.sources", "r1", file, line, "r1")


def test_findings_come_in_the_order_of_files_and_lines_each_once() -> None:
    findings = Findings()
    findings.add("no-type", at("b", 1), "a1", "second file")
    findings.add("no-type", at("a", 9), "a1", "later line")
    findings.add("tail", at("a", 2), "a1", "first line")
    findings.add("tail", at("a", 2), "a1", "first line")
    assert [f.text for f in findings.sorted(["a", "b"])] == ["first line", "later line", "second file"]


def test_a_finding_is_not_compared_with_all_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def compared(*_: object) -> bool:
        raise AssertionError("a file of logs has a finding a line")

    monkeypatch.setattr(Finding, "__eq__", compared)
    findings = Findings()
    for line in range(1000):
        findings.add("invalid-key", at("a", line), "a1", "text")
    assert len(findings.sorted(["a"])) == 1000


def test_the_code_says_the_severity() -> None:
    assert Findings().add("no-type", at("a", 1), "a1", "text").severity == "error"
    assert Findings().add("tail", at("a", 1), "a1", "text").severity == "warning"
    assert Findings().add("regex", at("a", 1), "a1", "text").severity == "note"


def test_what_needs_this_host_is_among_the_codes() -> None:
    assert ENVIRONMENT.items() <= CODES.items()
