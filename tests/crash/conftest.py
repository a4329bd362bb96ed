"""What the recipes share."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.damage import remove_memory_under


@pytest.fixture
def shared_memory(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory, where there is one: the recipes that use it sync very often."""
    shared = Path("/dev/shm")
    if not shared.is_dir():
        yield tmp_path
        return
    directory = Path(tempfile.mkdtemp(prefix="crash-", dir=shared))
    try:
        yield directory
    finally:
        remove_memory_under(directory)
        shutil.rmtree(directory)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Log nothing: what a crash leaves is worth a line, and there are thousands."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
