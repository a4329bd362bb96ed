"""Which exit status each verb has after each signal: one rule for all (docs/command_line.md).

A verb that a signal cuts short ends with 128 and the signal's number, one that has no other end with 0. With ``--json``
it prints one object, which says so. The signal is sent where the verb calls a function.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from typer import rich_utils

import spillable_stream as ss
from spillable_stream.archive import restore
from spillable_stream.channel.channel import Channel
from spillable_stream.cli import consume, describe, flow_events, flow_graph, flow_validate, load_input
from spillable_stream.cli.numbered_load import Load
from spillable_stream.engine.local.local_engine import LocalEngine
from spillable_stream.flow import testing
from spillable_stream.flow.agent import Agent
from spillable_stream.integrity import verify
from spillable_stream.objects import open_store
from spillable_stream.observe.observer import Observer
from spillable_stream.termination import interrupting_on_signals
from spillable_stream.ui import server
from tests.cli.test_app import commands
from tests.cli.test_interrupts import At, interrupted
from tests.support.command_line import run
from tests.support.events import numbered, put
from tests.support.flow_configurations import NETCAT

OPEN = At(LocalEngine, "__init__")
CUT_SHORT, NORMAL = "128 + n", "0"


class Row(NamedTuple):
    """A verb, where the signal comes, how it ends, and whether it prints an object."""

    verb: str
    at: At
    ends: str = CUT_SHORT
    has_json: bool = False


ECHO = At(typer, "echo", after=True)
FILES = "-f flume.conf -n a1"
RUNNING_AGENT = At(Agent, "wait"), At(Agent, "is_finished")
ROWS = [
    Row("put new f.log", At(load_input._LineInput, "batches"), has_json=True),
    Row("take c", At(consume, "write_lines")),
    Row("tail c", At(consume, "write_lines")),
    Row("tail c -f", At(consume._Tail, "_print_new"), NORMAL),
    Row("tail c -f", OPEN, NORMAL),
    Row("export c o.jsonl", OPEN, has_json=True),
    Row("stats c", OPEN, has_json=True),
    Row("stats c", At(Channel, "close"), has_json=True),
    Row("describe c", OPEN, has_json=True),
    Row("describe c --options", At(describe, "_describe_options"), has_json=True),
    Row("create n", OPEN),
    Row("alter c -o keepAlive=1", OPEN),
    Row("groups list c", OPEN, has_json=True),
    Row("groups create c g", OPEN),
    Row("groups drop c default --yes", OPEN),
    Row("groups seek c default latest --yes", OPEN),
    Row("backup c copy", OPEN, has_json=True),
    Row("restore old r --new-identity", At(restore, "newest_manifest"), has_json=True),
    Row("verify c", At(verify, "inspect"), has_json=True),
    Row("repair c", At(verify, "inspect"), has_json=True),
    Row("repair c --yes", At(verify, "inspect"), has_json=True),
    Row("check-store object+file:///store", At(open_store, "open_store"), has_json=True),
    Row("dead-letters list dead", OPEN, has_json=True),
    Row("dead-letters show dead 1", OPEN, has_json=True),
    Row("dead-letters replay dead c", OPEN, has_json=True),
    Row("top c", At(Observer, "observe", 2), NORMAL),
    Row("top c --once", At(Observer, "observe"), has_json=True),
    Row("top c --once --interval 0.1", At(Observer, "close"), has_json=True),
    Row("metrics c --port 0", ECHO, NORMAL),
    Row("ui c --port 0", At(server, "is_loopback"), NORMAL),
    Row(f"agent {FILES} -Dspillable.data.dir=data", At(Agent, "wait"), NORMAL),
    Row(f"agent {FILES} -Dspillable.data.dir=data", At(Agent, "described"), NORMAL),
    Row(f"agent {FILES} -Dspillable.data.dir=data --once", At(Agent, "is_finished")),
    Row(f"agent {FILES} -Dspillable.data.dir=data --once", At(Agent, "described")),
    Row(f"agent {FILES} -Dspillable.data.dir=data --dryrun", At(Agent, "described")),
    Row("tap c", At(Channel, "stats"), NORMAL),
    Row("tap c --limit 9", At(Channel, "stats")),
    Row("tap c --no-follow", At(Channel, "stats")),
    Row("send c --filename f.log", At(flow_events, "_batches")),
    Row("validate -f flume.conf", At(flow_validate, "loaded_configuration"), has_json=True),
    Row("graph -f flume.conf", At(flow_graph, "loaded_configuration"), has_json=True),
    Row("test tests.toml", At(testing, "run_file"), has_json=True),
    Row("version", ECHO),
    Row("help", At(rich_utils, "rich_format_help", after=True)),
]


def test_each_verb_has_a_row() -> None:
    assert {name for name, _ in commands()} <= {verb for row in ROWS for verb in words(row.verb)}


def words(verb: str) -> tuple[str, str]:
    first, second, *_ = [*verb.split(), ""]
    return first, f"{first} {second}"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory of the verbs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.log").write_text("a\nb\n")
    (tmp_path / "flume.conf").write_text(NETCAT)
    for name in ("c", "dead"):
        with Channel(tmp_path / name, minimum_required_space=0) as channel:
            put(channel, *numbered(0, 3))
            channel.consumer("default")
    ss.backup(tmp_path / "c", tmp_path / "old")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with interrupting_on_signals():
        yield tmp_path
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("row", "number"),
    [
        pytest.param(
            row,
            number,
            id=f"{row.verb}: {row.at}, {number.name}",
            marks=[] if number is signal.SIGTERM or row.at in RUNNING_AGENT else [pytest.mark.slow],
        )
        for row in ROWS
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if number is not signal.SIGHUP or not row.verb.startswith("agent ")  # which reads its files again then
    ],
)
def test_a_verb_that_is_cut_short_ends_with_128_and_the_signal_and_one_without_an_end_with_0(
    place: Path, row: Row, number: signal.Signals
) -> None:
    done = interrupted(row.verb, row.at, number)
    said = done.output, done.exception
    assert done.exit_code == (128 + number if row.ends is CUT_SHORT else 0), said
    assert "Traceback" not in done.output and "Aborted" not in done.output
    if row.ends is CUT_SHORT and "agent" not in row.verb:
        assert "interrupted" in done.stderr


@pytest.mark.parametrize(
    ("row", "number"),
    [
        pytest.param(
            row,
            number,
            id=f"{row.verb}: {row.at}, {number.name}",
            marks=[] if number is (signal.SIGINT, signal.SIGTERM)[turn % 2] else [pytest.mark.slow],
        )
        for turn, row in enumerate(row for row in ROWS if row.has_json)
        for number in (signal.SIGINT, signal.SIGTERM)
    ],
)
def test_a_verb_that_is_cut_short_prints_one_object_with_json(place: Path, row: Row, number: signal.Signals) -> None:
    done = interrupted(f"{row.verb} --json", row.at, number)
    (line,) = done.stdout.splitlines()
    found: dict[str, Any] = json.loads(line)
    assert done.exit_code == 128 + number
    if row.at.name != "close":  # it was done, and had said so
        assert found["interrupted"] is True and set(found) >= {"interrupted", "text"}


def test_a_put_that_is_cut_short_says_what_it_stored_for_a_program_too(place: Path) -> None:
    (place / "f.log").write_bytes(b"".join(b"%d\n" % i for i in range(25_000)))
    done = interrupted("put new f.log --json", At(Load, "_commit", 2, after=True), signal.SIGTERM)
    found = json.loads(done.stdout)
    with Channel(place / "new", create=False) as channel:
        stored = channel.stats().channel_size
    assert 0 < stored < 25_000 and found["stored"] == stored and found["skipped"] == 0
    assert found["text"] == f"{stored:,} rows are stored; the same command continues"
    again = interrupted("put new f.log --json", At(load_input._LineInput, "batches"))
    assert json.loads(again.stdout)["skipped"] in (0, stored)
    assert run("put", "new", "f.log", "--json").exit_code == 0
    with Channel(place / "new", create=False) as channel:
        assert channel.stats().channel_size == 25_000
