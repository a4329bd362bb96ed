"""How messages show a value that somebody gave."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import spillable_stream as ss
from spillable_stream import OptionError
from spillable_stream.options import OPTIONS, parse_options
from spillable_stream.shown_value import command, encodable, printable, shown

PACKAGE = Path(ss.__file__).parent
LONG, MILLION = 10_000_000, 1_000_000


class Broken:
    def __repr__(self) -> str:
        raise ValueError


def test_a_short_value_is_shown_whole() -> None:
    for value in ("x" * 200, b"x", 5, -1.5, None, [1, "a"], {"a": 1}, ("a",), Path("/a"), list(range(20))):
        assert shown(value) == repr(value)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("x" * LONG, f"'{'x' * 200}'… (10,000,000 characters)"),
        (b"x" * LONG, f"b'{'x' * 200}'… (10,000,000 bytes)"),
        (bytearray(LONG), "… (10,000,000 bytes)"),
        (1 << LONG, "an integer of 10,000,001 bits"),
        (["x" * LONG] * 1000, "… (10,000,000 characters)"),
        (dict.fromkeys(range(1000), "x" * LONG), "… (10,000,000 characters)"),
        (Path("x" * LONG), "xxx"),
        (Broken(), "Broken"),
        (type("list", (), {})(), "list"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_long_value_is_shown_by_its_beginning_and_its_length(value: object, said: str) -> None:
    assert said in shown(value) and len(shown(value)) <= 1001


def test_lists_in_lists_are_shown_to_some_depth() -> None:
    deep: list[Any] = []
    for _ in range(10_000):
        deep = [deep] * 30
    assert len(shown(deep)) <= 1001


def test_a_text_may_be_shown_up_to_another_length() -> None:
    assert shown("x" * 1024, 1024) == repr("x" * 1024)
    assert shown("x" * 1025, 1024) == repr("x" * 1024) + "… (1,025 characters)"


# ── whoever refuses something ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
@pytest.mark.parametrize("value", ["x" * MILLION, b"x" * MILLION, [b"x" * MILLION] * 2], ids=["text", "bytes", "list"])
def test_no_option_is_refused_with_all_of_a_huge_value(option: Any, value: object) -> None:
    try:
        parse_options({option.name: value}, option.scopes, where="here")
    except OptionError as e:
        assert len(str(e)) < 2000


def test_no_name_of_an_option_is_refused_with_all_of_it() -> None:
    with pytest.raises(OptionError, match=r"… \(1,000,000 characters\) is not an option of here") as caught:
        parse_options({"x" * MILLION: 1}, ["channel"], where="here")
    assert len(str(caught.value)) < 1000


def refusals() -> Iterator[tuple[str, ast.Call]]:
    """Yield each call in the package that makes a refusal of what somebody gave, with its place."""
    kinds = ("OptionError", "typer.BadParameter")
    texts = ((file, file.read_text()) for file in sorted(PACKAGE.rglob("*.py")))
    for file, text in ((file, text) for file, text in texts if any(f"{kind}(" in text for kind in kinds)):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in kinds:
                yield f"{file.relative_to(PACKAGE)}:{node.lineno}", node


def test_each_refusal_shows_the_value_by_this_rule() -> None:
    found = list(refusals())
    assert len(found) > 100
    whole = [
        place
        for place, call in found
        if any(isinstance(part, ast.FormattedValue) and part.conversion == ord("r") for part in ast.walk(call))
    ]
    assert whole == [], "write {shown(value)} for {value!r}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("größer 😀 ·", "größer 😀 ·"),
        ("\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"),
        ("a\r\nb\tc", "a\\r\\nb\\tc"),
        ("\u202eabc", "\\u202eabc"),
        ("\udcff", "\\udcff"),
        ("", ""),
    ],
)
def test_a_line_that_is_printed_commands_no_terminal(text: str, said: str) -> None:
    assert printable(text) == said


def test_a_name_that_is_not_utf_8_can_be_encoded_and_differs_from_others() -> None:
    names = ["plain", "größe", "\udcff", "\udcfe"]
    assert [encodable(name).encode() for name in names][:2] == [b"plain", "größe".encode()]
    assert len({encodable(name) for name in names}) == 4


@pytest.mark.parametrize(
    "path",
    [
        "/data/orders",
        "/data/my orders",
        "/data/it's",
        "s3://bucket/a b",
        "/data/$HOME",
        "/data/größe/数",
        "/a;b&(c)",
        "~x",
    ],
)
def test_a_path_is_written_so_that_a_shell_reads_it_as_one_word(path: str) -> None:
    assert shlex.split(command("verify", path)) == ["spillable", "verify", path]


def test_a_command_of_a_message_is_read_by_a_shell_as_it_is_meant() -> None:
    text = command("repair", Path("/data/my orders"), "--claim", Path("/disks/it's"), "DIR")
    assert shlex.split(text) == ["spillable", "repair", "/data/my orders", "--claim", "/disks/it's", "DIR"]
