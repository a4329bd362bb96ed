"""The terminal's size, as the environment says it."""

from __future__ import annotations

import os
import subprocess

import pytest

from spillable_stream.cli.terminal_size import bound_terminal_size
from tests.support.command_line import ROOT, start


@pytest.mark.parametrize(
    ("said", "bounded"),
    [
        ("80", "80"),
        ("10000", "10000"),
        ("99999999", "10000"),
        ("9" * 5000, "10000"),
        *((text, None) for text in ("", "0", "000", "-1", "wide", "²", "80 ")),
    ],
)
def test_a_size_that_no_terminal_has_is_bounded_or_removed(said: str, bounded: str | None) -> None:
    environment = {"COLUMNS": said, "LINES": said, "TERMINAL_WIDTH": said, "HOME": "/"}
    bound_terminal_size(environment)
    sizes = {} if bounded is None else dict.fromkeys(("COLUMNS", "LINES", "TERMINAL_WIDTH"), bounded)
    assert environment == {"HOME": "/", **sizes}


@pytest.mark.parametrize("name", ["COLUMNS", "TERMINAL_WIDTH"])
@pytest.mark.parametrize("size", ["99999999", "²"])
def test_the_help_is_printed_at_once_however_wide_the_terminal_says_it_is(name: str, size: str) -> None:
    process = start(
        "--help",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT), name: size},
    )
    try:
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (process.returncode, err) == (0, b"") and b"Usage:" in out
