"""The end of a micro-batch whose write can't be planned: Spark makes the writer anew, to commit and again to abort.

A channel may be gone by then, or its credentials may have expired. Raised for the commit, the error says so to a user.
Raised for the abort as well, it would take the place of the first: Spark then says "Writing job failed" and no more.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from spillable_stream.errors import SpillableError
from spillable_stream.log_records import fields, log_of
from spillable_stream.spark.sink.writer import SpillableStreamWriter
from spillable_stream.spark.spark_errors import short_traces

__all__ = ["FailedPlanWriter", "ends_a_batch"]

_log = log_of(__name__)

_RUNNER = "python_streaming_sink_runner.py"  # Spark's program that calls commit or abort of a stream's writer
_FRAMES = 6


def ends_a_batch() -> bool:
    """Tell whether Spark asks for a stream's writer to commit or abort a micro-batch, and not when the query starts."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_FRAMES):
        if frame is None:
            return False
        if frame.f_code.co_filename.endswith(_RUNNER):
            return True
        frame = frame.f_back
    return False


@short_traces
class FailedPlanWriter(SpillableStreamWriter):
    """Commits nothing, and says why; what tasks staged is left to a checkpoint of the channel.

    Args:
        path: the channel's directory, or its address in a store, as the query names it.
        error: why the write can't be planned.
    """

    def __init__(self, path: str, error: SpillableError) -> None:
        self._path = path
        self._error = error

    def write(self, iterator: Iterator[pa.RecordBatch]) -> NoReturn:
        """Raise why."""
        raise self._error

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> NoReturn:
        """Raise why."""
        raise self._error

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Leave the error to the commit."""
        _log.warning(
            "%s: the micro-batch %d is aborted without the channel: %s",
            self._path,
            batchId,
            self._error,
            extra=fields(self._path),
        )
