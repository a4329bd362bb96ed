"""The archive of Spark's classes that the JVMs of the tests map."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.spark import class_archive
from tests.support.spark.class_archive import archive, java, made, with_archive


def path_of_this_environment() -> Path:
    path = archive()
    assert path is not None
    return path


@pytest.mark.spark
def test_the_session_maps_the_archive(spark: SparkSession) -> None:
    jvm = spark._jvm
    assert jvm is not None
    path = path_of_this_environment()
    maps = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/maps")
    if not path.exists() or not maps.exists() or os.environ.get("SPARK_CONF_DIR"):
        pytest.skip("there is no archive, or no /proc: `make test` creates an archive")
    assert str(path) in maps.read_text(), "its class path or its options are not those of the archive"


@pytest.mark.spark
@pytest.mark.parametrize("content", [None, b"no archive"])
def test_a_jvm_without_an_archive_that_fits_says_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    path = tmp_path / "classes.jsa"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setattr(class_archive, "archive", lambda: path)
    program = java()
    assert program is not None
    command = [program, *with_archive().split(), "-cp", str(tmp_path), "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "" and "version" in done.stderr.splitlines()[0]


def test_an_archive_is_of_one_java_and_one_pyspark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    first = path_of_this_environment()
    assert first.parent.parent == Path(sys.prefix) and path_of_this_environment() == first
    os.utime(program, ns=(1, 1))
    assert path_of_this_environment() != first


def test_without_java_there_is_no_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert archive() is None
    assert with_archive() == "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def test_an_archive_is_created_once_and_those_of_other_versions_are_removed(tmp_path: Path) -> None:
    old, new = tmp_path / "d" / "old.jsa", tmp_path / "d" / "new.jsa"
    for path in (old, new, new):
        assert made(path, lambda unfinished: unfinished.write_text(unfinished.name) and None)
        assert os.listdir(tmp_path / "d") == [path.name]
    assert made(new, lambda _: pytest.fail("it is there"))


def test_what_was_not_made_to_the_end_leaves_nothing(tmp_path: Path) -> None:
    def fails(unfinished: Path) -> None:
        unfinished.write_text("half")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        made(tmp_path / "d" / "new.jsa", fails)
    assert not made(tmp_path / "d" / "new.jsa", lambda _: None)
    assert os.listdir(tmp_path / "d") == []


def test_of_two_that_make_it_at_the_same_time_the_last_one_leaves_its_own(tmp_path: Path) -> None:
    path = tmp_path / "new.jsa"

    def write(unfinished: Path) -> None:
        assert made(path, lambda other: other.write_text("first") and None)
        unfinished.write_text("second")

    assert made(path, write) and path.read_text() == "second"
    assert os.listdir(tmp_path) == ["new.jsa"]
