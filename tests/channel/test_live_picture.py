"""The picture of a channel in a notebook."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spillable_stream import Channel
from spillable_stream.channel import live_picture as module
from spillable_stream.channel.live_picture import WIDGET_VIEW, LivePicture, live_picture
from tests.support.no_threads import no_threads

Open = Callable[..., Channel]


class Thing:
    """Something that draws itself, each time as something else; and that may fail."""

    def __init__(self) -> None:
        self.drawn = 0
        self.fails = False

    def _repr_html_(self) -> str:
        if self.fails:
            raise RuntimeError("unforeseen")
        self.drawn += 1
        return f"<b>{self.drawn}</b>"


def picture(thing: Thing, lives_seconds: float = 3600.0) -> LivePicture:
    def make(html: str) -> Any:
        return SimpleNamespace(value=html, comm=object())

    return LivePicture(thing, make, every_seconds=0.01, lives_seconds=lives_seconds)


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_it_is_drawn_again_until_it_is_ended() -> None:
    thing = Thing()
    live = picture(thing)
    until(lambda: live.widget.value not in ("<b>1</b>", "<b>2</b>"))  # later ones come while this thread is not there
    live.end()
    until(lambda: not live.lives)


def test_it_ends_with_the_widget_with_the_thing_and_after_its_time() -> None:
    thing = Thing()
    closed, short = picture(thing), picture(thing, lives_seconds=0.05)
    closed.widget.comm = None
    until(lambda: not closed.lives)
    until(lambda: not short.lives)
    orphan = picture(thing)
    del thing
    gc.collect()
    until(lambda: not orphan.lives)


def test_one_for_which_there_is_no_thread_shows_one_moment() -> None:
    with no_threads():
        live = picture(Thing())
    assert live.widget.value == "<b>1</b>" and not live.lives


def test_whatever_a_drawing_meets_it_is_drawn_again() -> None:
    thing = Thing()
    live = picture(thing)
    thing.fails = True
    before = live.widget.value
    time.sleep(0.05)
    assert live.lives
    thing.fails = False
    until(lambda: live.widget.value != before)
    live.end()


def test_outside_of_a_notebook_there_is_html_only(open_channel: Open) -> None:
    channel = open_channel()
    threads = set(threading.enumerate())
    assert live_picture(channel) is None and channel._repr_mimebundle_() == {}
    assert "Event channel" in channel._repr_html_() and threads.issuperset(threading.enumerate())


def test_in_a_kernel_with_widgets_a_channel_is_a_widget_and_the_last_one_lives(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel()
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    made: list[Any] = []

    def make(value: str) -> Any:
        view = {WIDGET_VIEW: {"model_id": "1"}}
        made.append(SimpleNamespace(value=value, comm=object(), _repr_mimebundle_=lambda: view))
        return made[-1]

    monkeypatch.setitem(sys.modules, "ipywidgets", SimpleNamespace(HTML=make))
    monkeypatch.setattr(module, "_EVERY_SECONDS", 0.01)
    assert channel._repr_mimebundle_() == {WIDGET_VIEW: {"model_id": "1"}}
    first = module._latest[channel]
    channel._repr_mimebundle_()
    until(lambda: not first.lives)
    assert module._latest[channel].lives and "0 of" in made[0].value
    module._latest[channel].end()
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    assert channel._repr_mimebundle_() == {}


@pytest.mark.slow
def test_in_a_real_kernel_the_picture_moves(tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.v4.new_notebook()
    source = f"""
import time, spillable_stream as ss
channel = ss.Channel({str(tmp_path / "c")!r}, minimum_required_space=0)
channel
---
with channel.put_transaction() as tx:
    tx.put_many(ss.Event(b"x") for _ in range(7))
from spillable_stream.channel import live_picture
widget = live_picture._latest[channel].widget
deadline = time.monotonic() + 60
while "7 of" not in widget.value:
    assert time.monotonic() < deadline
    time.sleep(0.1)
---
channel.head(2)
---
channel.close()
"""
    notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in source.split("---")]
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    data = notebook.cells[0].outputs[0].data
    assert WIDGET_VIEW in data and "Event channel" in data["text/html"]
    assert "2 events" in notebook.cells[2].outputs[0].data["text/html"]
