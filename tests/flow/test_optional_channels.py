"""A channel is optional if no source ever must put into it, and it is nobody's for dead letters."""

from __future__ import annotations

from pathlib import Path

import pytest

from spillable_stream.flow.loading import load
from spillable_stream.flow.optional_channels import optional_channels

BASE = """
a.sources = r s
a.channels = c d
a.sinks = k
a.sources.r.type = seq
a.sources.r.channels = c d
a.sources.r.selector.optional = d
a.sources.s.type = seq
a.sources.s.channels = c
a.channels.c.type = memory
a.channels.d.type = memory
a.sinks.k.type = null
a.sinks.k.channel = c
"""


@pytest.mark.parametrize(
    ("change", "optional"),
    [
        ("", {"d"}),
        ("a.sources.s.channels = d", set()),
        ("a.sources.s.channels = c d\na.sources.s.selector.optional = d", {"d"}),
        ("a.sources.r.selector.optional =", set()),
        ("a.sinks.k.deadLetter = d", set()),
        ("a.sources.s.deadLetter = d", set()),
    ],
)
def test_it_takes_one_source_or_letter_box_to_require_a_channel(
    tmp_path: Path, change: str, optional: set[str]
) -> None:
    (tmp_path / "f").write_text(BASE + change)
    assert optional_channels(load(tmp_path / "f").agents["a"]) == optional
