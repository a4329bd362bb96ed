from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyarrow.fs import FileInfo, FileType, LocalFileSystem

from spillable_stream.errors import OptionError, StorageError
from spillable_stream.flow.sinks.destinations import ArrowFiles, LocalFiles, resolve

HOME = {"HOME": "/home/me", "USER": "me"}


@pytest.mark.parametrize(
    ("path", "system", "expected"),
    [
        ("/data/%Y", {}, "/data/%Y"),
        ("file:///data/x", {}, "/data/x"),
        ("file:/data/x", {}, "/data/x"),
        ("/data", {"fs.defaultFS": "file:///"}, "/data"),
        ("hdfs://nn:8020/a/%{b}", {"spillable.paths": "s3://x/=/y/, hdfs://nn:8020/=file:///data/"}, "/data/a/%{b}"),
    ],
)
def test_paths_lead_to_local_files(path: str, system: dict[str, str], expected: str) -> None:
    found = resolve(path, system, HOME)
    assert (found.path, found.is_local) == (expected, True)


@pytest.mark.parametrize(
    ("system", "why"),
    [({}, "there is no fs.defaultFS"), ({"fs.defaultFS": "file:///ignored/"}, "fs.defaultFS is this host's")],
)
def test_a_relative_local_path_begins_in_the_working_directory_and_the_log_says_where_that_is(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    system: dict[str, str],
    why: str,
) -> None:
    """As Hadoop's RawLocalFileSystem has it."""
    monkeypatch.chdir(tmp_path)
    with caplog.at_level("INFO", "spillable_stream.flow"):
        found = resolve("logs/%Y", system, HOME)
    assert (found.path, found.is_local) == (f"{tmp_path}/logs/%Y", True)
    assert caplog.messages == [f"the path logs/%Y has no scheme, and {why}: it is {tmp_path}/logs/%Y on this host"]


def test_no_percent_sign_of_the_working_directory_is_an_escape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "100%Y").mkdir()
    monkeypatch.chdir(tmp_path / "100%Y")
    assert resolve("logs/%Y", {}, HOME).path == f"{tmp_path}/100%%Y/logs/%Y"


def test_a_local_path_may_begin_in_the_home_directory_and_not_where_nothing_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert resolve("~/logs", {}, HOME).path == "/home/me/logs"
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(OptionError, match="the working directory was removed"):
        resolve("logs", {}, HOME)


def test_a_relative_path_of_hadoop_begins_in_the_home_directory_there() -> None:
    with pytest.raises(OptionError, match="the path nosuch://x/user/me/logs has"):
        resolve("logs", {"fs.defaultFS": "nosuch://x/"}, HOME)


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


def test_a_store_that_cannot_be_used_says_nothing_of_hadoop(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        @staticmethod
        def from_uri(address: str) -> None:
            raise OSError("no such region")

    monkeypatch.setattr("pyarrow.fs.FileSystem", Refusing)
    with pytest.raises(StorageError, match=r"\(no such region\); check the address and the credentials$"):
        resolve("s3://bucket/x", {}, HOME)


class Full:
    """A file system of Arrow's that refuses everything, in several lines, as Hadoop's does."""

    def __getattr__(self, name: str) -> Callable[..., object]:
        def call(*_: object, **__: object) -> object:
            if name == "get_file_info":
                return SimpleNamespace(type="a file")
            if name in ("open_output_stream", "create_dir"):
                return self
            raise OSError(30, f"HDFS {name} failed. Detail: [errno 30] Read-only file system\nat java")

        return call


@pytest.mark.parametrize("is_store", [True, False])
def test_what_a_file_system_refuses_is_one_sentence_about_the_file(is_store: bool) -> None:
    files = ArrowFiles(Full(), is_store=is_store)
    stream = files.create("/a/x")
    advice = "check the address and the credentials" if is_store else "check that the name node is up and not in safe"
    for call, verb in (
        (lambda: stream.write(b"x"), "write"),
        (stream.close, "close"),
        (lambda: files.publish(stream, "/a/x", "/a/y"), "close"),
        (lambda: files.remove("/a/x"), "remove"),
    ):
        with pytest.raises(StorageError) as found:
            call()
        assert str(found.value).startswith(f"can't {verb} /a/x (HDFS ")
        assert advice in str(found.value) and "\n" not in str(found.value)


class Unreachable:
    """Arrow's file system of Hadoop: without an answer of the name node a file is "not found", but for who opens it."""

    def __init__(self, error: OSError) -> None:
        self.error = error

    def get_file_info(self, _: str) -> FileInfo:
        return FileInfo("x", FileType.NotFound)

    def open_input_stream(self, _: str) -> object:
        raise self.error


def test_a_name_node_that_does_not_answer_is_not_a_missing_file() -> None:
    """A sink that took it for one would write the events of a file again that has its name already."""
    missing = ArrowFiles(Unreachable(FileNotFoundError(2, "No such file")), is_store=False)
    assert not missing.exists("/a/x")
    silent = ArrowFiles(Unreachable(OSError(255, "Unknown error 255")), is_store=False)
    with pytest.raises(StorageError, match=r"can't look at /a/x \(Unknown error 255\); check that the name node is up"):
        silent.exists("/a/x")
    assert not ArrowFiles(Unreachable(OSError()), is_store=True).exists("/a/x"), "a store says what it is"


def test_a_directory_that_cannot_be_looked_at_is_not_a_missing_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = LocalFiles()
    assert files.exists(str(tmp_path)) and not files.exists(f"{tmp_path}/a/x")

    def stat(*_: object, **__: object) -> object:
        raise OSError(errno.ESTALE, "Stale file handle")

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", stat)
        with pytest.raises(StorageError, match=r"can't look at .*/x \(Stale file handle\); check the directory"):
            files.exists(f"{tmp_path}/x")


def test_what_this_host_refuses_is_one_sentence_about_the_file(tmp_path: Path) -> None:
    files, path = LocalFiles(), f"{tmp_path}/x"
    stream = files.create(path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with pytest.raises(StorageError, match=rf"can't write {path} \(File too large\); check the directory"):
            stream.write(b"x" * 1_000_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    with pytest.raises(StorageError, match=r"can't remove .* \(Is a directory\); check the directory"):
        files.remove(str(tmp_path))


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
    with pytest.raises(StorageError, match="can't create"):
        files.create("/proc/none/x")


@pytest.mark.parametrize(
    ("place", "in_bytes"),
    [("s3://bucket", True), ("gs://anonymous@bucket", True), ("abfs://box@a.dfs.core.windows.net", False)],
)
def test_a_key_is_measured_as_its_store_does(place: str, in_bytes: bool) -> None:
    path, files, _ = resolve(f"{place}/x", {}, HOME | {"AWS_REGION": "us-east-1"})
    bucket = path.removesuffix("x")
    assert files.takes(bucket + "x" * 1024) and not files.takes(bucket + "x" * 1025)
    assert files.takes(bucket + "ä" * 600) is not in_bytes


def test_names_of_this_host_and_of_hadoop_have_a_length() -> None:
    for files in (LocalFiles(), ArrowFiles(LocalFileSystem(), is_store=False)):
        assert files.takes(f"/{'x' * 255}/f") and files.takes("/x" * 1000)
        assert not files.takes(f"/{'x' * 256}/f") and not files.takes("/" + "ä" * 128)


def test_a_name_node_takes_no_colon() -> None:
    assert not ArrowFiles(LocalFileSystem(), is_store=False).takes("/out/10:30/f")
    assert LocalFiles().takes("/out/10:30/f")
