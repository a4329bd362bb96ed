"""How messages show a value that somebody gave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spillable_stream.shown_value import shown

LONG = 10_000_000


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
        ({i: "x" * LONG for i in range(1000)}, "… (10,000,000 characters)"),
        (Path("x" * LONG), "xxx"),
        (Broken(), "Broken"),
        (type("list", (), {})(), "a list"),
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
