"""A listing of a cloud's store, page by page, that begins anew after an error, which ends the client's own.

Stores list in any order, so no key is a place in a listing from which to continue. A store that fails in the midst of
each one would never be done with. So one that gets no further than before is begun anew for a time only; but a few
times at least, since a long one takes longer than that to get as far again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from spillable_stream.objects.cloud_clients import CloudClients
from spillable_stream.objects.forked import hold_in_children

__all__ = ["CloudListing"]

_PAGE = 1000
_TIMES = 3  # that it may get no further, at least


class CloudListing:
    """One listing. For one thread at a time.

    Args:
        obstore: the client library.
        patience_seconds: for how long it is begun anew, though it gets no further than before.
        monotonic: tells the time; for tests.
    """

    def __init__(
        self, obstore: ModuleType, patience_seconds: float, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._obstore = obstore
        self._patience_seconds = patience_seconds
        self._monotonic = monotonic
        self._pages: Any = None
        self._read = 0  # pages, since it was begun anew
        self._most_read = 0  # pages, before that
        self._behind_since: float | None = None  # when it was begun anew first, and has come no further since
        self._times_behind = 0  # that it was begun anew since then
        hold_in_children(self)

    def held(self) -> object:
        """Return what no forked child may drop."""
        return self._pages

    def next_page(self, clients: CloudClients, path: str) -> Any:
        """Return the next page; None behind the last one. After an error, the next call returns the first one again.

        Args:
            clients: the clients of the store.
            path: where it lists, in the bucket.
        """
        pages, self._pages = self._pages, None
        if pages is None:
            if self._read:
                self._times_behind += 1
                if self._behind_since is None:
                    self._behind_since = self._monotonic()
            pages, self._read = self._obstore.list(clients.reading, prefix=path, chunk_size=_PAGE), 0
        page, self._pages = next(pages, None), pages
        self._read += 1
        if self._read > self._most_read:
            self._most_read, self._behind_since, self._times_behind = self._read, None, 0
        return page

    def may_begin_anew(self) -> bool:
        """Tell whether to begin anew after another error."""
        if self._behind_since is None or self._times_behind < _TIMES:
            return True
        return self._monotonic() - self._behind_since < self._patience_seconds
