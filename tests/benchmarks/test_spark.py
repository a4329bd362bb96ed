"""Spark's benchmarks at tiny sizes: every part measures whom its targets need, and writes its section."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import run, spark_latency, spark_rows, spark_sink, spark_source
from benchmarks.rounds import Plan
from benchmarks.spark import SPARK_PARTS
from benchmarks.targets import SPARK_TARGETS

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(600)]

ONCE = Plan(rounds=1)


@pytest.mark.parametrize("name", SPARK_PARTS)
def test_a_part_measures_and_writes_its_section(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = spark_rows.KINDS[:1] if name == "spark-objects" else spark_rows.KINDS  # a task of a store takes seconds
    monkeypatch.setattr(spark_rows, "KINDS", tuple(kind._replace(batch_rows=400) for kind in kinds))
    monkeypatch.setattr(spark_source, "_BATCHES", 3)
    monkeypatch.setattr(spark_sink, "_BATCHES", 3)
    monkeypatch.setattr(spark_latency, "_EVENTS", 4)
    monkeypatch.setattr(spark_latency, "_WARM_UP_EVENTS", 2)
    places = tmp_path / "work", tmp_path / "docs"
    for place in places:
        place.mkdir()
    found = run.run([name], ONCE, places[0])
    assert found.broken == {} and found.parts[name]
    assert [c.failures for c in found.parts[name]] == [{}] * len(found.parts[name])
    needed = [t for t in SPARK_TARGETS if t.group in found.by_name]
    assert [o.target for o in found.spark_outcomes()] == needed
    assert all(o.verdict != "not measured" for o in found.spark_outcomes())
    run.write(found, places[1], "a machine")
    assert SPARK_PARTS[name].title in (places[1] / "benchmarks.md").read_text()
    assert list(json.loads((places[1] / "benchmarks.json").read_text())) == [name]


def test_every_target_is_of_a_part() -> None:
    kinds = [kind.name for kind in spark_rows.KINDS]
    assert len(SPARK_TARGETS) == 5 * len(kinds) + 3
