"""Waits in an event loop for a call in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

__all__ = ["in_own_thread"]


def in_own_thread(call: Callable[[], None], name: str) -> asyncio.Future[None]:
    """Begin a call in a thread of its own, and return the future of its end, which the running event loop completes.

    A call that takes long must wait for no other, and keep none waiting, as it would in the loop's executor. It
    continues if the future is cancelled, and does not keep the process from ending.

    Args:
        call: the call.
        name: the thread's name.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def tell(error: BaseException | None) -> None:
        if done.done():  # cancelled
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def run() -> None:
        error: BaseException | None = None
        try:
            call()
        except BaseException as e:
            error = e
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(tell, error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return done
