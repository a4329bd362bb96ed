"""The bar of a verb."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from spillable_stream import Progress
from spillable_stream.cli.shown_progress import shown_progress
from tests.support.channels import fill
from tests.support.terminal import on_terminal


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_what_is_done_and_of_how_much(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with shown_progress("backup") as tell:
        assert tell is not None
        tell(Progress("backup", 3, 4, "events"))
        tell(Progress("check", 1 << 20, 1 << 21, "bytes"))
        tell(Progress("load [b]", 7, None, "rows"))
    shown = terminal.getvalue()
    assert "load [b]" in shown and "7 rows" in shown


def test_without_a_terminal_nobody_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with shown_progress("verify") as tell:
        assert tell is None
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    "verb", ["verify", "put", *(pytest.param(v, marks=pytest.mark.slow) for v in ("export", "backup", "restore"))]
)
def test_each_long_verb_shows_its_bar_on_a_terminal_and_leaves_its_result(
    path: Path, tmp_path: Path, verb: str
) -> None:
    fill(path)
    (tmp_path / "lines").write_text("a\nb\n")
    arguments: dict[str, list[object]] = {
        "verify": [path],
        "export": [path, tmp_path / "out.jsonl"],
        "put": [path, tmp_path / "lines"],
        "backup": [path, tmp_path / "copy"],
        "restore": [tmp_path / "copy", tmp_path / "restored", "--new-identity"],
    }
    if verb == "restore":
        assert on_terminal("backup", *arguments["backup"]).status == 0
    done = on_terminal(verb, *arguments[verb])
    assert done.status == 0
    what = {"put": "load", "restore": "verify"}.get(verb, verb)
    assert what in done.shown and "\u2501" in done.shown and "%" in done.shown
    assert done.printed and "\u2501" not in done.printed
