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


def test_ctrl_c_amid_a_text_is_not_kept() -> None:
    class Interrupted(Exception):
        def __str__(self) -> str:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        text_of(Interrupted())
