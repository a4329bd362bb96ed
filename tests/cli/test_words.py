from __future__ import annotations

import pytest
from typer.testing import CliRunner

import spillable_stream
from spillable_stream.cli import app


@pytest.mark.parametrize(
    ("words", "status", "part"),
    [
        (["version"], 0, f"spillable_stream {spillable_stream.__version__}\n"),
        (["--version"], 0, f"spillable_stream {spillable_stream.__version__}\n"),
        (["help"], 0, "agent"),
        (["help", "agent"], 0, "--conf-file"),
        (["help", "groups", "list"], 0, "groups list"),
        (["help", "fly"], 2, "there is no verb 'fly'; 'spillable help' lists them"),
        (["help", "verif"], 2, "there is no verb 'verif'; the nearest is 'verify'"),
        (["help", "groups", "lst"], 2, "there is no verb 'groups lst'; the nearest is 'groups list'"),
        (["help", "groups", "fly"], 2, "there is no verb 'groups fly'; 'spillable help groups' lists them"),
        (["help", "stats", "fly"], 2, "there is no verb 'stats fly'; 'spillable help' lists them"),
    ],
)
def test_scripts_of_flume_get_an_answer(words: list[str], status: int, part: str) -> None:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == status
    assert part in done.output
