"""The demo of a flow: its configuration, its log, what it says of lines that are not there once, and a small run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from demo.flume import run as demo
from spillable_stream import flow
from spillable_stream.flow.configuration.registry import find_type

ROOT = Path(__file__).parents[2]


def test_the_configuration_is_flumes_own_and_has_no_fault() -> None:
    loaded = flow.load(demo.CONFIGURATION, system={"demo.dir": "/x"})
    assert {f.severity for f in loaded.findings} <= {"note"}
    agent = loaded.agents[demo.AGENT]
    assert not agent.dropped
    for component in (*agent.sources, *agent.channels, *agent.sinks):
        known = find_type(component.kind, component.type)
        assert known is not None and known.java_names, "a type of Flume's"
        assert "path" not in component.properties, "a property of this package"


def test_no_two_lines_are_alike() -> None:
    lines = demo.flight_lines(3)
    assert lines[0] == "2013-01-01T10:00:00Z,UA,EWR,0,2" and len(set(lines)) == 3


def test_the_log_is_rotated_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "PIECE", 2)
    monkeypatch.setattr(demo, "PIECE_SECONDS", 0)
    demo.write_log(tmp_path, [str(i) for i in range(10)])
    texts = {p.name: p.read_text().split() for p in tmp_path.iterdir()}
    assert texts == {"departures.csv.1": ["0", "1", "2", "3"], "departures.csv": ["4", "5", "6", "7", "8", "9"]}


@pytest.mark.parametrize(
    ("written", "part"),
    [
        ("a\nb\n", "OK: each of 2 flights"),
        ("a\n", "WRONG: 1 lines missing, 0 more"),
        ("a\nb\nb\n", "0 lines missing, 1 more than once"),
        ("a\nb\nc\n", "1 unknown"),
    ],
)
def test_the_verdict_counts_every_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], written: str, part: str
) -> None:
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "file").write_text(written)
    (tmp_path / "others" / ".note").write_text("of the sink's own\n")
    assert demo.verdict(tmp_path, ["a", "b"]) is part.startswith("OK")
    assert part in capsys.readouterr().out


def test_an_agent_that_ends_before_it_has_started_is_reported(tmp_path: Path) -> None:
    log = tmp_path / "agent.log"
    log.write_bytes(b"flights runs sink store: hdfs\nflights runs source departures: taildir\n")
    with subprocess.Popen(["false"]) as agent:
        with pytest.raises(SystemExit, match=r"the agent has ended with status 1; see .*agent\.log"):
            demo.wait_until_started(agent, log)
        log.write_bytes(log.read_bytes() + demo.STARTED)
        demo.wait_until_started(agent, log)


def test_a_line_that_a_killed_agent_did_not_commit_is_not_taken_for_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "others").mkdir()
    file, log = tmp_path / "others" / "file", tmp_path / "agent.log"
    file.write_text("a\nb\n")
    log.touch()
    start = f"sleep 0.2; echo a > {file}; echo {demo.STARTED.decode()} > {log}"
    monkeypatch.setattr(demo, "LOOK_SECONDS", 0.02)
    process = subprocess.Popen(["bash", "-c", f"{start}; sleep 0.2; echo b >> {file}; exec sleep 60"])
    with demo.ended(process):
        demo.wait_for_all(tmp_path, 2, process, log)
    assert "1 of 2 lines" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_flight_is_stored_once_though_the_agent_is_killed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "demo.flume.run", "--flights", "20000"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "sinkgroup both: load_balance" in done.stdout and "SIGKILL" in done.stdout
    assert re.search(r"OK: each of 20,000 flights is in one file, once", done.stdout)
    assert [path.name for path in tmp_path.rglob("*")] == [f"spillable-{os.getuid()}"]  # where agents' sockets were
