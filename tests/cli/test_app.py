"""What all verbs share."""

from __future__ import annotations

import json

import pytest
import typer

from spillable_stream.cli.app import UNKNOWN, fail


def test_a_failure_is_one_line_on_standard_error_and_a_status(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        fail("/data/orders", ValueError("no such thing"), False, UNKNOWN)
    assert ended.value.exit_code == UNKNOWN
    assert capsys.readouterr() == ("", "ValueError: no such thing\n")


def test_a_failure_is_one_object_for_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        fail("/data/orders", ValueError("no such thing"), True, UNKNOWN)
    out, err = capsys.readouterr()
    assert json.loads(out) == {"path": "/data/orders", "error": "ValueError", "text": "no such thing"} and err == ""
