"""Where a channel of objects is."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from spillable_stream.errors import OptionError
from spillable_stream.objects.location import Location, channel_path, is_location


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("s3://bucket/orders", Location("s3", "bucket", "orders")),
        ("az://container/a/b/", Location("az", "container", "a/b")),
        ("gs://bucket//a//b", Location("gs", "bucket", "a/b")),
        ("object+file:///data/orders", Location("object+file", "", "/data/orders")),
        ("object+file:///data/../orders/", Location("object+file", "", "/orders")),
    ],
)
def test_a_url_is_a_scheme_a_bucket_and_a_path(url: str, location: Location) -> None:
    assert is_location(url)
    assert Location.parse(url) == location
    assert Location.parse(str(location)) == location == pickle.loads(pickle.dumps(location))
    assert location.name in ("orders", "b")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("s3a://bucket/orders", "write s3://"),
        ("abfss://container/orders", "write az://"),
        ("ftp://host/orders", "use one of s3://, az://, gs://"),
        ("s3://bucket", "needs a bucket and a path"),
        ("s3:///orders", "needs a bucket and a path"),
        ("s3://bucket/a/../b", "leave it out"),
        ("object+file://data/orders", "no absolute path"),
        ("object+file:///", "no absolute path"),
        ("s3://bucket/orders\n", "can't be printed"),
        ("s3://bucket/or\0ders", "can't be printed"),
    ],
)
def test_other_urls_are_refused_with_what_to_write(url: str, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        Location.parse(url)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("dbfs:/orders", "with dbfs://: use one of s3://"),
        ("hdfs:/orders", "with hdfs://: use one of s3://"),
        ("file:/data/orders", "with file://: write the directory's path alone"),
        ("file:///data/orders", "with file://: write the directory's path alone"),
        ("s3a:/bucket/orders", "with s3a://: write s3://"),
        ("abfss://c@account.dfs.core.windows.net/orders", "set AZURE_STORAGE_ACCOUNT_NAME to the account"),
    ],
)
def test_an_address_of_elsewhere_is_not_a_directory_of_that_name(
    path: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionError, match=words):
        channel_path(path)
    if ":///" not in path and "://" not in path:
        Path(path).mkdir(parents=True)
        assert channel_path(path) == tmp_path / path
    assert channel_path("c:/orders") == tmp_path / "c:/orders"


@pytest.mark.parametrize("url", ["s3://key:secret@bucket/orders", "az://c/orders?sig=secret", "gs://b/orders#secret"])
def test_a_url_with_credentials_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(OptionError, match="without options or credentials") as raised:
        Location.parse(url)
    assert "secret" not in str(raised.value)


def test_a_path_is_not_a_location() -> None:
    assert not is_location("/data/orders") and not is_location(None) and not is_location("s3:bucket")


def test_a_path_means_the_same_directory_wherever_the_process_is_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = channel_path("c")
    monkeypatch.chdir("/")
    assert found == tmp_path / "c"


@pytest.mark.parametrize("path", ["~/orders", "$HOME/orders"])
def test_a_path_that_only_a_shell_understands_is_refused(path: str) -> None:
    with pytest.raises(OptionError, match=r"path can't be .*: only a shell replaces"):
        channel_path(path)


@pytest.mark.parametrize("value", [None, b"orders", 3, "a\0b", ""])
def test_what_is_not_a_path_is_refused_as_such(value: object) -> None:
    with pytest.raises(OptionError, match=r"path (must be a path|can't be|is empty)"):
        channel_path(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("letter", ["k", "ü"])
def test_a_path_that_leaves_no_room_for_the_names_of_objects_is_refused(letter: str) -> None:
    """S3, Azure and GCS take names of 1,024 bytes; a simulator may take more."""
    most = 700 // len(letter.encode())
    assert Location.parse("s3://bucket/" + most * letter).prefix == most * letter
    with pytest.raises(OptionError, match="take one of 700 at most"):
        Location.parse("s3://bucket/" + (most + 1) * letter)
