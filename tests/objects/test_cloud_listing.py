"""A listing of a cloud's store that begins anew after errors, and for how long it does."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import cast

import pytest

from spillable_stream.objects.cloud_clients import CloudClients
from spillable_stream.objects.cloud_listing import CloudListing

_CLIENTS = CloudClients(None, None, None)


class Client:
    """A client whose listings fail behind some pages, one after the other; the last one is whole."""

    def __init__(self, *fail_after: int) -> None:
        self.seconds = 0.0
        self._fail_after = list(fail_after)
        module = cast(ModuleType, SimpleNamespace(list=self._list))
        self.listing = CloudListing(module, 15.0, lambda: self.seconds)

    def _list(self, *_: object, **__: object) -> Iterator[str]:
        most = self._fail_after.pop(0) if self._fail_after else 5
        for number in range(most):
            yield f"page {number}"
        if most < 5:
            raise OSError("a test: it is away")

    def pages(self) -> list[str]:
        """Return the pages up to the next error, or to the end."""
        found: list[str] = []
        while (page := self.listing.next_page(_CLIENTS, "orders/log")) is not None:
            found.append(page)
        return found

    def fail(self) -> bool:
        """Read up to the next error, and tell whether the listing may begin anew then."""
        with pytest.raises(OSError, match="away"):
            self.pages()
        return self.listing.may_begin_anew()


def test_a_listing_begins_anew_behind_an_error_with_its_first_page() -> None:
    client = Client(2)
    assert client.fail()
    assert client.pages() == [f"page {number}" for number in range(5)]


def test_a_listing_that_gets_no_further_is_given_up_after_a_time() -> None:
    client = Client(2, 2, 1, 0, 2)
    assert client.fail()
    client.seconds = 1.0
    assert client.fail(), "the time begins when it is begun anew"
    client.seconds = 15.9
    assert client.fail()
    client.seconds = 16.0
    assert not client.fail()


def test_a_listing_that_gets_further_is_given_more_time() -> None:
    client = Client(1, 2, 3, 3)
    for _ in range(3):
        assert client.fail()
        client.seconds += 20.0
    assert client.fail(), "it fell behind just now"
    assert len(client.pages()) == 5


def test_a_long_listing_is_begun_anew_a_few_times_though_each_takes_long_to_get_as_far_again() -> None:
    client = Client(4, 2, 3, 1)
    for _ in range(3):
        assert client.fail()
        client.seconds += 20.0
    assert not client.fail()
