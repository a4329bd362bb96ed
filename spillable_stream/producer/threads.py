"""The threads of one producer, and how to tell that this is one of them."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["Threads"]

_here = threading.local()  # rather than a set of identifiers, which are used again once a thread has ended


class Threads:
    """Threads that belong together. None ends by an exception unheard.

    Args:
        broken: called with what ended a thread, in it.
    """

    def __init__(self, broken: Callable[[BaseException], None]) -> None:
        self._broken = broken

    def new(
        self, body: Callable[[], None], name: str, *, tells: bool = False, then: Callable[[], None] | None = None
    ) -> threading.Thread:
        """Return a thread that is yet to be started.

        Args:
            body: what it does.
            name: its name.
            tells: whether it calls what applications gave to be told, and commits nothing.
            then: called last, whatever ended the body.
        """

        def run() -> None:
            _here.threads, _here.tells = self, tells
            try:
                body()
            except BaseException as e:
                self._broken(e)
            if then is not None:
                then()

        return threading.Thread(target=run, name=name, daemon=True)

    def are_here(self) -> bool:
        """Tell whether this thread is one of them."""
        return getattr(_here, "threads", None) is self

    def commit_here(self) -> bool:
        """Tell whether this thread is one of them that does not only tell applications."""
        return self.are_here() and not _here.tells
