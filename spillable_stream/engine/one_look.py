"""One look at a log far away serves a whole call of Spark's: each look is a request or two, and costs 20 ms and money.

A call asks for the state a dozen times. Whatever it decides is as true as if it had all been decided when the call
began, and what it commits is checked against the newest slot anyhow::

    with one_look():
        snapshot ── looks at the log
        snapshot ── takes the state as it is known: from the look above, or from a commit since
        look_again ── after a wait
        snapshot ── looks at the log
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["has_looked", "let_go", "look_again", "one_look", "record_look"]


class _Block:
    """A block of `one_look`.

    Attributes:
        looked: what has looked at its log in the block.
        is_over: whether it has ended. A thread that was begun in it may have its context for longer.
    """

    def __init__(self) -> None:
        self.looked: set[object] = set()
        self.is_over: bool = False


_block: ContextVar[_Block | None] = ContextVar("block", default=None)


def _current() -> _Block | None:
    block = _block.get()
    return None if block is None or block.is_over else block


@contextmanager
def one_look() -> Iterator[None]:
    """Let one look at each log serve all that is done in the block, and in blocks inside of it.

    It holds for this thread, and for those that run in a copy of its context.
    """
    if _current() is not None:
        yield
        return
    block = _Block()
    try:
        _block.set(block)
        yield
    finally:
        block.is_over = True
        if _block.get() is block:  # or an interrupt left it, and it ends in the middle of another one
            _block.set(None)


def let_go() -> None:
    """End what an interrupt has left of a block in this thread, whose call has ended (`ActiveCalls.let_go`)."""
    _block.set(None)


def has_looked(follower: object) -> bool:
    """Tell whether what follows a log has looked at it in the block that this is called in."""
    block = _current()
    return block is not None and follower in block.looked


def record_look(follower: object) -> None:
    """Record that what follows a log has just looked at it."""
    if (block := _current()) is not None:
        block.looked.add(follower)


def look_again(follower: object) -> None:
    """Let what follows a log look at it once more: time has passed."""
    if (block := _current()) is not None:
        block.looked.discard(follower)
