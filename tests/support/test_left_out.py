"""Which files may have tests that `make test` leaves out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.left_out import LEFT_OUT, may_have_what_is_left_out


@pytest.mark.parametrize(
    ("text", "may"),
    [
        ("@pytest.mark.slow\n", True),
        ("@pytest.mark.crash\n", True),
        ("from hypothesis import given\n", True),
        ("marks=MARKS if name in SLOW_PAGES else []", True),
        ("def test_it() -> None: ...", False),
    ],
)
def test_a_file_with_what_make_test_leaves_out_says_so(tmp_path: Path, text: str, may: bool) -> None:
    (tmp_path / "test_it.py").write_text(text)
    assert may_have_what_is_left_out(tmp_path / "test_it.py") is may


def test_a_file_is_spared_by_the_marks_that_make_test_rest_runs() -> None:
    assert f'-m "{LEFT_OUT}"' in (Path(__file__).parents[2] / "Makefile").read_text()
