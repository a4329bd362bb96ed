"""The program of the README, in a session that is there; `tests/test_docs.py` runs it as a process of its own."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.spark
def test_the_program_of_the_readme_runs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    blocks = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)
    found: dict[str, object] = {}
    exec(compile("\n".join(blocks), README, "exec"), found)
    assert found["spark"] == spark
