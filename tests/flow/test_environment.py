from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from spillable_stream.flow.environment import environment_findings
from tests.support.flow_configurations import SMALL, read


def codes(text: str, tmp_path: Path, **environment: str) -> list[tuple[str, str]]:
    own = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path / "run")}  # no agents of other tests
    env = {"PATH": os.environ["PATH"], **own, **environment}
    return [(f.code, f.component) for f in environment_findings(read(text), {}, env)]


def source(*lines: str) -> str:
    untyped = SMALL.replace("    a1.sources.r1.type = seq\n", "")
    return untyped + "".join(f"    a1.sources.r1.{line}\n" for line in lines)


def sink(*lines: str) -> str:
    untyped = SMALL.replace("    a1.sinks.k1.type = null\n", "")
    return untyped + "".join(f"    a1.sinks.k1.{line}\n" for line in lines)


R1, C1, K1 = "a1.sources.r1", "a1.channels.c1", "a1.sinks.k1"


def test_a_host_that_has_all_has_no_finding_and_nothing_is_written(tmp_path: Path) -> None:
    assert codes(SMALL, tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_a_source_needs_its_directories(tmp_path: Path) -> None:
    assert codes(source("type = spooldir", f"spoolDir = {tmp_path}"), tmp_path) == []
    missing = source("type = spooldir", f"spoolDir = {tmp_path}/none")
    assert codes(missing, tmp_path) == [("directory-missing", R1)]
    tailed = source("type = taildir", "filegroups = f g", f"filegroups.f = {tmp_path}/.*log", "filegroups.g = /no/x")
    assert codes(tailed, tmp_path) == [("directory-missing", R1)]


def test_how_far_flumes_agent_is_in_a_spooled_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / ".flumespool").mkdir()
    tracker = tmp_path / ".flumespool" / ".flumespool-main.meta"
    tracker.touch()
    text = source("type = spooldir", f"spoolDir = {tmp_path}")
    assert codes(text, tmp_path) == []
    tracker.write_bytes(b"Obj")
    assert codes(text, tmp_path) == [("flume-tracker", R1)]


def test_a_source_needs_its_command(tmp_path: Path) -> None:
    assert codes(source("type = exec", "command = ls -l"), tmp_path) == []
    assert codes(source("type = exec", "command = no-such-command -l"), tmp_path) == [("command-missing", R1)]
    in_shell = source("type = exec", "shell = /bin/sh -c", "command = no-such-command")
    assert codes(in_shell, tmp_path) == []


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_source_needs_its_port(tmp_path: Path, kind: socket.SocketKind) -> None:
    types = {socket.SOCK_STREAM: "netcat", socket.SOCK_DGRAM: "netcatudp"}
    with socket.socket(socket.AF_INET, kind) as other:
        other.bind(("127.0.0.1", 0))
        if kind is socket.SOCK_STREAM:
            other.listen()
        port = other.getsockname()[1]
        text = source(f"type = {types[kind]}", "bind = 127.0.0.1", f"port = {port}")
        assert codes(text, tmp_path) == [("port-in-use", R1)]
    assert codes(text, tmp_path) == []


def test_a_channel_is_never_in_a_directory_of_flumes(tmp_path: Path) -> None:
    (tmp_path / "log-1.meta").touch()
    text = SMALL.replace("= memory", f"= file\n    a1.channels.c1.checkpointDir = {tmp_path}")
    assert codes(text, tmp_path) == [("flume-files", C1)]


def test_a_channel_needs_a_place(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    text = SMALL.replace("= memory", f"= file\n    a1.channels.c1.checkpointDir = {tmp_path}/file/x")
    assert codes(text, tmp_path) == [("directory-unusable", C1)]
    text = SMALL.replace("= memory", f"= file\n    a1.channels.c1.checkpointDir = {tmp_path}/new/x")
    assert codes(text, tmp_path) == []


def test_a_sink_needs_its_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        @staticmethod
        def from_uri(address: str) -> None:
            raise OSError("Unable to load libjvm\ndlopen(…) failed\n" * 99)

    monkeypatch.setattr("pyarrow.fs.FileSystem", Refusing)
    text = sink("type = hdfs", "hdfs.path = hdfs://nn:9000/%Y")
    found = environment_findings(read(text), {}, {"HOME": str(tmp_path)})
    assert [(f.code, f.component) for f in found] == [("file-system-unusable", K1)]
    assert "Unable to load libjvm" in found[0].text and "\n" not in found[0].text
    assert environment_findings(read(text), {"spillable.paths": f"hdfs://nn:9000/=file://{tmp_path}/"}, {}) == []


def test_a_sink_needs_its_place(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert codes(sink("type = file_roll", f"sink.directory = {tmp_path}/file"), tmp_path) == [
        ("directory-unusable", K1)
    ]
    for path in (f"{tmp_path}/file/%Y", f"file://{tmp_path}/file/%Y", f"{tmp_path}/file"):
        assert codes(sink("type = hdfs", f"hdfs.path = {path}"), tmp_path) == [("directory-unusable", K1)]


def test_a_sink_needs_an_address_of_its_host(tmp_path: Path) -> None:
    assert codes(sink("type = http", "endpoint = http://127.0.0.1:1/x"), tmp_path) == []
    text = sink("type = http", "endpoint = http://no-such-host.invalid/x")
    assert codes(text, tmp_path) == [("host-unreachable", K1)]


def test_an_agent_of_the_name_that_runs_here_is_noted_and_nothing_is_asked_or_removed(tmp_path: Path) -> None:
    sockets = tmp_path / "run" / "spillable"
    assert codes(SMALL, tmp_path, XDG_RUNTIME_DIR=str(tmp_path / "run")) == []
    assert not sockets.exists()
    sockets.mkdir(parents=True)
    ended = subprocess.Popen(["true"])
    ended.wait()
    names = [
        f"a1.{os.getpid()}",
        f"a1.{ended.pid}",
        f"a2.{os.getpid()}",
        f".a1.{os.getpid()}",
        "a1.x",
        f"a1.{'9' * 30}",
    ]
    for name in names:
        (sockets / name).touch()
    (finding,) = environment_findings(
        read(SMALL), {}, {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path / "run")}
    )
    assert (finding.code, finding.component, finding.severity) == ("agent-runs", "a1", "note")
    assert f"runs in process {os.getpid()}; if it has these files" in finding.text
    assert sorted(path.name for path in sockets.iterdir()) == sorted(names)
