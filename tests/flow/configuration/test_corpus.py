"""Small files with what people get wrong, each with its findings and what runs behind ``#=``."""

from __future__ import annotations

from pathlib import Path

import pytest

from spillable_stream.flow.configuration.findings import CODES, ENVIRONMENT
from spillable_stream.flow.configuration.properties import decode
from spillable_stream.flow.configuration.reading import ConfigurationFile, read_agents
from tests.support.flow_configurations import found, running, world

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.conf"))
_EXPECTED = "#= "

# Findings that need more than a file on its own; where they are tested.
_ELSEWHERE = {
    "missing-agent": "test_reading",
    "filter-failed": "test_config_filters",
    "listed-twice": "test_validation",
    "regex": "test_advice",
    **{code: "flow/test_environment" for code in ENVIRONMENT},
}


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_a_file_has_these_findings_and_these_components_run(path: Path) -> None:
    text, _ = decode(path.read_bytes())
    expected = [line.removeprefix(_EXPECTED) for line in text.splitlines() if line.startswith(_EXPECTED)]
    loaded = read_agents([ConfigurationFile(path.name, path.read_bytes())], world())
    assert [*found(loaded), *map(running, loaded.agents.values())] == expected
    assert {finding.file for finding in loaded.findings} <= {path.name}


def test_every_finding_occurs_in_the_corpus_or_has_a_test_of_its_own() -> None:
    words = {word for path in CORPUS for word in decode(path.read_bytes())[0].split()}
    assert CODES.keys() - words == _ELSEWHERE.keys()
