"""What the tests of a source of growing files share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """The directory in which the files grow."""
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs"
