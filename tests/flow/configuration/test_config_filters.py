from __future__ import annotations

import pytest

from spillable_stream.flow.configuration.config_filters import ConfigFilter, FilterError, apply_filters
from spillable_stream.flow.configuration.properties import Entry
from spillable_stream.flow.configuration.reading import ConfigurationFile, World, read_agents
from spillable_stream.flow.configuration.substitution import Lookups
from tests.support.flow_configurations import SMALL, NoClasses

ENV = ConfigFilter("f1", "env")


def no_command(command: list[str]) -> str:
    raise AssertionError(command)


def applied(value: str, *filters: ConfigFilter, run: object = no_command) -> tuple[str, list[str]]:
    entries = [Entry("a1.x", value, "f", 3, value)]
    found, problems = apply_filters(entries, list(filters), {"SECRET": "s3cret"}, run)  # type: ignore[arg-type]
    return found[0].value, [p.text for p in problems]


@pytest.mark.parametrize("reference", ["${f1['SECRET']}", '${f1["SECRET"]}', "${f1[SECRET]}"])
def test_a_key_may_be_in_either_quotes_or_none(reference: str) -> None:
    assert applied(f"x{reference}y{reference}", ENV) == ("xs3crety" + "s3cret", [])


@pytest.mark.parametrize(
    "reference", ["${f1['SECRET\"]}", "${f1['SE CRET']}", "${f2['SECRET']}", "${f1[]}", "$f1[SECRET]"]
)
def test_anything_else_stays_as_it_stands(reference: str) -> None:
    assert applied(reference, ENV) == (reference, [])


def test_no_answer_is_found_and_leaves_the_text() -> None:
    value, problems = applied("${f1['NONE']}", ENV)
    assert value == "${f1['NONE']}"
    assert problems == ["${f1['NONE']} stays as it stands: the environment variable NONE is not set"]


def test_a_command_gets_the_key_last_and_is_asked_once() -> None:
    asked: list[list[str]] = []

    def run(command: list[str]) -> str:
        asked.append(command)
        if "bad" in command:
            raise FilterError("vault ended with status 2")
        return "answer"

    external = ConfigFilter("vault", "external", "/bin/vault get")
    assert applied("${vault['k-1']}${vault['k-1']}", external, run=run) == ("answeranswer", [])
    assert asked == [["/bin/vault", "get", "k-1"]]
    assert "status 2" in applied("${vault['bad']}", external, run=run)[1][0]


CONFIGURATION = (
    SMALL
    + """
    a1.configfilters = f1 f2 f3
    a1.configfilters.f1.type = ENV
    a1.configfilters.f2.type = hadoop
    a1.configfilters.f2.credential.provider.path = jceks://file/x
    a1.configfilters.f4.type = env
    a1.sources.r1.batchSize = ${f1['SIZE']}
    a1.sinks.k1.batchSize = ${f2['SIZE']}
"""
)


def test_an_agents_filters_answer_its_values() -> None:
    text = "\n".join(line.strip() for line in CONFIGURATION.splitlines())
    world = World(NoClasses(), Lookups({"SIZE": "7"}))
    loaded = read_agents([ConfigurationFile("f", text.encode())], world)
    assert loaded.agents["a1"].sources[0].keywords == {"batch_size": 7}
    codes = {(f.code, f.component) for f in loaded.findings}
    assert codes == {
        ("not-described", "a1.configfilters.f3"),
        ("unsupported-type", "a1.configfilters.f2"),
        ("not-listed", "a1.configfilters.f4"),
        ("unresolved", "a1.sinks.k1"),
        ("bad-value", "a1.sinks.k1"),
        ("no-sinks", "a1"),
    }
