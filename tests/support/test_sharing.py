"""How the processes of a run share its tests."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from xdist.scheduler import LoadFileScheduling

from tests.support.sharing import OneOfEach

QUICK, SLOW, SESSION = "tests/state/test_quick.py", "tests/engine/test_slow.py", "tests/spark/test_stream.py"
RECIPES, LONG, PAGES = "tests/crash/test_kill.py", "tests/spark/test_driver_kill.py", "tests/test_docs.py"
SHARED = "tests/crash/test_spark_kill.py"
PANEL, SERVER = "tests/ui/test_panel.py", "tests/ui/test_server.py"
MACHINE = f"{QUICK}::TestModel::runTest"


@pytest.fixture
def scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OneOfEach:
    return made(tmp_path, monkeypatch, "")


def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, marked: str) -> OneOfEach:
    """Make what shares the tests of a run of some marks."""
    texts = {
        QUICK: "def test_it() -> None: ...",
        SLOW: "@pytest.mark.slow\ndef test_it() -> None: ...",
        SESSION: "def test_it(spark: SparkSession) -> None: ...",
        RECIPES: "@pytest.mark.crash\ndef test_it() -> None: ...",
        LONG: "",
        PAGES: "",
        SHARED: "",
        PANEL: "def test_it(tab: Any) -> None: ...",
        SERVER: "def test_it(served: Served) -> None: ...",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(LoadFileScheduling, "__init__", lambda *_: None)  # it needs a run
    return OneOfEach(SimpleNamespace(rootpath=tmp_path, option=SimpleNamespace(markexpr=marked)))  # type: ignore[arg-type]


def test_what_takes_long_begins_first(scheduler: OneOfEach) -> None:
    files = (QUICK, RECIPES, SLOW, PAGES, LONG, PANEL, SESSION)
    scopes = [scheduler._split_scope(f"{file}::test_it") for file in files]
    found = sorted([*scopes, scheduler._split_scope(MACHINE)], key=scheduler._turn)
    shared = ["the Spark session", "the page"]
    assert found == [*shared, LONG, f"{PAGES}::test_it", MACHINE, f"{RECIPES}::test_it", SLOW, QUICK]


def test_all_files_that_use_one_page_are_run_by_one_process(scheduler: OneOfEach) -> None:
    assert {scheduler._split_scope(f"{file}::test_it") for file in (PANEL, SERVER)} == {"the page"}


@pytest.mark.parametrize("file", [SLOW, SHARED])
def test_a_file_is_run_by_one_process(scheduler: OneOfEach, file: str) -> None:
    assert scheduler._split_scope(f"{file}::test_it") == scheduler._split_scope(f"{file}::test_that") == file


@pytest.mark.parametrize("file", [RECIPES, PAGES])
def test_each_recipe_page_and_state_machine_is_run_by_any_process(scheduler: OneOfEach, file: str) -> None:
    assert scheduler._split_scope(f"{file}::test_it") != scheduler._split_scope(f"{file}::test_that")
    assert scheduler._split_scope(MACHINE) == MACHINE


def test_a_file_of_the_laboratory_s_is_run_by_one_process_where_its_recipes_are_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = made(tmp_path, monkeypatch, "not slow and not crash")
    assert scheduler._split_scope(f"{RECIPES}::test_it") == scheduler._split_scope(f"{RECIPES}::test_that") == RECIPES
    assert scheduler._split_scope(f"{PAGES}::test_it") != scheduler._split_scope(f"{PAGES}::test_that")
