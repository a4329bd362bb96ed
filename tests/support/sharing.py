"""How the processes of a run share its tests."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

__all__ = ["OneOfEach", "say_less"]

# What files share, and what says that a file uses it: one process has it, and runs them all.
_SHARED = {"the Spark session": re.compile("spark: SparkSession"), "the page": re.compile("served: Served|tab: Any")}
# They start sessions of their own, and would be late if they came last.
_LONG = (
    "tests/spark/test_pipelines.py",
    "tests/benchmarks/test_spark.py",
    "tests/crash/test_spark_kill.py",
    "tests/spark/test_driver_kill.py",
    "tests/test_docs.py",
)
_PAGES, _RECIPES = "tests/test_docs.py", "tests/crash/"  # each starts what it needs
_TOGETHER = ("tests/crash/test_spark_kill.py", "tests/crash/test_system_calls.py")  # each has what takes long to make
_MACHINE = "::runTest"  # how the test of one of hypothesis's state machines ends: with all examples it takes a minute
_SHOWN_SECONDS = 0.005  # what `--durations` shows at least, by default
_SLOW = re.compile(r"\bmark\.(slow|crash)\b")


class OneOfEach(LoadFileScheduling):
    """Gives each process whole files, the long ones first, and one process all that use the Spark session, or the page.

    The laboratory's recipes, the pages and the state machines share nothing, and come one by one. Without the recipes,
    the tests of a file of the laboratory's are short, and share what it makes for all of them.
    """

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        self._root = config.rootpath
        has_recipes = "not crash" not in config.option.markexpr
        self._one_by_one = (_PAGES, _RECIPES) if has_recipes else (_PAGES,)

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        if nodeid.endswith(_MACHINE) or (file.startswith(self._one_by_one) and file not in _TOGETHER):
            return nodeid
        return file if file in _LONG else shared_by(self._root / file) or file

    def _assign_work_unit(self, node: WorkerController) -> None:
        assigned = self.assigned_work[node]  # is counted after each test
        for done in [scope for scope, tests in assigned.items() if all(tests.values())]:
            del assigned[done]
        next_scope = min(self.workqueue, key=self._turn)  # of its kind the one with the most tests
        self.workqueue.move_to_end(next_scope, last=False)
        super()._assign_work_unit(node)

    def _turn(self, scope: str) -> int:
        return turn(self._root, scope)


def say_less(config: pytest.Config) -> None:
    """Have a process that runs tests not tell when each begins, nor that its fixtures were made and removed in no time.

    To tell it takes longer than many a test. Only a verbose terminal and a report in XML show it, and have it. So does
    whoever runs a version of xdist that tells it in another way.
    """
    if config.option.xmlpath or config.option.verbose > 0 or not hasattr(config, "workerinput"):
        return
    shown_seconds = _SHOWN_SECONDS if config.option.durations_min is None else config.option.durations_min
    for worker in (plugin for plugin in config.pluginmanager.get_plugins() if hasattr(plugin, "sendevent")):
        worker.sendevent = partial(_send_what_is_shown, worker.sendevent, shown_seconds)


def _send_what_is_shown(send: Callable[..., None], shown_seconds: float, name: str, **said: Any) -> None:
    if name != "logstart" and not (name == "testreport" and _is_dull(said["data"], shown_seconds)):
        send(name, **said)


def _is_dull(report: dict[str, Any], shown_seconds: float) -> bool:
    is_of_test = report["when"] == "call" or report["outcome"] != "passed"
    return not is_of_test and report["duration"] < shown_seconds and not report["sections"]


@cache
def turn(root: Path, scope: str) -> int:
    """Return when a scope's turn is: those that take long have theirs before the others."""
    first, file = (*_SHARED, *_LONG), scope.partition("::")[0]
    if file in first:
        return first.index(file)
    if scope.endswith(_MACHINE):
        return len(first)
    return len(first) + (1 if has_slow_tests(root / file) else 2)


@cache
def shared_by(file: Path) -> str | None:
    """Return what a file's tests share with those of other files, if they do."""
    text = file.read_text()
    return next((what for what, fixture in _SHARED.items() if fixture.search(text)), None)


@cache
def has_slow_tests(file: Path) -> bool:
    """Tell whether a file has tests that take long, whether or not this run has them."""
    return _SLOW.search(file.read_text()) is not None
