"""What names a directory of this host."""

from __future__ import annotations

import pytest

from spillable_stream.spark.local_path import is_file_uri, local_path


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("/a b/%20", "/a b/%20"),
        ("a/b", "a/b"),
        ("file:/a%20b/x", "/a b/x"),
        ("FILE://localhost/a", "/a"),
        ("file:a/b", ""),
        ("file://host/a", ""),
        ("dbfs:/x", ""),
        ("s3://bucket/x", ""),
        ("", ""),
    ],
)
def test_a_path_and_a_file_uri_of_this_host_name_a_directory(given: str, path: str) -> None:
    assert local_path(given) == path


def test_a_file_uri_of_sparks_is_taken_as_it_is() -> None:
    assert local_path("file:///a%20b/x", is_encoded=False) == "/a%20b/x"


def test_a_file_uri_is_told_from_a_path_and_from_other_uris() -> None:
    assert [is_file_uri(given) for given in ("file:/a", "FILE:/a", "/file:/a", "s3://a")] == [True, True, False, False]
