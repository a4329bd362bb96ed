"""The interceptor regex_filter: keeps or drops events whose body has a match."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from spillable_stream.flow.checked_arguments import checked
from spillable_stream.flow.interceptors.base import Interceptor
from spillable_stream.flow.patterns.regex import JavaPattern

__all__ = ["RegexFilter"]


class RegexFilter(Interceptor):
    """Keeps the events in whose body a pattern is found, or drops them.

    Args:
        regex: the Java pattern. It may match anywhere in the body.
        exclude_events: whether events with a match are dropped; else those without are.

    Raises:
        OptionError: the pattern can't be used.
    """

    @checked
    def __init__(self, regex: str = ".*", *, exclude_events: bool = False) -> None:
        self.pattern: JavaPattern = JavaPattern(regex)
        self.exclude_events = exclude_events

    def intercept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the events that stay."""
        found = self.pattern.find(batch.column(1))
        kept = pc.invert(found) if self.exclude_events else found
        return batch if pc.all(kept).as_py() else batch.filter(kept)
