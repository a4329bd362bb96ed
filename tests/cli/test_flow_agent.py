from __future__ import annotations

import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from spillable_stream.cli import app
from spillable_stream.cli.flow_agent import log_level
from spillable_stream.flow.agent import Agent
from spillable_stream.flow.running_flow import RunningFlow
from spillable_stream.flow.sink_runner import SinkRunner
from tests.support import pythons
from tests.support.waiting import wait_until

TEXT = """
a1.sources = r1
a1.channels = c1
a1.sinks = k1
a1.sources.r1.type = taildir
a1.sources.r1.filegroups = g
a1.sources.r1.filegroups.g = {dir}/logs/.*
a1.sources.r1.positionFile = {dir}/positions.json
a1.sources.r1.channels = c1
a1.channels.c1.type = memory
a1.sinks.k1.type = file_roll
a1.sinks.k1.sink.directory = {dir}/${{sys:out}}
a1.sinks.k1.channel = c1
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    (tmp_path / "flume.conf").write_text(TEXT.format(dir=tmp_path))
    (tmp_path / "logs" / "app").write_text("1\n2\n")
    return tmp_path


def arguments(place: Path, *more: str) -> list[str]:
    return ["agent", "-n", "a1", "-f", f"{place}/flume.conf", f"-Dspillable.data.dir={place}/data", "-Dout=out", *more]


def written(place: Path) -> str:
    return "".join(p.read_text() for p in sorted((place / "out").glob("[0-9]*"))) if (place / "out").exists() else ""


@pytest.fixture
def running(place: Path) -> Iterator[subprocess.Popen[str]]:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    more = ["-Dflume.monitoring.type=http", f"-Dflume.monitoring.port={port}", "-Xmx512m", "-C", "/lib/*", "-c", "conf"]
    command = [sys.executable, "-m", "spillable_stream", *arguments(place, *more)]
    process = pythons.Popen(command, stderr=subprocess.PIPE, text=True)
    process.port = port  # type: ignore[attr-defined]
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_it_runs_until_sigterm_reloads_at_sighup_and_serves_monitoring(
    place: Path, running: subprocess.Popen[str]
) -> None:
    wait_until(lambda: written(place) == "1\n2\n")
    assert httpx.get(f"http://127.0.0.1:{running.port}/ready", trust_env=False).status_code == 200  # type: ignore[attr-defined]
    (place / "flume.conf").write_text(
        TEXT.format(dir=place).replace(
            "k1.sink.directory = ", "k1.sink.rollInterval = 7\na1.sinks.k1.sink.directory = "
        )
    )
    os.kill(running.pid, signal.SIGHUP)
    assert running.stderr is not None
    said = list[str]()
    while not said or "the configuration of the agent a1 has changed: sinks k1" not in said[-1]:
        said.append(running.stderr.readline())
        assert said[-1], said
    with (place / "logs" / "app").open("a") as f:
        f.write("3\n")
    wait_until(lambda: written(place) == "1\n2\n3\n")
    running.send_signal(signal.SIGTERM)
    said.append(running.stderr.read())
    assert running.wait(timeout=60) == 0, said
    errors = "".join(said)
    assert "-Xmx512m is ignored: it is an option of Java's" in errors
    assert "--classpath is ignored" in errors


def test_sighup_while_it_starts_lets_it_read_its_files_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    described, reloads = Agent.described, list[int]()

    def signalled(self: Agent) -> list[str]:
        signal.raise_signal(signal.SIGHUP)
        return described(self)

    def wait(self: Agent) -> bool:
        reloads.append(self.signals.reloads)
        return True

    monkeypatch.setattr(Agent, "described", signalled)
    monkeypatch.setattr(Agent, "wait", wait)
    assert CliRunner().invoke(app, arguments(place)).exit_code == 0
    assert reloads == [1]


def test_an_invalid_file_is_refused_while_it_runs_on_and_can_be_looked_at(
    place: Path, running: subprocess.Popen[str]
) -> None:
    wait_until(lambda: written(place) == "1\n2\n")
    (place / "flume.conf").write_text(TEXT.format(dir=place).replace("type = file_roll", "type = file_rol"))
    os.kill(running.pid, signal.SIGHUP)
    assert running.stderr is not None
    refusal = next(line for line in running.stderr if "is refused" in line)  # a stop right behind it comes first
    command = [sys.executable, "-m", "spillable_stream", "tap", f"a1.{running.pid}:k1", "--limit", "1"]
    with pythons.Popen(command, stdout=subprocess.PIPE, text=True) as tap:
        while tap.poll() is None:  # it may begin to look at any time
            with (place / "logs" / "app").open("a") as f:
                f.write("3\n")
            time.sleep(0.1)
        shown, _ = tap.communicate()
    assert (tap.returncode, shown) == (0, '{"headers": {}, "body": "3"}\n')
    running.send_signal(signal.SIGTERM)
    _, errors = running.communicate(timeout=60)
    assert running.returncode == 0, errors
    assert "the agent a1 runs as it did" in refusal
    assert "there is no sink of type 'file_rol': did you mean file_roll?" in refusal
    assert "the agent a1 has stopped" in errors


@pytest.fixture
def gated(place: Path) -> Path:
    text = TEXT.format(dir=place).replace("k1.type = file_roll", "k1.type = tests.support.gated_sink.GatedSink")
    text = text.replace("sink.directory", "directory").replace("${sys:out}", "")
    (place / "flume.conf").write_text(f"{text}a1.sources.r1.writePosInterval = 1\n")
    (place / "logs" / "app").write_text("".join(f"{i}\n" for i in range(60)))
    return place


def end_when_begun(place: Path, pid: int) -> None:
    """Send SIGTERM to an agent that has taken one of many events."""
    wait_until((place / "begun").exists)
    wait_until(lambda: '"pos": 170' in (place / "positions.json").read_text())  # all are in the channel
    os.kill(pid, signal.SIGTERM)


@pytest.mark.parametrize("drain", [True, False])
def test_a_drain_writes_all_that_is_in_the_channels_before_the_end(
    gated: Path, drain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sink writes nothing before the agent has seen the signal, however long that takes."""
    go, is_drained, stopped = gated / "go", RunningFlow.is_drained, SinkRunner.begin_stop
    if drain:
        monkeypatch.setattr(RunningFlow, "is_drained", lambda flow: (go.touch(), is_drained(flow))[1])
    else:
        monkeypatch.setattr(SinkRunner, "begin_stop", lambda runner: (stopped(runner), go.touch()))
    ending = threading.Thread(target=end_when_begun, args=(gated, os.getpid()))
    ending.start()
    done = CliRunner().invoke(app, arguments(gated, *(["--drain"] if drain else [])))
    ending.join()
    assert done.exit_code == 0, done.output
    assert len((gated / "out").read_text().splitlines()) == (60 if drain else 1)


@pytest.mark.slow
def test_a_process_with_drain_writes_all_that_is_in_the_channels_before_it_ends(gated: Path) -> None:
    command = [sys.executable, "-m", "spillable_stream", *arguments(gated, "--drain")]
    with pythons.Popen(command, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as process:
        end_when_begun(gated, process.pid)
        (gated / "go").touch()
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert (gated / "out").read_text() == (gated / "logs" / "app").read_text()


def test_a_process_ends_though_a_batch_hangs(place: Path, tmp_path: Path) -> None:
    """Python would wait for the thread that puts it."""
    (tmp_path / "hanging.py").write_text("""
import threading
from pathlib import Path
from spillable_stream import flow

class Hangs(flow.Interceptor):
    def intercept(self, batch):
        Path(__file__).with_name("begun").touch()
        threading.Event().wait()
""")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    (place / "flume.conf").write_text(
        TEXT.format(dir=place).partition("a1.sources.r1.type")[0]
        + f"a1.sources.r1.type = netcat\na1.sources.r1.bind = 127.0.0.1\na1.sources.r1.port = {port}\n"
        + "a1.sources.r1.interceptors = i1\na1.sources.r1.interceptors.i1.type = hanging.Hangs\n"
        + "a1.sources.r1.channels = c1\na1.channels.c1.type = memory\n"
        + f"a1.sinks.k1.type = file_roll\na1.sinks.k1.sink.directory = {place}/out\na1.sinks.k1.channel = c1\n"
    )
    command = [sys.executable, "-m", "spillable_stream", *arguments(place, "--shutdown-timeout", "0.1")]
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    with pythons.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}) as process:
        try:
            assert process.stderr is not None
            next(line for line in process.stderr if "has started" in line)
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(b"1\n")
                wait_until((tmp_path / "begun").exists)
                process.send_signal(signal.SIGTERM)
                said = process.communicate(timeout=60)[1]
        finally:
            process.kill()
    assert process.returncode == 1
    assert "a1.r1 did not end within 0.1 s" in said


def test_it_can_end_by_itself_and_say_what_would_run(place: Path) -> None:
    done = CliRunner().invoke(app, arguments(place, "--dryrun"))
    assert (done.exit_code, done.output) == (
        0,
        "channel c1: memory\nsink k1: file_roll, from c1\nsource r1: taildir, to c1\n",
    )
    assert not (place / "data").exists()
    assert CliRunner().invoke(app, arguments(place, "--once")).exit_code == 0
    assert written(place) == "1\n2\n"


def test_what_runs_is_logged_and_each_finding_at_its_level(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with (place / "flume.conf").open("a") as f:
        f.write("a1.sinks.k1.batchSize = 7\na1.nothing = x\n")
    assert CliRunner().invoke(app, arguments(place, "--once")).exit_code == 0
    found = [(r.levelname, r.getMessage()) for r in caplog.records if r.name == "spillable_stream.flow"]
    levels = {
        level for code in ("invalid-key", "wrong-prefix", "memory-channel") for level, text in found if code in text
    }
    assert levels == {"ERROR", "WARNING", "INFO"}
    assert ("INFO", "a1 runs sink k1: file_roll, from c1") in found


def spooldir(place: Path) -> str:
    (place / "spool").mkdir()
    (place / "spool" / "bad").write_bytes(b"no\xfftext\n")
    (place / "spool" / "good").write_bytes(b"text\n")
    return f"a1.sources.r1.type = spooldir\na1.sources.r1.spoolDir = {place}/spool\n"


@pytest.mark.parametrize(
    ("change", "said", "stored"),
    [
        (spooldir, r"a1\.r1: \S*/spool/bad is set aside as \S*/bad\.ASIDE: ", "text\n"),
        (
            lambda _: (
                "a1.sources.r1.type = exec\na1.sources.r1.command = sh -c 'echo text; exit 3'\n"
                "a1.sources.r1.shell = /bin/sh -c\n"
            ),
            r"a1\.r1: the command ended with status 3$",
            "text\n",
        ),
    ],
    ids=["spooldir", "exec"],
)
def test_a_run_to_the_end_has_failed_where_a_source_could_not_read_something_and_says_what(
    place: Path, change: Callable[[Path], str], said: str, stored: str, caplog: pytest.LogCaptureFixture
) -> None:
    more = change(place)
    with (place / "flume.conf").open("a") as f:
        f.write(more)
    assert CliRunner().invoke(app, arguments(place, "--once")).exit_code == 1
    assert written(place) == stored
    last = [r.getMessage() for r in caplog.records if r.name == "spillable_stream.flow" and r.levelname == "ERROR"][-1]
    assert re.match(said, last), last


def test_a_run_to_the_end_says_what_could_not_run(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (place / "flume.conf").open("a") as f:
        f.write("a1.sinks = k1 k2\na1.sinks.k2.type = hbase\na1.sinks.k2.channel = c1\n")
    assert CliRunner().invoke(app, arguments(place, "--once")).exit_code == 1
    said = [r.getMessage() for r in caplog.records if "without what could not run" in r.getMessage()]
    assert len(said) == 1
    assert "sink k2: the type hbase does not run here" in said[0]
    assert written(place) == "1\n2\n"


def test_a_channel_that_is_left_to_a_query_is_said(place: Path) -> None:
    text = TEXT.format(dir=place).replace("file_roll", "org.apache.spark.streaming.flume.sink.SparkSink")
    (place / "flume.conf").write_text(text)
    done = CliRunner().invoke(app, arguments(place, "--dryrun"))
    assert 'sink k1: nothing runs, and a Spark query reads c1 with format("spillable")' in done.output


def test_libraries_log_no_line_for_each_request_or_change(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for name in ("httpx", "watchfiles", "uvicorn"):
        logging.getLogger(name).setLevel(logging.NOTSET)  # an agent before it in this process may have set it
    assert CliRunner().invoke(app, arguments(place, "--dryrun")).exit_code == 0
    noisy = [
        logging.getLogger(name).isEnabledFor(logging.INFO) for name in ("httpx", "watchfiles.main", "uvicorn.error")
    ]
    assert noisy == [False] * 3


def test_the_level_of_the_log_is_the_one_of_flumes_start_scripts() -> None:
    levels = [log_level(text) for text in ("DEBUG,console", "info,LOGFILE", "WARN", "")]
    assert levels == [logging.DEBUG, logging.INFO, logging.WARNING, logging.INFO]


@pytest.mark.parametrize(
    ("more", "status", "text"),
    [
        (["-z", "host:2181"], 2, "ZooKeeper"),
        (["-u", "http://x"], 2, "--conf-file"),
        (["-f", "/no/file"], 2, "/no/file: No such file or directory (errno 2); check the path"),
        (["-n", "a2"], 1, "flume.conf: error missing-agent a2: there is no agent a2: the file describes a1\n"),
        (["--once", "-Dflume.monitoring.type=http", "-Dflume.monitoring.port=x"], 2, "is not a port"),
        (["--once", "-Dflume.monitoring.type=http", "-Dflume.monitoring.port=²"], 2, "is not a port"),
        (["--once", "-Dflume.monitoring.type=http", "-Dflume.monitoring.port=65536"], 2, "is not a port"),
    ],
)
def test_what_it_cannot_do_is_said(place: Path, more: list[str], status: int, text: str) -> None:
    done = CliRunner().invoke(app, arguments(place, *more))
    assert done.exit_code == status, done.output
    assert text in done.output
    assert done.output.count("there is no agent") <= 1, "once is enough"
