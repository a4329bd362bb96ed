from __future__ import annotations

import threading
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from spillable_stream.arguments import path_text, seconds, whole_number
from spillable_stream.errors import OptionError


def test_a_whole_number_is_any_integer_that_is_large_enough() -> None:
    assert [whole_number("n", n) for n in (1, np.int64(7), 2**70)] == [1, 7, 2**70]
    assert whole_number("n", 0, least=0) == 0


@pytest.mark.parametrize("value", [None, "3", b"3", 1.0, True, [], 0, -1])
def test_anything_else_is_refused_by_its_name(value: object) -> None:
    with pytest.raises(OptionError, match=r"^limit must be an integer, 1 or more, not "):
        whole_number("limit", value)


def test_seconds_are_any_real_number() -> None:
    assert [seconds("t", s) for s in (0, -1, 0.5, Fraction(1, 4), np.float32(2))] == [0, -1, 0.5, 0.25, 2]
    assert seconds("t", float("inf")) == seconds("t", 10**400) == threading.TIMEOUT_MAX


@pytest.mark.parametrize("value", [None, "3", float("nan"), True, 1j, []])
def test_what_is_no_number_of_seconds_is_refused_by_its_name(value: object) -> None:
    with pytest.raises(OptionError, match=r"^timeout_seconds must be a number of seconds, not "):
        seconds("timeout_seconds", value)


def test_a_path_is_text_or_a_path_of_text() -> None:
    found = [path_text("path", p) for p in ("a", Path("a/b"), "s3://b/c", "ü\udcff")]
    assert found == ["a", "a/b", "s3://b/c", "ü\udcff"]


@pytest.mark.parametrize("value", [None, b"a", 3, [], object()])
def test_what_is_no_path_is_refused_by_its_name(value: object) -> None:
    with pytest.raises(OptionError, match=r"^path must be a path, as a str or a pathlib\.Path, not "):
        path_text("path", value)


@pytest.mark.parametrize("value", ["a\0b", "\ud800"])
def test_a_name_that_no_file_can_have_is_refused(value: str) -> None:
    with pytest.raises(OptionError, match="no file can have this name"):
        path_text("path", value)
