"""Which channels end with their host."""

from __future__ import annotations

from pathlib import Path

import pytest

from spillable_stream.log.host_memory import directory_in_memory
from spillable_stream.log.layout import Layout
from spillable_stream.storage.filesystem import FileSystem
from tests.support.fake_files import InMemory
from tests.support.logs import identified


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """The layout of a channel with a data directory elsewhere."""
    return identified(FileSystem(), tmp_path / "c", data_dirs=[str(tmp_path / "c" / "data"), str(tmp_path / "rows")])


@pytest.mark.parametrize("name", ["c", "rows"])
def test_a_channel_ends_with_its_host_if_any_directory_of_its_events_does(
    layout: Layout, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = InMemory(tmp_path / name)
    monkeypatch.setenv("TMPDIR", "/nowhere")
    assert directory_in_memory(fs, layout) == tmp_path / name
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert directory_in_memory(fs, layout) is None


def test_a_channel_on_a_disk_does_not(layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/nowhere")
    assert directory_in_memory(InMemory(tmp_path / "other"), layout) is None
