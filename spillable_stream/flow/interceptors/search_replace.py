"""The interceptor search_replace: replaces what a pattern finds in bodies."""

from __future__ import annotations

import pyarrow as pa

from spillable_stream.errors import OptionError
from spillable_stream.flow.charsets import charset_name
from spillable_stream.flow.checked_arguments import checked
from spillable_stream.flow.event_batch import with_bodies
from spillable_stream.flow.interceptors.base import Interceptor
from spillable_stream.flow.patterns.regex import JavaPattern, Replacement

__all__ = ["SearchReplace"]


class SearchReplace(Interceptor):
    r"""Replaces every match of a pattern in the body.

    Bytes that are not text of the charset stay as they are; Flume writes U+FFFD in their place.

    Args:
        search_pattern: the Java pattern; not empty.
        replace_string: what takes the place of a match, as Java writes it: ``$1`` is a group, ``\$`` a dollar.
        charset: the charset of bodies.

    Raises:
        OptionError: the pattern, the replacement or the charset can't be used.
    """

    @checked
    def __init__(self, search_pattern: str, *, replace_string: str = "", charset: str = "UTF-8") -> None:
        if not search_pattern:
            raise OptionError("search_replace needs a searchPattern that is not empty")
        self.pattern: JavaPattern = JavaPattern(search_pattern)
        self.replacement: Replacement = Replacement(replace_string, self.pattern.translation)
        self.charset: str = charset_name(charset)

    def intercept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the events with their new bodies."""
        bodies = batch.column(1)
        if self.charset in ("utf-8", "ascii"):
            return with_bodies(batch, self.pattern.replace(bodies, self.replacement))
        return with_bodies(batch, pa.array([self._replaced(body) for body in bodies.to_pylist()], pa.binary()))

    def _replaced(self, body: bytes) -> bytes:
        try:
            text = body.decode(self.charset)
            return self.pattern.replace_in(text, self.replacement).encode(self.charset)
        except UnicodeError:  # it is not text of this charset, or would be none any more
            return body
