"""A command that a message names works as it is pasted, whatever is in the path: one function writes it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import spillable_stream as ss

PACKAGE = Path(ss.__file__).parent
ROOMS = ["archive", "cli", "integrity", "log", "observe", "storage"]
A_COMMAND_WITH_A_VALUE = re.compile(r"spillable [a-z-]+ [^'`.,;:]*\0")


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The formatted strings of a module, with NUL for each value that is not written by `as_typed`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (p.value if isinstance(p, ast.Constant) else _typed(p) for p in node.values)
            yield node.lineno, "".join(map(str, parts))
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value.replace("%s", "\0")


def _typed(part: ast.expr) -> str:
    call = part.value if isinstance(part, ast.FormattedValue) else part
    return "typed" if isinstance(call, ast.Call) and ast.unparse(call.func) == "as_typed" else "\0"


def unquoted(source: str) -> list[int]:
    """The lines with a command that has a value as it is."""
    return [line for line, text in texts(ast.parse(source)) if A_COMMAND_WITH_A_VALUE.search(text)]


def test_every_command_in_a_message_has_its_paths_as_they_are_typed() -> None:
    found = {
        f"{module.relative_to(PACKAGE)}:{line}"
        for room in ROOMS
        for module in (PACKAGE / room).rglob("*.py")
        for line in unquoted(module.read_text())
    }
    assert sorted(found) == []


def test_that_rule_sees_a_path_that_is_not_typed() -> None:
    assert unquoted("""f"run 'spillable repair {path}'" """) == [1]
    assert unquoted("""f"run 'spillable repair {as_typed(path)} --claim {d}'" """) == [1]
    assert unquoted("""log.warning("see spillable verify %s", path)""") == [1]
    assert unquoted("""f"run '{command('repair', path)}'" """) == []
    assert unquoted("""f"'spillable create' makes one. {path}" """) == []
