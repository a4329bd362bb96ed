"""Hadoop's classes are found as Flume's script finds them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spillable_stream.flow.sinks.hadoop import find_classes


def command(directory: Path, does: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "hadoop").write_text(f"#!/bin/sh\n{does}\n")
    (directory / "hadoop").chmod(0o755)
    return directory


@pytest.fixture(autouse=True)
def no_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLASSPATH", "")


def test_the_command_of_hadoop_home_says_where_the_classes_are(tmp_path: Path) -> None:
    command(tmp_path / "home" / "bin", 'echo "/etc/hadoop:/jars/$1$2.jar"')
    command(tmp_path / "path", "echo other")
    find_classes({"HADOOP_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path")})
    assert os.environ["CLASSPATH"] == "/etc/hadoop:/jars/classpath--glob.jar"


def test_without_a_home_the_command_is_looked_for_in_the_path(tmp_path: Path) -> None:
    find_classes({"PATH": str(command(tmp_path, "echo there"))})
    assert os.environ["CLASSPATH"] == "there"
    find_classes({"PATH": ""})
    assert os.environ["CLASSPATH"] == "there"


def test_classes_that_are_set_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLASSPATH", "mine")
    find_classes({"PATH": str(command(tmp_path, "echo other"))})
    assert os.environ["CLASSPATH"] == "mine"


def test_a_command_that_fails_is_named_with_what_it_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    find_classes({"PATH": str(command(tmp_path, "echo JAVA_HOME is not set >&2; exit 1"))})
    assert os.environ["CLASSPATH"] == ""
    assert f"{tmp_path}/hadoop does not say where Hadoop's classes are (JAVA_HOME is not set)" in caplog.text
