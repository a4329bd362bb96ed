"""How the processes of a run share its tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.sharing import OneSession

QUICK, SLOW, SESSION = "tests/state/test_quick.py", "tests/engine/test_slow.py", "tests/spark/test_stream.py"
RECIPES, LONG = "tests/crash/test_kill.py", "tests/test_docs.py"
MACHINE = f"{QUICK}::TestModel::runTest"


@pytest.fixture
def scheduler(tmp_path: Path) -> OneSession:
    texts = {
        QUICK: "def test_it() -> None: ...",
        SLOW: "@pytest.mark.slow\ndef test_it() -> None: ...",
        SESSION: "def test_it(spark: SparkSession) -> None: ...",
        RECIPES: "@pytest.mark.crash\ndef test_it() -> None: ...",
        LONG: "",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    made = OneSession.__new__(OneSession)  # a real one needs a run
    made._root = tmp_path
    return made


def test_what_takes_long_begins_first(scheduler: OneSession) -> None:
    scopes = [scheduler._split_scope(f"{file}::test_it") for file in (QUICK, RECIPES, SLOW, LONG, SESSION)]
    found = sorted([*scopes, scheduler._split_scope(MACHINE)], key=scheduler._turn)
    assert found == ["the Spark session", LONG, MACHINE, f"{RECIPES}::test_it", SLOW, QUICK]


def test_a_file_is_run_by_one_process_and_each_recipe_and_state_machine_by_any(scheduler: OneSession) -> None:
    assert scheduler._split_scope(f"{SLOW}::test_it") == scheduler._split_scope(f"{SLOW}::test_that") == SLOW
    assert scheduler._split_scope(f"{RECIPES}::test_it") != scheduler._split_scope(f"{RECIPES}::test_that")
    assert scheduler._split_scope(MACHINE) == MACHINE
