"""Opening the store of a location."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from spillable_stream.errors import OptionError
from spillable_stream.objects.cloud_store import CloudStore
from spillable_stream.objects.directory_store import DirectoryStore
from spillable_stream.objects.location import Location
from spillable_stream.objects.open_store import open_store


def test_a_directorys_location_is_a_directory(tmp_path: Path) -> None:
    store = open_store(Location.parse(f"object+file://{tmp_path}/orders"))
    assert isinstance(store, DirectoryStore)
    assert store.create("log/1", b"data") and (tmp_path / "orders" / "log" / "1").read_bytes() == b"data"


@pytest.mark.parametrize("url", ["s3://bucket/orders", "az://container/orders", "gs://bucket/deep/orders"])
def test_a_clouds_location_is_a_store_that_has_asked_nothing_yet(url: str) -> None:
    store = open_store(Location.parse(url))
    assert isinstance(store, CloudStore) and store.root == url


def test_without_obstore_a_directory_works_and_a_cloud_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    open_store(Location.parse(f"object+file://{tmp_path}/orders")).create("log/1", b"data")
    with pytest.raises(ImportError, match=r"needs obstore: pip install 'spillable-stream\[object\]'"):
        open_store(Location.parse("s3://bucket/orders"))


@pytest.mark.parametrize(
    ("name", "why"),
    [("circle", "lead in a circle"), ("n" * 300, "too long"), ("file", "is a file and not a directory")],
)
def test_a_directory_that_can_not_be_is_refused(tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OptionError, match=f"no channel or backup can be at {tmp_path}/.*{why}"):
        open_store(Location.parse(f"object+file://{tmp_path}/{name}"))
