"""Spark's benchmarks at tiny sizes: every part measures whom its targets need, and writes its section."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import SparkContext

from benchmarks import run, spark_rows
from benchmarks.spark import SPARK_PARTS
from benchmarks.spark_session import session
from benchmarks.targets import SPARK_TARGETS
from tests.support.spark.sessions import short_sessions

pytestmark = pytest.mark.spark

_ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> run.Run:
    """What all parts measured, in JVMs of their own, as a process with a session of the tests can't have."""
    directory = tmp_path_factory.mktemp("work")
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**short_sessions(), "PYTHONPATH": path}
    command = [sys.executable, "-m", "tests.support.spark.small_benchmarks", directory]
    subprocess.run(command, env=environment, check=True)
    whole: run.Run = pickle.loads((directory / "found").read_bytes())
    return whole


@pytest.mark.slow
@pytest.mark.timeout(1800)  # the first waits for all parts
@pytest.mark.parametrize("name", SPARK_PARTS)
def test_a_part_measures_and_writes_its_section(name: str, found: run.Run, tmp_path: Path) -> None:
    part = run.Run(found.plan, (name,), {name: found.parts[name]}, took_seconds={name: 1.0})
    assert found.broken.get(name, "") == "" and part.parts[name]
    assert [c.failures for c in part.parts[name]] == [{}] * len(part.parts[name])
    needed = [t for t in SPARK_TARGETS if t.group in part.by_name]
    assert [o.target for o in part.spark_outcomes()] == needed
    assert all(o.verdict != "not measured" for o in part.spark_outcomes())
    run.write(part, name, tmp_path, "a machine")
    assert SPARK_PARTS[name].title in (tmp_path / "benchmarks.md").read_text()
    assert list(json.loads((tmp_path / "benchmarks.json").read_text())) == [name]


def test_a_process_that_has_a_session_is_told_to_stop_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", object())
    with pytest.raises(RuntimeError, match="has a Spark session: stop it"), session():
        pass


def test_every_target_is_of_a_part() -> None:
    kinds = [kind.name for kind in spark_rows.KINDS]
    assert len(SPARK_TARGETS) == 6 * len(kinds) + 3
