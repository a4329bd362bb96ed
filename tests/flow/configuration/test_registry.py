from __future__ import annotations

import re
from collections import Counter

import pytest

from spillable_stream.flow.configuration.options import Kind
from spillable_stream.flow.configuration.registry import TYPES, find_type, names_of, nearest


def test_every_name_means_one_type() -> None:
    names = Counter((t.kind, name.lower()) for t in TYPES for name in (t.alias, *t.java_names))
    assert [name for name, count in names.items() if count > 1] == []


def test_names_are_compared_without_case_and_java_names_count() -> None:
    for name in ("taildir", "TAILDIR", "org.apache.flume.source.taildir.TaildirSource"):
        found = find_type(Kind.SOURCE, name)
        assert found is not None and found.alias == "taildir"
    timestamp = find_type(Kind.INTERCEPTOR, "org.apache.flume.interceptor.TimestampInterceptor$Builder")
    assert timestamp is not None and timestamp.alias == "timestamp"
    assert find_type(Kind.SINK, "taildir") is None


@pytest.mark.parametrize("known", TYPES, ids=lambda t: f"{t.kind}-{t.alias}")
def test_a_type_names_each_property_and_each_keyword_once(known) -> None:  # type: ignore[no-untyped-def]
    names = Counter(p.name for p in known.properties)
    keywords = Counter(known.keyword(p) for p in known.properties)
    assert [name for counts in (names, keywords) for name, count in counts.items() if count > 1] == []
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", keyword) for keyword in keywords)
    for old in (*known.renamed, *known.unused, *known.refused):
        assert old.endswith(".*") or known.find(old) is None, old
    assert all(known.find(new) for new in known.renamed.values())
    if known.batch_property:
        assert isinstance(known.plain(known.batch_property).default, int)


@pytest.mark.parametrize("known", TYPES, ids=lambda t: f"{t.kind}-{t.alias}")
def test_every_default_is_a_value_that_its_property_allows(known) -> None:  # type: ignore[no-untyped-def]
    for p in known.properties:
        assert p.doc.endswith(".") and p.range, p.name
        if isinstance(p.default, (str, int)) and p.default != "":
            assert p.parse(str(p.default).lower() if p.default in (True, False) else str(p.default)) == p.default


def test_a_type_runs_or_names_the_way_out() -> None:
    for known in TYPES:
        built = known.kind not in (Kind.CHANNEL, Kind.CONFIG_FILTER) and known.alias != "spark"
        assert bool(known.implementation) == (known.supported and built), known.alias
        assert known.supported or len(known.instead) > 10


def test_aliases_of_a_kind_are_those_that_run() -> None:
    assert names_of(Kind.SELECTOR) == ["replicating", "multiplexing", "load_balancing"]
    assert "kafka" not in names_of(Kind.SOURCE)


def test_the_nearest_name_is_one_that_is_near() -> None:
    assert nearest("tialdir", ["taildir", "exec"]) == "taildir"
    assert nearest("BATCHSIZE", ["batchSize"]) == "batchSize"
    assert nearest("com.acme.Source", ["taildir", "exec"]) == ""
