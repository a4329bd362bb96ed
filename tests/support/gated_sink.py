"""A sink that waits for a file before it writes, for tests of how an agent ends."""

from __future__ import annotations

from pathlib import Path

from spillable_stream import flow
from spillable_stream.flow.sinks.base import Taken
from tests.support.waiting import wait_until

__all__ = ["GatedSink"]


class GatedSink(flow.BatchSink):
    """Appends each body as a line to the file ``out``, one a batch; not before there is a file ``go``.

    Args:
        directory: where the files are; ``begun`` appears when the first batch is there.
        channel: the name of the channel.
    """

    def __init__(self, *, directory: str, channel: str = "") -> None:
        super().__init__(1, channel)
        self._directory = Path(directory)

    def write(self, taken: Taken) -> None:
        (self._directory / "begun").touch()
        wait_until((self._directory / "go").exists)
        with (self._directory / "out").open("ab") as out:
            out.writelines(body + b"\n" for body in taken.batch.column("body").to_pylist())
