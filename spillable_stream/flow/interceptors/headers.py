"""Interceptors that set and remove headers: timestamp, host, static, remove_header, uuid."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from spillable_stream.flow.checked_arguments import checked
from spillable_stream.flow.event_batch import Header, header_names, remove_headers
from spillable_stream.flow.interceptors.base import HeaderInterceptor, Interceptor
from spillable_stream.flow.patterns.regex import JavaPattern

__all__ = ["Host", "RemoveHeader", "Static", "Timestamp", "Uuid"]


class Timestamp(HeaderInterceptor):
    """Sets a header to the time, in milliseconds since 1970; all events of a batch get the same.

    Args:
        header_name: the header.
        preserve_existing: whether an event that has the header keeps it.
    """

    @checked
    def __init__(self, *, header_name: str = "timestamp", preserve_existing: bool = False) -> None:
        self.header_name = header_name
        self.preserve_existing = preserve_existing

    def headers(self, batch: pa.RecordBatch) -> Sequence[Header]:
        """Return the time as a header."""
        return [Header(self.header_name, str(self.surroundings.now_ms()), self.preserve_existing)]


class Host(HeaderInterceptor):
    """Sets a header to the host's address or name, which is found once; it is not set where that is not known.

    Args:
        host_header: the header.
        use_ip: whether it is the address; else it is the canonical name.
        preserve_existing: whether an event that has the header keeps it.
    """

    @checked
    def __init__(self, *, host_header: str = "host", use_ip: bool = True, preserve_existing: bool = False) -> None:
        self.host_header = host_header
        self.use_ip = use_ip
        self.preserve_existing = preserve_existing
        self._found: tuple[str | None] | None = None

    def headers(self, batch: pa.RecordBatch) -> Sequence[Header]:
        """Return the host as a header, if it is known."""
        if self._found is None:
            around = self.surroundings
            self._found = (around.host_address() if self.use_ip else around.host_name(),)
        (host,) = self._found
        return [] if host is None else [Header(self.host_header, host, self.preserve_existing)]


class Static(HeaderInterceptor):
    """Sets a header to the same value on every event.

    Args:
        key: the header.
        value: its value.
        preserve_existing: whether an event that has the header keeps it.
    """

    @checked
    def __init__(self, *, key: str = "key", value: str = "value", preserve_existing: bool = True) -> None:
        self.key = key
        self.value = value
        self.preserve_existing = preserve_existing

    def headers(self, batch: pa.RecordBatch) -> Sequence[Header]:
        """Return the header."""
        return [Header(self.key, self.value, self.preserve_existing)]


class Uuid(HeaderInterceptor):
    """Sets a header to a random UUID (version 4), another one for each event.

    Args:
        header_name: the header.
        preserve_existing: whether an event that has the header keeps it.
        prefix: what comes before each UUID.
    """

    @checked
    def __init__(self, *, header_name: str = "id", preserve_existing: bool = True, prefix: str = "") -> None:
        self.header_name = header_name
        self.preserve_existing = preserve_existing
        self.prefix = prefix

    def headers(self, batch: pa.RecordBatch) -> Sequence[Header]:
        """Return a UUID for each event as a header."""
        rows = batch.num_rows
        return [Header(self.header_name, self._uuids(rows), self.preserve_existing)]

    def _uuids(self, rows: int) -> pa.Array:
        raw = np.frombuffer(self.surroundings.random_bytes(16 * rows), np.uint8).reshape(rows, 16).copy()
        raw[:, 6] = raw[:, 6] & 0x0F | 0x40  # the version
        raw[:, 8] = raw[:, 8] & 0x3F | 0x80  # the variant
        digits = np.frombuffer(raw.tobytes().hex().encode(), np.uint8).reshape(rows, 32)
        prefix = np.frombuffer(self.prefix.encode(), np.uint8)
        texts = np.full((rows, len(prefix) + 36), ord("-"), np.uint8)
        texts[:, : len(prefix)] = prefix
        dashed = texts[:, len(prefix) :]
        for begin, end, dashes in ((0, 8, 0), (8, 12, 1), (12, 16, 2), (16, 20, 3), (20, 32, 4)):
            dashed[:, begin + dashes : end + dashes] = digits[:, begin:end]
        ends = np.arange(0, (rows + 1) * texts.shape[1], texts.shape[1], dtype=np.int32)
        return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(ends), pa.py_buffer(texts.tobytes())])


class RemoveHeader(Interceptor):
    """Removes headers: those that any of its arguments names.

    Args:
        with_name: the name of one.
        from_list: the names of several.
        from_list_separator: the Java pattern of what is between them.
        matching: a Java pattern; a header is removed if its whole name fits.

    Raises:
        OptionError: a pattern can't be used.
    """

    @checked
    def __init__(
        self,
        *,
        with_name: str | None = None,
        from_list: str | None = None,
        from_list_separator: str = r"\s*,\s*",
        matching: str | None = None,
    ) -> None:
        separator = JavaPattern(from_list_separator)
        self._names = {with_name} if with_name is not None else set()
        if from_list is not None:
            self._names |= set(separator.split(from_list))
        self._matching = JavaPattern(matching) if matching is not None else None

    def intercept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch without the headers."""
        gone = self._names
        if self._matching is not None:
            gone = gone | {name for name in header_names(batch) if self._matching.fits_whole(name)}
        return remove_headers(batch, gone) if gone else batch
