from __future__ import annotations

import pytest

from spillable_stream import OptionError
from spillable_stream.cli.flow_options import headers, pairs


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


@pytest.mark.parametrize("given", ["a", "=b", ""])
def test_a_header_has_a_name_and_a_value(given: str) -> None:
    assert headers(["a=b", "c="]) == {"a": "b", "c": ""} and headers(None) == {}
    with pytest.raises(OptionError, match=f"^'{given}' is not a header with a value: write HEADER=VALUE$"):
        headers(["a=b", given])
