from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillable_stream.errors import OptionError
from spillable_stream.flow.configuration.properties import Entry
from spillable_stream.flow.configuration.substitution import Lookups, referenced, substitute, unresolved

JAVA_ENVIRONMENT = {"propertiesImplementation": "org.apache.flume.node.EnvVarResolverProperties"}


def entry(key: str, value: str) -> Entry:
    return Entry(key, value, "f", 1, value)


def resolved(value: str, lookups: Lookups | None = None, **keys: str) -> str:
    given_keys = [entry(key.replace("__", "."), text) for key, text in keys.items()]
    found, _ = substitute([entry("the.value", value), *given_keys], lookups or Lookups())
    return found[0].value


def date(pattern: str) -> str:
    if pattern == "Q":
        raise OptionError("Q")
    return f"<{pattern}>"


WORLD = Lookups({"HOME": "/root", "DEV_BIND": "0.0.0.0"}, {"env": "DEV", "port": "44444"}, date)


def test_references_name_where_they_are_answered_from() -> None:
    assert resolved("${env:HOME}/x", WORLD) == "/root/x"
    assert resolved("${sys:port}", WORLD) == "44444"
    assert resolved("${date:yyyy-MM-dd}", WORLD) == "<yyyy-MM-dd>"
    assert resolved("${ENV:HOME}", WORLD) == "/root"


def test_a_reference_may_name_another_key() -> None:
    assert resolved("${base.dir}/in", base__dir="/data") == "/data/in"
    assert resolved("${a.b}", a__b="${c.d}/x", c__d="/data") == "/data/x"


def test_a_reference_may_be_inside_of_another() -> None:
    assert resolved("${env:${sys:env}_BIND}", WORLD) == "0.0.0.0"


def test_a_default_counts_where_nothing_answers() -> None:
    assert resolved("${env:NONE:-${sys:port}}", WORLD) == "44444"
    assert resolved("${env:HOME:-x}", WORLD) == "/root"
    assert resolved("${none:-}") == ""


def test_an_unanswered_reference_stays_as_it_stands() -> None:
    for text in (
        "${env:NONE}",
        "${none}",
        "${java:version}",
        "${date:Q}",
        "${f1['key']}",
        "${open",
        "$HOME",
        "${env:${sys:none}}",
    ):
        assert resolved(text, WORLD) == text


def test_a_prefix_without_an_answer_leaves_the_name_to_the_keys() -> None:
    assert resolved("${env:x.y}", x__y="found") == "found"


def test_two_dollars_stand_for_one_and_no_reference() -> None:
    assert resolved("$${env:HOME}", WORLD) == "${env:HOME}"
    assert resolved("$${a ${env:HOME}}", WORLD) == "${a /root}"


def test_a_plain_name_is_the_environments_with_the_option_only() -> None:
    assert resolved("${HOME}", WORLD) == "${HOME}"
    with_option = Lookups(WORLD.environment, JAVA_ENVIRONMENT)
    assert resolved("${HOME}", with_option) == "/root"
    assert resolved("[${NONE}]", with_option) == "[]"
    assert resolved("${x.y}", with_option) == "${x.y}"
    assert resolved("${HOME}", with_option, HOME="a key") == "a key"


def test_a_value_that_refers_to_itself_stays_and_is_found() -> None:
    entries = [entry("a.b", "${c.d}"), entry("c.d", "x${a.b}"), entry("e.f", "fine")]
    found, problems = substitute(entries, Lookups())
    assert [e.value for e in found] == ["${c.d}", "x${a.b}", "fine"]
    assert [(p.code, p.at.key) for p in problems] == [("substitution-loop", "a.b"), ("substitution-loop", "c.d")]


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (["${" * 101 + "x" + "}" * 101], "more than 100 references are inside of each other"),
        ([*(f"${{k.{i + 1}}}" for i in range(150)), "x"], "more than 100 references lead from one to the next"),
        (
            [*(f"${{k.{i + 1}}}${{k.{i + 1}}}" for i in range(30)), "x" * 100],
            "there is no end of the answers to all references",
        ),
    ],
    ids=["nested", "chain", "growth"],
)
def test_references_without_an_end_in_sight_stay_and_are_found(values: list[str], why: str) -> None:
    entries = [entry(f"k.{i}", value) for i, value in enumerate(values)]
    found, problems = substitute(entries, Lookups())
    assert found[0].value == values[0]
    assert (problems[0].code, problems[0].at.key) == ("substitution-loop", "k.0")
    assert problems[0].text == f"{why}, so the value stays as it stands: give it a value of its own"
    assert len(unresolved(found)) < 2_000 and referenced(entries) <= {e.key for e in entries}


def test_a_hundred_references_in_each_other_and_in_a_chain_are_answered() -> None:
    assert resolved("${" * 100 + "x" + "}" * 100, Lookups({}, {"x": "y"})) == "${" * 100 + "x" + "}" * 100
    entries = [entry(f"k.{i}", f"${{k.{i + 1}}}") for i in range(45)] + [entry("k.45", "end")]
    found, problems = substitute(entries, Lookups())
    assert {e.value for e in found} == {"end"} and not problems


def test_keys_are_never_substituted() -> None:
    found, _ = substitute([entry("${env:HOME}.sources", "r1")], WORLD)
    assert found[0].key == "${env:HOME}.sources"


def test_what_is_left_is_found_with_advice() -> None:
    left = ["${env:X}", "${sys:X}", "${X}", "${java:os}", "$${X}", "${f1['k']}"]
    found, _ = substitute([entry(f"k.{i}", text) for i, text in enumerate(left)], Lookups())
    texts = [problem.text for problem in unresolved(found)]
    assert len(texts) == 5
    assert "set the environment variable X" in texts[0] and "-D X=" in texts[1]
    assert "${env:X}" in texts[2] and "Java" in texts[3]
    assert [p.text[:24] for p in unresolved([entry("k", "${a${sys:Y}}")])] == ["nothing answers ${sys:Y}"]


def test_keys_that_values_refer_to_are_known() -> None:
    entries = [entry("base", "/x"), entry("a.b", "${base}/y"), entry("c.d", "${a.b:-z}"), entry("e.f", "a.b")]
    assert referenced(entries) == {"base", "a.b"}


def test_keys_that_values_may_refer_to_are_known() -> None:
    entries = [entry("bind", "${${sys:env}_BIND:-x}"), entry("DEV_BIND", "0"), entry("PROD_BIND", "1"), entry("x", "2")]
    assert referenced(entries) == {"DEV_BIND", "PROD_BIND"}


# A model: names are single letters, each defined once, by those after it, so that there is no loop.
NAMES = "abcdef"
PARTS = st.one_of(st.sampled_from(["x", "}", "$", "{", " y"]), st.sampled_from([f"${{{n}}}" for n in NAMES + "z"]))


@given(st.lists(st.lists(PARTS, max_size=4), min_size=len(NAMES), max_size=len(NAMES)))
def test_references_are_replaced_until_none_is_left_that_has_an_answer(values: list[list[str]]) -> None:
    model: dict[str, str] = {}
    entries = []
    for i in reversed(range(len(NAMES))):
        allowed = [p for p in values[i] if not p.startswith("${") or p[2] in NAMES[i + 1 :] + "z"]
        text = "".join(_apart(allowed)).strip()
        entries.append(entry(NAMES[i], text))
        model[NAMES[i]] = re.sub(r"\$\{(\w)\}", lambda name: model.get(name[1], name[0]), text)
    found, problems = substitute(list(reversed(entries)), Lookups())
    assert not problems
    assert {e.key: e.value for e in found} == {name: value.strip() for name, value in model.items()}


def _apart(parts: list[str]) -> list[str]:
    """Keep a lone $ and an opening brace from making a reference, or an escape, with what follows."""
    spaced: list[str] = []
    for part in parts:
        if spaced and spaced[-1].endswith(("$", "{")):
            spaced.append("_")
        spaced.append(part)
    return spaced
