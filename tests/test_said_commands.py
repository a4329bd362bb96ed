"""Commands in messages: a user copies them into a shell, so `command` writes each that has a path or an address."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "spillable_stream"
_PICTURE = "found.loss.events_text() or 'no event'"  # a sentence of the web page about a repair, no command
_PLACE = re.compile(r"%[a-z]")
_IN_A_COMMAND = re.compile(r"\bspillable [a-z-]+( [^'`]*)?\Z")


def written_values(source: str) -> Iterator[str]:
    """Yield what f-strings, and the texts of log records, write into a command by themselves."""
    for node in ast.walk(ast.parse(source)):
        for before, value in (*_of_f_string(node), *_of_log_record(node)):
            if _IN_A_COMMAND.search(before):
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
    found = [(path.name, value) for path in PACKAGE.rglob("*.py") for value in written_values(path.read_text())]
    assert found == [("pictures.py", _PICTURE)]


@pytest.mark.parametrize(
    "text",
    [
        "run 'spillable repair {root}' again",
        "Run: spillable verify {root}",
        "run `spillable backup DIR {root}`; {b}",
        "{a}: see `spillable check-store --once {root}`",
    ],
)
def test_a_path_in_a_command_is_found_and_one_behind_it_is_not(text: str) -> None:
    assert list(written_values(f'f"{text}"')) == ["root"]


def test_a_whole_command_and_what_is_behind_it_may_be_written() -> None:
    assert list(written_values("""f"run '{command('verify', root)}' or `spillable top`; {b}\"""")) == []


@pytest.mark.parametrize(("text", "found"), [("'spillable verify %s'", ["root"]), ("'%s'", [])])
def test_a_path_in_the_command_of_a_log_record_is_found(text: str, found: list[str]) -> None:
    assert list(written_values(f"""log.warning("%s: slot %d is void; run {text} or see %s", a, 1, root, b)""")) == found
