"""Commands in messages: a user copies them into a shell, so each path and address in them is written as it is typed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "spillable_stream"
_PICTURE = "escape(loss)"  # a sentence of the web page about a repair, no command
_PLACE = re.compile(r"%[a-z]")
_IN_A_COMMAND = re.compile(r"\bspillable [a-z-]+( [^'`]*)?\Z")


def untyped_values(source: str) -> Iterator[str]:
    """Yield what f-strings, and the texts of log records, write into a command other than by `as_typed`."""
    for node in ast.walk(ast.parse(source)):
        for before, value in (*_of_f_string(node), *_of_log_record(node)):
            if _IN_A_COMMAND.search(before) and not value.startswith("as_typed("):
                yield value


def _of_f_string(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield each value of an f-string, and the text before it."""
    before = ""
    for part in node.values if isinstance(node, ast.JoinedStr) else []:
        if isinstance(part, ast.Constant):
            before += str(part.value)
        elif isinstance(part, ast.FormattedValue):
            yield before, ast.unparse(part.value)
            before += "_"


def _of_log_record(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield each argument of a call whose first one is a text with places for the others, and the text before it."""
    if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        texts = _PLACE.split(str(node.args[0].value))
        for number, value in enumerate(node.args[1 : len(texts)]):
            yield "_".join(texts[: number + 1]), ast.unparse(value)


def test_a_command_in_a_message_can_be_typed_as_it_is() -> None:
    found = [(path.name, value) for path in PACKAGE.rglob("*.py") for value in untyped_values(path.read_text())]
    assert found == [("pictures.py", _PICTURE)]


@pytest.mark.parametrize(
    "text",
    [
        "run 'spillable repair {root}' again",
        "Run: spillable verify {root}",
        "run `spillable backup {as_typed(a)} {root}`; {b}",
        "{a}: see `spillable check-store --once {root}`",
    ],
)
def test_a_bare_path_in_a_command_is_found_and_one_behind_it_is_not(text: str) -> None:
    assert list(untyped_values(f'f"{text}"')) == ["root"]
    assert list(untyped_values(f'f"{text.replace("{root}", "{as_typed(root)}")}"')) == []


@pytest.mark.parametrize(("value", "found"), [("root", ["root"]), ("as_typed(root)", [])])
def test_a_bare_path_in_the_command_of_a_log_record_is_found(value: str, found: list[str]) -> None:
    call = f"""log.warning("%s: slot %d is void; run 'spillable verify %s' or see %s", a, 1, {value}, b)"""
    assert list(untyped_values(call)) == found
