"""IDs in messages: an ID is a name, which a user copies, so no message writes its digits in groups."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "spillable_stream"
_ID = re.compile(r"(?:_id|position|sequence|\['write_order_id'\]|\.seek\(.*\))(?: \+ 1)?$")


def grouped_ids(source: str) -> Iterator[str]:
    """Yield the IDs, positions and numbers of batches that f-strings write with commas."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FormattedValue) and node.format_spec is not None:
            value, spec = ast.unparse(node.value), ast.unparse(node.format_spec)
            if "," in spec and _ID.search(value):
                yield value


def test_no_message_writes_an_id_with_commas() -> None:
    found = [(path.name, value) for path in PACKAGE.rglob("*.py") for value in grouped_ids(path.read_text())]
    assert found == []


@pytest.mark.parametrize("value", ["found.last_id", "position + 1", "row['write_order_id']", "c.seek(a, b)"])
def test_an_id_with_commas_is_found_and_a_count_is_not(value: str) -> None:
    assert list(grouped_ids(f'f"at {{{value}:,}}, {{events:,}} behind, {{{value}}}"')) == [value]
