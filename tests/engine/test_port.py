"""Who reaches an engine and its files, and how."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import spillable_stream
from spillable_stream.engine.port import ChannelPort, PlanReader, ReadPlan, StagedFile, StagePlan

ROOMS = ("spark", "producer")
PACKAGE = Path(spillable_stream.__file__).parent
MODULES = [path for room in ROOMS for path in sorted((PACKAGE / room).rglob("*.py"))]


@pytest.mark.parametrize("path", MODULES, ids=[str(path.relative_to(PACKAGE)) for path in MODULES])
def test_spark_and_the_producers_reach_an_engine_and_its_files_through_its_port_only(path: Path) -> None:
    assert list(reaches_into_the_engine(ast.parse(path.read_text()))) == []


def reaches_into_the_engine(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in ("engine", "_engine"):
            yield f"line {node.lineno}: .{node.attr}"
        if isinstance(node, ast.ImportFrom) and is_inside_the_engine(node.module or ""):
            yield f"line {node.lineno}: {node.module}"
        if isinstance(node, ast.Import):
            yield from (f"line {node.lineno}: {a.name}" for a in node.names if is_inside_the_engine(a.name))


def is_inside_the_engine(module: str) -> bool:
    _, _, path = module.partition("spillable_stream.")
    return path.split(".")[0] in ("engine", "log", "storage") and path != "engine.port"


def test_what_reaches_into_the_engine_is_found() -> None:
    """The test above would pass as well if it looked for nothing."""
    program = (
        "import spillable_stream.engine.engine\nfrom spillable_stream.engine.put_request import Put\nc.engine().lock"
    )
    program += "\nfrom spillable_stream.log.layout import Layout\nimport spillable_stream.storage.filesystem"
    assert len(list(reaches_into_the_engine(ast.parse(program)))) == 5


@pytest.mark.parametrize("port", [ChannelPort, PlanReader, ReadPlan, StagePlan, StagedFile])
def test_every_verb_of_the_port_says_what_it_does(port: type) -> None:
    verbs = {name: value for name, value in vars(port).items() if not name.startswith("_")}
    assert len(verbs) >= 3
    assert [name for name, verb in verbs.items() if not verb.__doc__] == []
