"""The channels that a run of a query has written to: another one that has taken the place of one of them is refused.

Spark plans the write of each micro-batch anew, and a plan creates a channel that is missing. So a channel that was
deleted under its query would begin anew, with the later rows only, and nobody would be told. Each start of a query
makes a new run ID. So a query that is started again may write to another path, or to a new channel at the old one.

::

    <checkpoint>/spillable-sink.json    {"run": …, "channels": {path: UUID}}; where the driver's host has the checkpoint
    this process                        the same: for a checkpoint that is elsewhere

Spark has several processes that commit, and ends those that had nothing to do for a minute. So only the file knows all
of a run. It is not synced: after a power cut there is no such run.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from spillable_stream.errors import NotAChannelError

__all__ = ["NOTE", "WrittenChannels"]

NOTE = "spillable-sink.json"
"""The name of the file in Spark's checkpoint."""

_MOST_RUNS = 1000

_known: dict[str, dict[str, str]] = {}  # run → path → UUID; the oldest run first


@dataclass(frozen=True, slots=True)
class WrittenChannels:
    """What a run of a query has written to.

    Args:
        run: the ID of the run; "" if Spark does not say it: then nothing is known.
        checkpoint: the query's checkpoint; None if it is not on this host.
    """

    run: str
    checkpoint: Path | None

    def require_same(self, channels: Mapping[str, str], batch_id: int) -> None:
        """Refuse to commit to a channel that is not the one that earlier batches of the run are in.

        Args:
            channels: the UUIDs of the channels that the batch is for, by path.
            batch_id: the batch.

        Raises:
            NotAChannelError: a channel was removed or replaced.
        """
        known = self._known()
        for path, uuid in channels.items():
            if (before := known.get(path, uuid)) != uuid:
                raise NotAChannelError(
                    f"{path} was removed or replaced while the query ran: the rows of earlier batches are in the "
                    f"channel {before}, and {uuid} is there now. The batch {batch_id} is not stored: put the earlier "
                    "channel back, or start the query again, which continues with the one that is there"
                )

    def note(self, channels: Mapping[str, str]) -> None:
        """Remember what the run has written to.

        Args:
            channels: the UUIDs of the channels that have a batch now, by path.
        """
        known = self._known()
        if not self.run or known.items() >= channels.items():
            return
        known |= channels
        _known[self.run] = known
        if len(_known) > _MOST_RUNS:
            del _known[next(iter(_known))]
        if self.checkpoint is not None and self.checkpoint.is_dir():
            with contextlib.suppress(OSError):  # this process still knows
                written = self.checkpoint / f".{NOTE}.tmp"  # always: one that dies here leaves it to the next
                written.write_text(json.dumps({"run": self.run, "channels": known}), encoding="utf-8")
                written.replace(self.checkpoint / NOTE)

    def _known(self) -> dict[str, str]:
        """Return the UUIDs of the channels that have earlier batches of the run, by path."""
        return {**self._noted(), **_known.get(self.run, {})}

    def _noted(self) -> dict[str, str]:
        """Return what the file says of the run."""
        if self.checkpoint is None or not self.run:
            return {}
        try:
            noted = json.loads((self.checkpoint / NOTE).read_text(encoding="utf-8"))
            return dict(noted["channels"]) if noted["run"] == self.run else {}
        except (OSError, ValueError, LookupError, TypeError):  # none, or one that was cut
            return {}
