"""What all verbs share."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from spillable_stream import NotAChannelError, OptionError, StorageError
from spillable_stream.cli import app
from spillable_stream.cli.app import INTERRUPTED, UNHEALTHY, UNKNOWN, confirm, ending, fail


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


def commands() -> list[tuple[str, Any]]:
    """Every verb, with its words."""
    root: Any = typer.main.get_command(app)
    found = []
    for name, command in root.commands.items():
        more = getattr(command, "commands", {"": command})
        found += [(f"{name} {other}".strip(), verb) for other, verb in more.items()]
    return found


def test_every_verb_has_help_with_an_example_and_its_exit_statuses() -> None:
    assert {"put", "take", "tail", "export", "stats", "describe", "create", "alter", "backup", "restore", "verify",
            "repair", "check-store", "groups list", "groups create", "groups drop", "groups seek"} <= {
        name for name, _ in commands()
    }  # fmt: skip
    for name, command in commands():
        text = command.help or ""
        assert f"Example: `spillable {name} " in text or f"| spillable {name}" in text, name
        assert "Exit status: 0" in text, name
        shown = CliRunner().invoke(app, [*name.split(), "--help"])
        assert shown.exit_code == 0 and "Example:" in shown.stdout, name


def test_without_a_verb_the_help_is_shown_and_completion_can_be_installed() -> None:
    shown = CliRunner().invoke(app, [])
    assert "Usage:" in shown.output and "--install-completion" in shown.output


def test_an_error_ends_a_verb_with_its_status(capsys: pytest.CaptureFixture[str]) -> None:
    for error, status in (
        (NotAChannelError("x"), UNKNOWN),
        (OptionError("x"), UNKNOWN),
        (ImportError("x"), UNKNOWN),
        (StorageError("x"), UNHEALTHY),
        (KeyboardInterrupt(), INTERRUPTED),
    ):
        with pytest.raises(typer.Exit) as ended, ending("/data/orders", interrupted=lambda: "3 of 5 are done"):
            raise error
        assert ended.value.exit_code == status
    assert capsys.readouterr().err.splitlines()[-1] == "interrupted: 3 of 5 are done"
    with pytest.raises(ZeroDivisionError), ending("/data/orders"):
        raise ZeroDivisionError  # a fault of this package is not dressed up


def test_where_nobody_can_be_asked_a_yes_is_required(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["spillable_stream.cli.app"], "is_terminal", lambda: False)
    confirm("Drop it?", True)
    with pytest.raises(typer.Exit) as ended:
        confirm("Drop it?", False)
    assert ended.value.exit_code == UNKNOWN and "give --yes" in capsys.readouterr().err
