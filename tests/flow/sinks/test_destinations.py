from __future__ import annotations

from pathlib import Path

import pytest

from spillable_stream.errors import OptionError, StorageError
from spillable_stream.flow.sinks.destinations import LocalFiles, resolve

HOME = {"HOME": "/home/me", "USER": "me"}


@pytest.mark.parametrize(
    ("path", "system", "expected"),
    [
        ("/data/%Y", {}, "/data/%Y"),
        ("logs/%Y", {}, "/home/me/logs/%Y"),
        ("file:///data/x", {}, "/data/x"),
        ("file:/data/x", {}, "/data/x"),
        ("/data", {"fs.defaultFS": "file:///"}, "/data"),
        ("hdfs://nn:8020/a/%{b}", {"spillable.paths": "s3://x/=/y/, hdfs://nn:8020/=file:///data/"}, "/data/a/%{b}"),
    ],
)
def test_paths_lead_to_local_files(path: str, system: dict[str, str], expected: str) -> None:
    found = resolve(path, system, HOME)
    assert (found.path, found.is_local) == (expected, True)


@pytest.mark.parametrize("key", ["spillable.conf.dir", "HADOOP_CONF_DIR"])
def test_the_default_file_system_is_read_from_hadoops_configuration(tmp_path: Path, key: str) -> None:
    site = "<configuration><property><name>fs.defaultFS</name><value>nosuch://x</value></property></configuration>"
    (tmp_path / "core-site.xml").write_text(site)
    with pytest.raises(OptionError, match="nosuch://x/data"):
        resolve("/data", {key: str(tmp_path)}, {key: str(tmp_path), **HOME})
    (tmp_path / "core-site.xml").write_text("<")
    with pytest.raises(OptionError, match="is not XML"):
        resolve("/data", {key: str(tmp_path)}, {key: str(tmp_path), **HOME})


def test_a_store_is_arrows_and_keeps_the_escapes() -> None:
    found = resolve("s3a://bucket/logs/%Y/%{host}", {}, HOME | {"AWS_REGION": "us-east-1"})
    assert (found.path, found.is_local) == ("bucket/logs/%Y/%{host}", False)


def test_hadoops_file_system_without_its_parts_says_what_a_user_must_have(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_HOME", "ARROW_LIBHDFS_DIR", "JAVA_HOME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(StorageError) as found:
        resolve("hdfs://nn.example/x", {}, HOME)
    for part in (
        "JAVA_HOME",
        "libhdfs.so",
        "HADOOP_HOME",
        "ARROW_LIBHDFS_DIR",
        "CLASSPATH",
        "-Dspillable.paths=hdfs://",
    ):
        assert part in str(found.value)


def test_a_store_that_can_not_be_used_says_nothing_of_hadoop(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        @staticmethod
        def from_uri(address: str) -> None:
            raise OSError("no such region")

    monkeypatch.setattr("pyarrow.fs.FileSystem", Refusing)
    with pytest.raises(StorageError, match=r"\(no such region\); check the address and the credentials$"):
        resolve("s3://bucket/x", {}, HOME)


def test_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(OptionError, match="scheme"):
        resolve("ftp://x/y", {}, HOME)


def test_a_local_file_has_its_name_when_it_is_published(tmp_path: Path) -> None:
    files, final = LocalFiles(), f"{tmp_path}/a/x"
    temporary = files.temporary(final + ".tmp", final)
    stream = files.create(temporary)
    stream.write(b"data")
    assert not files.exists(final)
    files.publish(stream, temporary, final)
    assert Path(final).read_bytes() == b"data"
    assert not files.exists(temporary)
    files.remove(final)
    files.remove(final)
    with pytest.raises(StorageError, match="can't make"):
        files.create("/proc/none/x")
