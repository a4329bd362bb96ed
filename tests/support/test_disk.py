"""Where tests have their files."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared")


def test_a_fast_test_has_its_files_where_pytest_is_told(tmp_path: Path) -> None:
    told = os.environ.get("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    assert tmp_path.is_relative_to(Path(told).resolve())


@pytest.mark.slow
def test_a_slow_test_and_its_fixtures_have_a_disk(tmp_path: Path, shared: Path) -> None:
    disk = Path(tempfile.gettempdir()).resolve()
    assert tmp_path.is_relative_to(disk) and shared.is_relative_to(disk)
