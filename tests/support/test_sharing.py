"""How the processes of a run share its tests."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

from tests.support.sharing import OneOfEach, say_less

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


class Worker:
    """What runs tests: it has told that one began, each of its reports, and that it is done."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def sendevent(self, name: str, **said: Any) -> None:
        self.told.append(said["data"]["name"] if said else name)


REPORTS = [
    {"name": "made", "when": "setup", "outcome": "passed", "duration": 0.001, "sections": []},
    {"name": "made slowly", "when": "setup", "outcome": "passed", "duration": 6.0, "sections": []},
    {"name": "made with output", "when": "setup", "outcome": "passed", "duration": 0.001, "sections": [("log", "x")]},
    {"name": "skipped", "when": "setup", "outcome": "skipped", "duration": 0.001, "sections": []},
    {"name": "passed", "when": "call", "outcome": "passed", "duration": 0.001, "sections": []},
    {"name": "failed", "when": "call", "outcome": "failed", "duration": 0.001, "sections": []},
    {"name": "removed", "when": "teardown", "outcome": "passed", "duration": 0.001, "sections": []},
    {"name": "not removed", "when": "teardown", "outcome": "failed", "duration": 0.001, "sections": []},
]


def told(**options: object) -> list[str]:
    """Return what is told of these reports by a run with some options."""
    worker = Worker()
    option = SimpleNamespace(**{"xmlpath": None, "verbose": -1, "durations_min": None, **options})
    plugins = SimpleNamespace(get_plugins=lambda: [object(), worker])
    say_less(SimpleNamespace(option=option, workerinput={}, pluginmanager=plugins))  # type: ignore[arg-type]
    worker.sendevent("logstart")
    for report in REPORTS:
        worker.sendevent("testreport", data=report)
    worker.sendevent("logfinish")
    return worker.told


def test_what_nothing_shows_is_not_told() -> None:
    shown = ["made slowly", "made with output", "skipped", "passed", "failed", "not removed"]
    assert told() == [*shown, "logfinish"]


def test_what_the_slowest_ones_are_shown_from_is_told() -> None:
    assert "made slowly" in told(durations_min=6.0) and "made slowly" not in told(durations_min=7.0)
    assert "made" in told(durations_min=0.001)


def test_a_version_of_xdist_that_tells_in_another_way_tells_all() -> None:
    config = SimpleNamespace(
        option=SimpleNamespace(xmlpath=None, verbose=-1, durations_min=None),
        workerinput={},
        pluginmanager=SimpleNamespace(get_plugins=lambda: [object()]),
    )
    say_less(config)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"xmlpath": "report.xml"}, {"verbose": 1}])
def test_who_shows_all_is_told_all(options: dict[str, object]) -> None:
    assert told(**options) == ["logstart", *(report["name"] for report in REPORTS), "logfinish"]
