"""The example of each verb's help is run as it is written.

Only its places differ: `/data` is a directory of the test, and an address in a bucket is one in a directory. What it
names is there: the channels and files that somebody who follows it has. One that runs until Ctrl-C gets that once it
has said something.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
import typer

import spillable_stream as ss
from spillable_stream.cli import app
from tests.support import pythons
from tests.support.command_line import ROOT, run
from tests.support.events import numbered, put, take
from tests.support.flow_configurations import SMALL, SMALL_TESTS
from tests.support.waiting import is_readable

FLOW = f"""{dedent(SMALL)}
a1.sources.r1.interceptors = i1
a1.sources.r1.interceptors.i1.type = timestamp
"""
UNTIL_CTRL_C = {
    "tail /data/orders -n 20 -f": "last",
    "tap a1:r1.i1 --every 100": "headers",
    "tap /data/c1 --where level=ERROR": "ERROR",
    "agent -n a1 -f flume.conf": "runs",
    "metrics /data/orders /data/clicks --port 9107": "serving",
    "ui /data/orders /data/clicks": "open",
    "top /data/orders '/data/clicks-*'": "clicks-1",
}
"""By the example, what it says before it is ended."""

ENDED_BY_CTRL_C = {"agent": {0, 130}}
"""With which status, where it is not 0; an agent may still be starting."""

MADE_BY = {"create", "restore"}
"""They make `/data/orders`, so it is not there before."""

QUOTED, FOR_A_SHELL = re.compile(r"'[^']*'|\"[^\"$`]*\""), re.compile(r"[|&;<>()$`*?~#]|\[")


def examples() -> list[tuple[str, str]]:
    """Return the verbs with their examples."""
    root: Any = typer.main.get_command(app)
    found = []
    for name, command in root.commands.items():
        for inner, verb in getattr(command, "commands", {"": command}).items():
            found += [(f"{name} {inner}".strip(), e) for e in re.findall(r"Example: `([^`]*)`", verb.help or "")]
    return found


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A working directory with all that the examples name."""
    (tmp_path / "bin").mkdir()
    program(tmp_path, "spillable", f'exec "{sys.executable}" -m spillable_stream "$@"')
    program(tmp_path, "journalctl", """echo '{"MESSAGE": "started"}'""")
    (tmp_path / "orders.jsonl").write_text('{"id": 1}\n')
    pa.parquet.write_table(pa.table({"id": [1]}), tmp_path / "orders.parquet")
    (tmp_path / "sales.csv").write_text("id;amount\n1;9.5\n")
    (tmp_path / "app.log").write_text("one\ntwo\n")
    (tmp_path / "flume.conf").write_text(FLOW)
    (tmp_path / "flow_tests.toml").write_text(SMALL_TESTS)
    for name in ("orders", "clicks", "clicks-1", "c1", "orders-dead"):
        with ss.Channel(tmp_path / "data" / name, minimum_required_space=0) as channel:
            put(channel, *numbered(1, 20), b"last")
            take(channel, 1, "audit")
    return tmp_path


def program(place: Path, name: str, text: str) -> None:
    (place / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
    (place / "bin" / name).chmod(0o755)


def placed(place: Path, command: str) -> str:
    """Return a command with the test's places in it."""
    command = command.replace("/data", f"{place}/data").replace("s3://", f"object+file://{place}/")
    return command.replace("--port 9107", "--port 0").replace("spillable ui ", "spillable ui --port 0 ")


def started(place: Path, command: str) -> subprocess.Popen[bytes]:
    """Start a command: in a shell, unless that would do nothing but split it."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
        "XDG_RUNTIME_DIR": str(place),
        "TMPDIR": str(place),
    }
    files = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    if not FOR_A_SHELL.search(QUOTED.sub("", command)):
        program, *arguments = shlex.split(placed(place, command))
        assert program == "spillable"
        return pythons.Popen(
            [sys.executable, "-m", "spillable_stream", *arguments], cwd=place, env=environment, **files
        )
    environment["PATH"] = f"{place}/bin:{os.environ['PATH']}"
    return subprocess.Popen(placed(place, command), shell=True, cwd=place, env=environment, **files)


def printed_until(process: subprocess.Popen[bytes], said: str, place: Path) -> str:
    """Return what a command prints up to a text; events come as long as it does not print it."""
    assert process.stdout is not None
    printed = ""
    while said not in printed:
        if is_readable(process.stdout.fileno(), 0.5):
            data = os.read(process.stdout.fileno(), 65_536)
            assert data, printed
            printed += data.decode()
        else:
            with ss.Channel(place / "data" / "c1", create=False) as channel, channel.put_transaction() as tx:
                tx.put(ss.Event(b"later", {"level": "ERROR"}))
    return printed


def ended_by_ctrl_c(place: Path, example: str, said: str) -> tuple[int, str]:
    """Run an example until it says something, send it Ctrl-C, and return its status and what it printed."""
    process = started(place, example)
    printed = printed_until(process, said, place)
    process.send_signal(signal.SIGINT)
    printed += process.communicate(timeout=60)[0].decode()
    return process.returncode, printed


def ended(place: Path, example: str) -> tuple[int, str]:
    """Run an example: in this process where a shell does nothing but split it."""
    if "|" not in example:
        done = run(*shlex.split(placed(place, example))[1:])
        return done.exit_code, done.output
    process = started(place, example)
    return process.wait(120), process.communicate()[0].decode()


def test_each_example_that_runs_until_ctrl_c_is_one_of_a_verb() -> None:
    assert {f"spillable {e}" for e in UNTIL_CTRL_C} <= {e for _, e in examples()}


@pytest.mark.parametrize(("verb", "example"), [pytest.param(*e, id=e[1]) for e in examples()])
def test_an_example_does_what_it_says(place: Path, verb: str, example: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    if verb == "export":
        (place / "orders.parquet").unlink()
    if verb in MADE_BY or "--typed" in example:
        (place / "data" / "orders").rename(place / "data" / "orders.away")
    if verb == "restore":
        ss.backup(place / "data" / "orders.away", f"object+file://{place}/backups/orders")
        (place / "data" / "orders.away").rename(place / "elsewhere")
    agent = started(place, "spillable agent -n a1 -f flume.conf") if "a1:r1" in example else None
    try:
        if agent is not None:
            printed_until(agent, "runs sink", place)
        said = UNTIL_CTRL_C.get(example.removeprefix("spillable "))
        status, printed = ended(place, example) if said is None else ended_by_ctrl_c(place, example, said)
    finally:
        if agent is not None:
            agent.kill()
            agent.communicate()
    assert status in ({0} if said is None else ENDED_BY_CTRL_C.get(verb, {0})), printed
    assert "Traceback" not in printed
