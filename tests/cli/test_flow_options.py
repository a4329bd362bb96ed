from __future__ import annotations

import pytest

from spillable_stream.cli.flow_options import pairs


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, {}),
        (["a=b", "c=d=e", "f="], {"a": "b", "c": "d=e", "f": ""}),
        (["a", "b=1", "b=2"], {"a": "", "b": "2"}),
    ],
)
def test_options_are_keys_with_values(given: list[str] | None, expected: dict[str, str]) -> None:
    assert pairs(given) == expected
