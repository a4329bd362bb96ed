"""The interceptor regex_extractor: the groups of a match in the body become headers, as they are or as a time."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from spillable_stream.errors import OptionError
from spillable_stream.flow.checked_arguments import checked
from spillable_stream.flow.event_batch import Header, add_headers
from spillable_stream.flow.interceptors.base import Interceptor
from spillable_stream.flow.java_dates import JodaPattern
from spillable_stream.flow.java_dates import time_zone as zone_of
from spillable_stream.flow.patterns.regex import JavaPattern, Texts

__all__ = ["Millis", "PassThrough", "RegexExtractor"]


class PassThrough:
    """A serializer that takes the text of a group as it is.

    Args:
        name: the header.
    """

    @checked
    def __init__(self, name: str) -> None:
        self.name = name

    def headers(self, group: pa.Array) -> Sequence[Header]:
        """Return the header of a group.

        Args:
            group: its text for each event, null without a match.
        """
        return [Header(self.name, group)]


class Millis:
    """A serializer that takes the text of a group as a time, and gives it in milliseconds since 1970.

    A text that is no such time leaves the event without the header, and with ``NAME.error``, which has the text; in
    Flume it fails its batch forever.

    Args:
        name: the header.
        pattern: Joda's pattern of the time, such as ``yyyy-MM-dd HH:mm:ss``.
        time_zone: the zone of times that name none; None for the host's.

    Raises:
        OptionError: the pattern has what is not supported, or there is no such zone.
    """

    @checked
    def __init__(self, name: str, pattern: str, *, time_zone: str | None = None) -> None:
        self.name = name
        self.pattern: JodaPattern = JodaPattern(pattern, zone_of(time_zone))

    def headers(self, group: pa.Array) -> Sequence[Header]:
        """Return the header of a group, and that of texts that are not a time."""
        texts = group.dictionary_encode()
        times = [self.pattern.milliseconds(text) for text in texts.dictionary.to_pylist()]
        known = pa.array([None if t is None else str(t) for t in times], pa.string())
        wrong = [text if t is None else None for text, t in zip(texts.dictionary.to_pylist(), times, strict=True)]
        found = [Header(self.name, known.take(texts.indices))]
        if any(text is not None for text in wrong):
            found.append(Header(f"{self.name}.error", pa.array(wrong, pa.string()).take(texts.indices)))
        return found


class RegexExtractor(Interceptor):
    """Sets headers to the groups of the first match in the body.

    An event without a match stays as it is. A group that took no part gives an empty header. Of two serializers with
    one name the later counts, and existing headers are replaced.

    Args:
        regex: the Java pattern.
        serializers: what becomes of each group, in order: the name of a header, or a serializer. Groups beyond them are
            ignored.

    Raises:
        OptionError: the pattern can't be used, or there are no serializers.
    """

    @checked
    def __init__(self, regex: str, serializers: Sequence[str | PassThrough | Millis]) -> None:
        if not serializers:
            raise OptionError("regex_extractor needs a serializer for each group that becomes a header")
        self.pattern: JavaPattern = JavaPattern(regex)
        self.serializers: list[PassThrough | Millis] = [
            PassThrough(s) if isinstance(s, str) else s for s in serializers
        ]

    def intercept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the events with the headers."""
        _, groups = self.pattern.extract(Texts.of(batch.column(1)))
        pairs = zip(self.serializers, groups, strict=False)  # groups without a serializer, and vice versa
        return add_headers(batch, [h for serializer, group in pairs for h in serializer.headers(group)])
