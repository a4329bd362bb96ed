"""``spillable ui``."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spillable_stream import Channel
from spillable_stream.cli import app
from tests.support.browser import serving


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_where_it_is_and_ends_with_ctrl_c(path: Path, tmp_path: Path, number: signal.Signals) -> None:
    with Channel(path, minimum_required_space=0):
        pass
    with serving(tmp_path, path, f"{path}-missing") as served:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", served.link)
        served.process.send_signal(number)
        assert served.process.wait(60) == 0
    said = served.log.read_text()
    assert "Traceback" not in said
    assert f"{path}-missing is not a channel: it is missing; the page says so until it can be looked at" in said


def test_at_another_address_it_makes_a_token_and_prints_the_link_with_it(path: Path, tmp_path: Path) -> None:
    with serving(tmp_path, path, "--host", "0.0.0.0") as served:
        token = re.search(r"\?token=([\w-]{40,})$", served.link)
        assert token is not None
    assert token[1] not in served.log.read_text()


def test_what_cannot_be_served_is_status_2(path: Path) -> None:
    for arguments, said in ((["--token", "short"], "16 characters"), ([str(path)], "is given twice")):
        done = CliRunner().invoke(app, ["ui", str(path), *arguments, "--port", "0"])
        assert done.exit_code == 2 and said in done.stderr
