"""Named tuples that are made in one call have all of their fields: no default fills in for one that was added."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest

from spillable_stream import Channel
from spillable_stream.format.extent import Extent
from spillable_stream.format.named_tuple import new_tuple
from tests.support.events import put, take

Open = Callable[..., Channel]


def test_it_is_what_its_class_makes() -> None:
    made, expected = new_tuple(Extent, ("a", 1, 2, 3, 4, 5, 6)), Extent("a", 1, 2, 3, 4, 5, 6)
    assert made == expected
    assert type(made) is type(pickle.loads(pickle.dumps(made))) is Extent
    assert made._replace(offset=7) == expected._replace(offset=7)


@pytest.mark.parametrize("options", [{}, {"memory_capacity": 100, "byte_capacity": 4 << 20}], ids=["disk", "memory"])
def test_each_that_a_transaction_makes_has_all_of_its_fields(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch, options: dict[str, int]
) -> None:
    names = [name for name in sys.modules if name.startswith("spillable_stream.")]
    callers = {name for name in names if getattr(sys.modules[name], "new_tuple", None) is new_tuple}
    callers.remove("spillable_stream.format.named_tuple")
    made: set[str] = set()

    def checked(caller: str, kind: Any, values: Iterable[object]) -> Any:
        found = new_tuple(kind, values)
        assert len(found) == len(kind._fields), f"{caller} makes a {kind.__name__} of {len(found)} values"
        made.add(caller)
        return found

    for caller in callers:
        monkeypatch.setattr(sys.modules[caller], "new_tuple", partial(checked, caller))
    channel = open_channel(**options)
    put(channel, b"x")
    assert take(channel) == [b"x"]
    assert callers == made
