"""Selectors send events where Flume's would."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillable_stream import Event
from spillable_stream.errors import OptionError
from spillable_stream.flow.event_batch import as_event_batch
from spillable_stream.flow.selectors import LoadBalancing, Multiplexing, Replicating, Rows, Selector
from tests.support.flow_batches import batch_of

CHANNELS = ("c1", "c2", "c3")
VALUES = st.sampled_from(["a", "b", "A", " ", "", "other", None])
LISTS = st.lists(st.sampled_from(CHANNELS), max_size=2, unique=True)


def rows(found: Rows, count: int) -> list[int]:
    return list(range(count)) if found is None else found.to_pylist()


@given(st.lists(VALUES, min_size=1, max_size=10), st.dictionaries(st.sampled_from("ab"), LISTS, min_size=1), LISTS,
       st.dictionaries(st.sampled_from("abo"), LISTS))  # fmt: skip
def test_multiplexing_sends_each_event_where_its_header_leads(
    values: list[str | None], mapping: dict[str, list[str]], default: list[str], optional: dict[str, list[str]]
) -> None:
    selector = Multiplexing("h", mapping, default=default, optional=optional)
    selector.bind(CHANNELS)
    batch = as_event_batch([Event(b"", {} if v is None else {"h": v}) for v in values])
    routes = selector.select(batch, 1)
    for name in CHANNELS:
        required, may = [], []
        for i, value in enumerate(values):
            must = mapping.get(value or "", []) if (value or "").strip() else []
            must = must or default
            required += [i] if name in must else []
            may += [i] if name in optional.get(value or "", []) and name not in must else []
        assert (rows(routes.required[name], len(values)) if name in routes.required else []) == required
        assert (rows(routes.optional[name], len(values)) if name in routes.optional else []) == may


@given(st.dictionaries(st.sampled_from("ab"), LISTS, min_size=1), LISTS, st.dictionaries(st.sampled_from("abo"), LISTS))
def test_a_source_of_multiplexing_waits_for_the_channels_that_must_have_events_or_alone_may_have_them(
    mapping: dict[str, list[str]], default: list[str], optional: dict[str, list[str]]
) -> None:
    selector = Multiplexing("h", mapping, default=default, optional=optional)
    selector.bind(CHANNELS)
    all_routes = [selector.select(as_event_batch([Event(b"", {"h": v})]), 1) for v in ("a", "b", "o", "other")]
    awaited = {name for routes in all_routes for name in routes.required}
    alone = {name for routes in all_routes if not routes.required for name in routes.optional}
    optional_ones = {name for routes in all_routes for name in routes.optional}
    assert optional_ones - awaited - alone <= selector.never_required()
    assert not selector.never_required() & (awaited | alone)


@pytest.mark.parametrize(
    ("optional", "expected"), [(["c2"], {"c2"}), (["c1", "c3"], {"c1", "c3"}), (["c1", "c2", "c3"], set()), ([], set())]
)
def test_a_source_of_replicating_waits_for_none_of_its_optional_channels_if_there_is_another(
    optional: list[str], expected: set[str]
) -> None:
    selector = Replicating(optional=optional)
    selector.bind(CHANNELS)
    assert selector.never_required() == expected


def test_replicating_sends_everything_everywhere() -> None:
    selector = Replicating(optional=["c2"])
    selector.bind(CHANNELS)
    assert selector.select(batch_of(b"x"), 1) == ({"c1": None, "c3": None}, {"c2": None})


@pytest.mark.parametrize("policy", ["round_robin", "random", "ROUND_ROBIN"])
def test_load_balancing_spreads_a_batch_and_a_repetition_goes_the_same_way(policy: str) -> None:
    selector = LoadBalancing(policy=policy)
    selector.bind(CHANNELS)
    batch = batch_of(*[b"x"] * 300)
    first, again = selector.select(batch, 7), selector.select(batch, 7)
    shares = {name: found.to_pylist() for name, found in first.required.items() if isinstance(found, pa.Array)}
    assert shares == {name: found.to_pylist() for name, found in again.required.items() if isinstance(found, pa.Array)}
    assert sorted(i for share in shares.values() for i in share) == list(range(300))
    assert all(60 < len(share) < 140 for share in shares.values())


def test_single_events_go_to_one_channel_after_the_other() -> None:
    selector = LoadBalancing()
    selector.bind(CHANNELS)
    counts = Counter(name for number in range(9) for name in selector.select(batch_of(b"x"), number).required)
    assert counts == {"c1": 3, "c2": 3, "c3": 3}


@pytest.mark.parametrize(
    "selector",
    [
        Replicating(optional=["other"]),
        Multiplexing("h", {"a": ["other"]}),
        Multiplexing("h", {"a": ["c1"]}, default=["other"]),
        Multiplexing("h", {"a": ["c1"]}, optional={"b": ["other"]}),
    ],
)
def test_a_channel_that_the_source_does_not_have_is_refused(selector: Selector) -> None:
    with pytest.raises(OptionError, match="names the channel 'other', and the source has c1, c2, c3; add it there"):
        selector.bind(CHANNELS)


def test_what_cannot_be_used_is_refused() -> None:
    with pytest.raises(OptionError, match="needs a mapping"):
        Multiplexing("h", {})
    with pytest.raises(OptionError, match="round_robin or random, not 'best'"):
        LoadBalancing(policy="best")
    with pytest.raises(NotImplementedError, match=r"Selector has no select\(\)"):
        Selector().select(batch_of(b"x"), 1)
