"""The interceptors that set and remove headers, with Flume's defaults."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from spillable_stream import Event
from spillable_stream.errors import OptionError
from spillable_stream.flow.event_batch import as_event_batch
from spillable_stream.flow.interceptors.base import AnyInterceptor, InterceptorChain
from spillable_stream.flow.interceptors.headers import Host, RemoveHeader, Static, Timestamp, Uuid
from spillable_stream.flow.surroundings import REAL, Surroundings
from tests.support.flow_batches import STILL, batch_of, headers_of

NOW = "1700000000123"


def after(interceptor: AnyInterceptor, around: Surroundings = STILL, **headers: str) -> dict[str, str]:
    (found,) = headers_of(InterceptorChain([interceptor], around).intercept(batch_of(b"x", **headers)))
    return found


@pytest.mark.parametrize(
    ("interceptor", "before", "expected"),
    [
        (Timestamp(), {}, {"timestamp": NOW}),
        (Timestamp(), {"timestamp": "1"}, {"timestamp": NOW}),
        (Timestamp(preserve_existing=True), {"timestamp": "1"}, {"timestamp": "1"}),
        (Timestamp(header_name="t"), {}, {"t": NOW}),
        (Host(), {}, {"host": "192.0.2.1"}),
        (Host(use_ip=False, host_header="h"), {}, {"h": "host.example"}),
        (Host(preserve_existing=True), {"host": "mine"}, {"host": "mine"}),
        (Static(), {}, {"key": "value"}),
        (Static(), {"key": "mine"}, {"key": "mine"}),
        (Static(preserve_existing=False), {"key": "mine"}, {"key": "value"}),
        (RemoveHeader(with_name="a"), {"a": "1", "b": "2"}, {"b": "2"}),
        (RemoveHeader(from_list="a , b"), {"a": "1", "b": "2", "c": "3"}, {"c": "3"}),
        (RemoveHeader(from_list="a;b", from_list_separator=";"), {"a": "1", "b": "2"}, {}),
        (RemoveHeader(matching="a.*"), {"ab": "1", "ba": "2"}, {"ba": "2"}),
        (
            RemoveHeader(with_name="a", matching="b", from_list="c"),
            {"a": "1", "b": "2", "c": "3", "d": "4"},
            {"d": "4"},
        ),
        (RemoveHeader(), {"a": "1"}, {"a": "1"}),
    ],
)
def test_what_it_does(interceptor: AnyInterceptor, before: dict[str, str], expected: dict[str, str]) -> None:
    assert after(interceptor, **before) == expected


def test_a_host_that_is_not_known_is_not_set() -> None:
    assert after(Host(), replace(STILL, host_address=lambda: None)) == {}


def test_the_host_is_looked_up_once() -> None:
    asked: list[int] = []
    chain = InterceptorChain([Host()], replace(STILL, host_address=lambda: asked.append(1) or "h"))  # type: ignore[func-returns-value]
    for _ in range(3):
        chain.intercept(batch_of(b"x"))
    assert asked == [1]


def test_each_event_gets_a_random_uuid_of_version_4() -> None:
    chain = InterceptorChain([Uuid(prefix="p-")], REAL)
    found = headers_of(chain.intercept(batch_of(*[b"x"] * 50)))
    uuids = {UUID(h["id"].removeprefix("p-")) for h in found}
    assert len(uuids) == 50 and all(u.version == 4 and u.variant == "specified in RFC 4122" for u in uuids)
    assert all(h["id"] == f"p-{UUID(h['id'].removeprefix('p-'))}" for h in found)


def test_an_event_keeps_its_id_and_the_others_get_one() -> None:
    batch = as_event_batch([Event(b"x", {"id": "mine"}), Event(b"y")])
    mine, other = headers_of(InterceptorChain([Uuid()], STILL).intercept(batch))
    assert mine == {"id": "mine"} and UUID(other["id"]).version == 4


def test_a_bad_separator_is_refused() -> None:
    with pytest.raises(OptionError, match="can't be used"):
        RemoveHeader(from_list="a", from_list_separator="(")
