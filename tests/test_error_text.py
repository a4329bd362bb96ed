from __future__ import annotations

import pytest

from spillable_stream.error_text import text_of, type_and_text
from tests.support.producers import Speechless


def test_an_error_says_its_text() -> None:
    assert text_of(ValueError("no such customer")) == "no such customer"


def test_an_error_whose_text_raises_says_so() -> None:
    assert text_of(Speechless()) == "(its text can't be told: SystemExit)"


def test_its_type_comes_before_its_text() -> None:
    assert type_and_text(ValueError("no such customer")) == "ValueError: no such customer"
    assert type_and_text(Speechless()) == "Speechless: (its text can't be told: SystemExit)"


def test_a_group_of_errors_says_what_each_of_them_says() -> None:
    """A task group of asyncio said how many there were, and no more."""
    group = ExceptionGroup("unhandled errors in a TaskGroup", [KeyError("x"), ExceptionGroup("g", [Speechless()])])
    assert text_of(group) == (
        "unhandled errors in a TaskGroup (2 sub-exceptions): KeyError: 'x'; ExceptionGroup: g (1 sub-exception): "
        "Speechless: (its text can't be told: SystemExit)"
    )


def test_ctrl_c_amid_a_text_is_not_kept() -> None:
    class Interrupted(Exception):
        def __str__(self) -> str:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        text_of(Interrupted())
