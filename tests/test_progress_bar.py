"""A progress bar."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from spillable_stream import Channel, ProgressBar, verify
from spillable_stream.progress import Progress
from tests.support.channels import fill


def test_it_shows_what_is_done_of_how_much() -> None:
    shown = io.StringIO()
    with ProgressBar(file=shown, ncols=80) as bar:
        bar(Progress("verify", 0, 4096, "bytes"))
        bar(Progress("verify", 2048, 4096, "bytes"))
        bar(Progress("load", 3, None, "events"))
    text = shown.getvalue()
    assert "verify:  50%" in text and "2.00k/4.00k" in text and "load: 3 events" in text


def test_it_is_told_by_a_verify_and_by_an_open(path: Path) -> None:
    fill(path)
    shown = io.StringIO()
    with ProgressBar(file=shown, ncols=80) as bar:
        assert verify(path, progress=bar).healthy
        with Channel(path, create=False, progress=bar):
            pass
    assert "verify: 100%" in shown.getvalue() and "open: 100%" in shown.getvalue()


def test_without_tqdm_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(ImportError, match=r"spillable-stream\[notebook\]"):
        ProgressBar()
