from __future__ import annotations

import json
from pathlib import Path

from benchmarks.document import _ORDER, figures_of, write_section
from benchmarks.parts import PARTS
from benchmarks.spark import SPARK_PARTS


def test_a_section_is_replaced_and_the_others_are_kept(tmp_path: Path) -> None:
    write_section("spark", "## Spark\n\nold", {"rows": 1}, tmp_path)
    write_section("put", "## Put\n\nkept", {"rows": 2}, tmp_path)
    first = (tmp_path / "benchmarks.md").read_text()
    write_section("spark", "## Spark\n\nnew", {"rows": 3}, tmp_path)
    assert (tmp_path / "benchmarks.md").read_text() == first.replace("old", "new")
    assert first.startswith("# Benchmarks\n") and first.index("## Put") < first.index("## Spark")
    assert json.loads((tmp_path / "benchmarks.json").read_text()) == {"spark": {"rows": 3}, "put": {"rows": 2}}
    assert figures_of("put", tmp_path) == {"rows": 2} and figures_of("take", tmp_path) == {}


def test_every_part_has_its_place_in_the_document() -> None:
    assert [name for name in _ORDER if name in PARTS] == list(PARTS)
    assert [name for name in _ORDER if name in SPARK_PARTS] == list(SPARK_PARTS)
