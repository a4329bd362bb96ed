"""The picture of a channel in a notebook, live where the front end has widgets."""

from __future__ import annotations

import contextlib
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["WIDGET_VIEW", "LivePicture", "live_picture", "live_view"]

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"

_EVERY_SECONDS = 1.0
_LIVES_SECONDS = 3600.0


class _Drawn(Protocol):
    """Anything that draws itself as HTML."""

    def _repr_html_(self) -> str: ...


class LivePicture:
    """A widget that is drawn again every second, in a thread, for an hour, or until it is closed or the thing is gone.

    Args:
        drawn: what it shows; the picture does not keep it alive.
        make_widget: makes the widget, given its first HTML.
        every_seconds: how much time there is between two drawings.
        lives_seconds: how long it lives.
    """

    def __init__(
        self,
        drawn: _Drawn,
        make_widget: Callable[[str], Any],
        every_seconds: float = _EVERY_SECONDS,
        lives_seconds: float = _LIVES_SECONDS,
    ) -> None:
        self._drawn = weakref.ref(drawn)
        self._every_seconds = every_seconds
        self._looks_left = int(lives_seconds / every_seconds)
        self._ended = threading.Event()
        self.widget: Any = make_widget(drawn._repr_html_())
        self._thread = threading.Thread(target=self._live, name="spillable-picture", daemon=True)
        with contextlib.suppress(RuntimeError):  # where the process can have no more threads it shows one moment
            self._thread.start()

    def _live(self) -> None:
        while self._looks_left > 0 and not self._ended.wait(self._every_seconds):
            self._looks_left -= 1
            drawn = self._drawn()
            if drawn is None or self.widget.comm is None:  # a widget that was closed has none
                return
            with contextlib.suppress(Exception):  # it must not end a notebook's kernel, whatever it meets
                self.widget.value = drawn._repr_html_()
            del drawn

    def end(self) -> None:
        """Leave the picture as it is."""
        self._ended.set()

    @property
    def lives(self) -> bool:
        """Whether it is still drawn again."""
        return self._thread.is_alive()

    def view(self) -> dict[str, Any]:
        """Return what a front end with widgets needs to show it."""
        found = self.widget._repr_mimebundle_() or {}
        data = found[0] if isinstance(found, tuple) else found
        return {WIDGET_VIEW: data[WIDGET_VIEW]} if WIDGET_VIEW in data else {}


_latest: weakref.WeakKeyDictionary[Any, LivePicture] = weakref.WeakKeyDictionary()


def live_picture(drawn: _Drawn) -> LivePicture | None:
    """Return a live picture, and let the one before of the same thing end; None where there are no widgets.

    There are some in a notebook's kernel with ipywidgets.

    Args:
        drawn: what it shows.
    """
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if getattr(shell, "kernel", None) is None:
        return None
    try:
        from ipywidgets import HTML
    except ImportError:
        return None
    if (before := _latest.get(drawn)) is not None:
        before.end()
    picture = LivePicture(drawn, lambda html: HTML(value=html))
    _latest[drawn] = picture
    return picture


def live_view(drawn: _Drawn) -> dict[str, Any]:
    """Return what a front end with widgets needs to show a live picture of a thing; nothing where there are none.

    Args:
        drawn: what it shows.
    """
    picture = live_picture(drawn)
    return {} if picture is None else picture.view()
