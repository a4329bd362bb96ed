"""Reports the loss of a memory tier to the user: a `MemoryLossWarning` that names the events."""

from __future__ import annotations

import warnings

from spillable_stream.counted import counted
from spillable_stream.errors import MemoryLossWarning
from spillable_stream.state.memory_loss_rules import MemoryLoss
from spillable_stream.state.ranges import count_of, listed

__all__ = ["report_memory_loss"]


def report_memory_loss(path: str, loss: MemoryLoss) -> None:
    """Warn of a loss, unless no event is lost and none may be.

    Args:
        path: the channel's directory.
        loss: what went with the memory tier.
    """
    if loss.lost or loss.doubtful:
        message = _message(path, loss)
        warnings.warn(MemoryLossWarning(message, tuple(loss.lost), tuple(loss.doubtful)), stacklevel=3)


def _message(path: str, loss: MemoryLoss) -> str:
    count = count_of(loss.lost)
    message = f"the memory tier of {path} is gone: "
    message += (
        f"{counted(count, 'event', 'are')} lost, {listed(loss.lost)}" if loss.lost else "no event is known to be lost"
    )
    if loss.taken:
        message += f" (of them every group had taken {count_of(loss.taken):,}, which were kept: {listed(loss.taken)})"
    if loss.doubtful:
        message += (
            f"; events that were put in the last moments before that would have IDs among {listed(loss.doubtful)}, and "
            "be lost too"
        )
    return message + ". All events on disk are there, in order"
