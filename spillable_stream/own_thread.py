"""Starts a thread of its own for what waits: a loop of work, or a call that an event loop awaits."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from spillable_stream.errors import StorageError

if TYPE_CHECKING:
    import asyncio

__all__ = ["NoThreadError", "in_own_thread", "no_thread_error", "start_thread"]


class NoThreadError(StorageError):
    """The process can have no more threads, or ends: a call was not made."""


def start_thread(thread: threading.Thread) -> None:
    """Start a thread.

    Args:
        thread: the thread, which has a name that says what it does.

    Raises:
        NoThreadError: the process can have no more threads, or ends.
    """
    try:
        if sys.is_finalizing():  # before 3.12, Python would wait forever until it begins
            raise RuntimeError("can't create new thread at interpreter shutdown")
        thread.start()
    except RuntimeError as e:
        raise no_thread_error(thread.name, e) from e


def no_thread_error(name: str, error: RuntimeError) -> NoThreadError:
    """Return the error of a thread that somebody else's code could not start.

    Args:
        name: what the thread does.
        error: what the code raised. Of a signal's handler it is raised again, since the thread may have begun.
    """
    if not str(error).startswith("can't "):
        raise error
    return NoThreadError(
        f"the thread {name!r} can't start ({error}): raise this user's limit of processes, or end some, and try again"
    )


def in_own_thread(call: Callable[[], None], name: str) -> asyncio.Future[None]:
    """Begin a call in a thread of its own, and return the future of its end, which the running event loop completes.

    A call that takes long must wait for no other, and keep none waiting, as it would in the loop's executor. It
    continues if the future is cancelled, and does not keep the process from ending.

    Args:
        call: the call.
        name: the thread's name.

    Raises:
        NoThreadError: the process can have no more threads. The call is not made.
    """
    import asyncio  # here: most programs have no event loop, and it takes a while

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

    start_thread(threading.Thread(target=run, name=name, daemon=True))
    return done
