"""Ctrl-C in each phase of each long verb: one line that is true, status 130, nothing half created.

The same command continues then, or begins again.

The signal is sent where the verb calls a function, before or after that does its work, so a phase is hit each time.
Verbs that run until Ctrl-C (``top``, ``metrics``, ``ui``, ``agent``, ``tail -f``) have tests of their own.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import Result

import spillable_stream as ss
from spillable_stream.archive import backup as backup_module
from spillable_stream.archive import directory_restore
from spillable_stream.archive.directory_restore import _Build
from spillable_stream.channel.channel import Channel
from spillable_stream.cli import consume, export_file, load_input
from spillable_stream.engine.local.local_engine import LocalEngine
from spillable_stream.integrity import verify as verify_module
from spillable_stream.log.commit_lock import CommitLock
from spillable_stream.log.event_reader import EventReader
from spillable_stream.observe.observer import Observer
from spillable_stream.storage.file import File
from spillable_stream.storage.filesystem import FileSystem
from tests.support.command_line import ROOT, bodies, run
from tests.support.events import numbered, peek, put
from tests.support.flow_configurations import NETCAT

LINES = [b"line %d" % i for i in range(25_000)]
EVENTS = numbered(0, 3_000)
LETTERS = numbered(0, 10)


class At(NamedTuple):
    """A call of a function.

    Args:
        owner: the class or module that has the function.
        name: its name there.
        number: which of its calls, counted from 1.
        after: whether the signal comes when it has done its work.
    """

    owner: Any
    name: str
    number: int = 1
    after: bool = False

    def __str__(self) -> str:
        where = self.owner.__name__.rpartition(".")[2]
        return f"{'after' if self.after else 'before'} {where}.{self.name} {self.number}"


OPEN, READ, FRAMES = At(LocalEngine, "__init__"), At(EventReader, "read"), At(EventReader, "frames")
WRITE, SYNC, PUBLISH = At(File, "write"), At(File, "sync"), At(CommitLock, "publish")
CLOSE, CLOSED = At(Channel, "close"), At(Channel, "close", after=True)
MANIFEST, RENAME = At(backup_module, "write_manifest"), At(FileSystem, "rename")

PHASES: dict[str, list[At]] = {
    "put new f.log": [
        OPEN,
        At(load_input._LineInput, "batches"),
        WRITE,
        *(At(File, "sync", n) for n in (1, 2, 3, 4)),
        *(At(CommitLock, "publish", n, after) for n in (1, 2, 3) for after in (False, True)),
        CLOSE,
        CLOSED,
    ],
    "take c --group g": [
        OPEN,
        READ,
        At(consume, "write_lines"),
        At(consume, "write_lines", after=True),
        At(File, "sync", 2),
        *(At(CommitLock, "publish", n, after) for n in (1, 2, 3) for after in (False, True)),
        CLOSE,
        CLOSED,
    ],
    "tail c --from earliest": [OPEN, READ, At(consume, "write_lines"), CLOSE],
    "export c o.jsonl": [
        OPEN,
        READ,
        At(export_file, "_write_durably"),
        At(export_file.Export, "_join"),
        At(export_file, "_sync", 2),
        At(export_file, "_sync", 3),
        *(At(export_file, "sync_directory", n) for n in (1, 2, 3, 4)),
        *(At(os, "replace", n, after) for n in (1, 2, 3) for after in (False, True)),
        CLOSE,
    ],
    "export c o.parquet": [At(export_file.Export, "_join_arrow"), At(export_file, "sync_directory", 3)],
    "backup c copy": [
        OPEN,
        FRAMES,
        At(backup_module, "check_file"),
        MANIFEST,
        MANIFEST._replace(after=True),
        CLOSE,
    ],
    "restore old r --new-identity": [
        At(_Build, "run"),
        At(directory_restore, "verify"),
        RENAME,
        RENAME._replace(after=True),
    ],
    "verify c": [At(verify_module, "inspect"), At(File, "read", 5), At(verify_module, "report_of")],
    "repair c": [At(verify_module, "inspect"), At(verify_module, "inspect", 2)],
    "dead-letters replay dead c": [
        OPEN,
        READ,
        *(At(File, "sync", n) for n in (1, 2, 3, 4)),
        *(At(CommitLock, "publish", n, after) for n in (2, 3, 4, 5) for after in (False, True)),
        CLOSE,
    ],
    "top c --once --interval 0.1": [At(Observer, "__init__"), At(Observer, "observe"), At(Observer, "observe", 2)],
    "stats c": [OPEN, CLOSE],
    "create n": [OPEN, SYNC, CLOSE],
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory of the verbs: a channel, dead letters, a backup, a file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.log").write_bytes(b"".join(line + b"\n" for line in LINES))
    for name, put_bodies in (("c", EVENTS), ("dead", LETTERS)):
        with Channel(tmp_path / name, minimum_required_space=0) as channel:
            put(channel, *put_bodies)
    ss.backup(tmp_path / "c", tmp_path / "old")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield tmp_path
    signal.signal(signal.SIGINT, before)


def interrupted(verb: str, at: At, number: signal.Signals = signal.SIGINT) -> Result:
    """Run a verb, and send it a signal there."""
    did: Callable[..., Any] = at.owner.__dict__[at.name]
    left = at.number

    def wrapped(*args: Any, **more: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0 and not at.after:
            signal.raise_signal(number)
        result = did(*args, **more)
        if left == 0 and at.after:
            signal.raise_signal(number)
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(at.owner, at.name, wrapped)
        done = run(*verb.split())
    assert left <= 0, f"the verb never came there: {done.output}"
    return done


@pytest.mark.parametrize(
    ("verb", "at"),
    [
        pytest.param(verb, at, id=f"{verb}: {at}", marks=[pytest.mark.slow] if i % 3 else [])
        for verb, phases in PHASES.items()
        for i, at in enumerate(phases)
    ],
)
def test_ctrl_c_is_one_true_line_and_the_same_command_continues(place: Path, verb: str, at: At) -> None:
    done = interrupted(verb, at)
    assert (done.exit_code, done.stderr.count("\n")) == (130, 1), (done.output, done.exception)
    assert done.stderr.startswith("interrupted")
    assert not [name for name in place.iterdir() if "restoring" in name.name]
    SETTLED[verb.split()[0]](place, verb, done)


def put_is_true(place: Path, verb: str, done: Result) -> None:
    stored = bodies(place / "new") if (place / "new" / "channel.json").exists() else []
    said = re.search(r"([\d,]+) rows are stored; the same command continues", done.stderr)
    assert len(stored) == (int(said[1].replace(",", "")) if said else 0)
    assert run(*verb.split()).exit_code == 0
    assert bodies(place / "new") == LINES


def take_is_true(place: Path, verb: str, done: Result) -> None:
    again = run(*verb.split()).stdout_bytes.splitlines()
    said = re.search(r"takes the event ([\d,]+) next", done.stderr)
    taken = int(said[1].replace(",", "")) - 1 if said else 0 if "nothing was taken" in done.stderr else len(EVENTS)
    assert again == EVENTS[taken:]
    assert done.stdout_bytes.splitlines()[:taken] == EVENTS[:taken]


def tail_is_true(place: Path, verb: str, done: Result) -> None:
    assert "nothing was taken" in done.stderr
    assert run(*verb.split()).stdout_bytes.splitlines() == EVENTS


def export_is_true(place: Path, verb: str, done: Result) -> None:
    out = place / verb.split()[-1]
    assert out.exists() == ("the file is whole" in done.stderr)
    if not out.exists():
        again = run(*verb.split())
        said = re.search(r"the events up to ([\d,]+) of .*; the same command continues", done.stderr)
        assert ("continuing" in again.stderr) == bool(said)
        assert said is None or f"continuing after the event {said[1]} of" in again.stderr
        assert again.exit_code == 0
    assert not out.with_name(out.name + ".partial").exists() or "whole" in done.stderr
    copied = place / "copied"
    assert run("put", copied, out).exit_code == 0 and len(bodies(copied)) == len(EVENTS)


def backup_is_true(place: Path, verb: str, done: Result) -> None:
    assert "has this backup whole, or the one before; run it again" in done.stderr
    assert run(*verb.split()).exit_code == 0
    ss.restore(place / "copy", place / "again", new_identity=True)
    assert bodies(place / "again") == EVENTS


def restore_is_true(place: Path, verb: str, done: Result) -> None:
    assert "r is there and whole, or not at all: then run it again" in done.stderr
    if not (place / "r").exists():
        assert run(*verb.split()).exit_code == 0
    assert ss.verify(place / "r").healthy and bodies(place / "r") == EVENTS


def check_is_true(place: Path, verb: str, done: Result) -> None:
    assert run(*verb.split()).exit_code == 0
    assert bodies(place / "c") == EVENTS


def replay_is_true(place: Path, verb: str, done: Result) -> None:
    assert "what was put back stays; the same command continues" in done.stderr
    assert run(*verb.split()).exit_code == 0
    assert bodies(place / "c") == EVENTS + LETTERS
    with Channel(place / "dead", create=False) as dead:
        assert peek(dead) == []


def create_is_true(place: Path, verb: str, done: Result) -> None:
    assert run(*verb.split()).exit_code in (0, 1)
    assert bodies(place / "n") == []


SETTLED: dict[str, Callable[[Path, str, Result], None]] = {
    "put": put_is_true,
    "take": take_is_true,
    "tail": tail_is_true,
    "export": export_is_true,
    "backup": backup_is_true,
    "restore": restore_is_true,
    "verify": check_is_true,
    "repair": check_is_true,
    "dead-letters": replay_is_true,
    "top": check_is_true,
    "stats": check_is_true,
    "create": create_is_true,
}


AMID_IMPORTS = """
import os, signal, sys

class Signals:
    def find_spec(self, name, *_):
        if name == os.environ["SIGNAL_AT"]:
            signal.raise_signal(int(os.environ["SIGNAL"]))

sys.meta_path.insert(0, Signals())
"""
OF_THE_CONSOLE = "import spillable_stream.__main__ as entry; entry.main()"


DOORS = {"module": ["-m", "spillable_stream"], "script": ["-c", OF_THE_CONSOLE]}
PLACES = ("spillable_stream.cli", "spillable_stream.cli.describe", "pyarrow.lib", "spillable_stream.channel.channel")


@pytest.mark.parametrize(
    ("at", "door", "number"),
    [
        pytest.param(
            at,
            DOORS[door],
            number,
            id=f"{at}-{door}-{number.name}",
            marks=[] if at == PLACES[0] or (door, number) == ("module", signal.SIGINT) else [pytest.mark.slow],
        )
        for at in PLACES
        for door in DOORS
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    ],
)
def test_a_signal_amid_the_imports_ends_a_verb_as_one_does_later(
    tmp_path: Path, at: str, door: list[str], number: signal.Signals
) -> None:
    done = started_and_signalled(tmp_path, door, "stats c --json", at, number)
    assert (done.stderr, done.returncode) == (b"interrupted\n", 128 + number)
    assert json.loads(done.stdout) == {"interrupted": True, "text": ""}


@pytest.mark.parametrize("call", ["stats c", "take c --group g --json", "tail c --json", "stats -- --json"])
def test_a_signal_amid_the_imports_prints_no_object_where_the_verb_would_print_none(tmp_path: Path, call: str) -> None:
    done = started_and_signalled(tmp_path, ["-m", "spillable_stream"], call, "pyarrow.lib", signal.SIGTERM)
    assert (done.stderr, done.stdout, done.returncode) == (b"interrupted\n", b"", 143)


@pytest.mark.parametrize("at", ["pyarrow.lib", "spillable_stream.flow.agent"])
def test_sighup_amid_the_imports_ends_no_agent(tmp_path: Path, at: str) -> None:
    """It lets a running one read its files again."""
    (tmp_path / "flume.conf").write_text(NETCAT)
    call = "agent -n a1 -f flume.conf --dryrun"
    done = started_and_signalled(tmp_path, ["-m", "spillable_stream"], call, at, signal.SIGHUP)
    assert done.returncode == 0, done.stderr
    assert b"source r1" in done.stdout


@pytest.mark.parametrize("call", ["--help", "help stats", ""])
def test_a_signal_amid_the_imports_of_the_help_is_not_a_traceback(tmp_path: Path, call: str) -> None:
    done = started_and_signalled(tmp_path, ["-m", "spillable_stream"], call, "numpy", signal.SIGINT)
    assert (done.stderr, done.stdout, done.returncode) == (b"interrupted\n", b"", 130)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda n: n.name)
def test_a_signal_behind_the_verb_is_not_a_traceback(tmp_path: Path, number: signal.Signals) -> None:
    at_exit = f"import atexit, signal; atexit.register(signal.raise_signal, {int(number)}); "
    ss.Channel(tmp_path / "c", minimum_required_space=0).close()
    done = started_and_signalled(tmp_path, ["-c", at_exit + OF_THE_CONSOLE], "stats c --json", "nowhere", number)
    assert (done.stderr, done.returncode) == (b"interrupted\n", 128 + number)
    assert json.loads(done.stdout)["path"] == "c", "the verb's object, and no other"


def test_a_signal_that_is_ignored_amid_the_imports_still_is(tmp_path: Path) -> None:
    """As ``nohup`` and the background of a script have it."""
    ignoring = "import signal; [signal.signal(n, signal.SIG_IGN) for n in (signal.SIGINT, signal.SIGHUP)]; "
    for number in (signal.SIGINT, signal.SIGHUP):
        done = started_and_signalled(tmp_path, ["-c", ignoring + OF_THE_CONSOLE], "version", "pyarrow.lib", number)
        assert (done.stderr, done.returncode) == (b"", 0) and done.stdout.startswith(b"spillable_stream ")


def started_and_signalled(
    tmp_path: Path, door: list[str], call: str, at: str, number: signal.Signals
) -> subprocess.CompletedProcess[bytes]:
    """Run a verb, which gets a signal where it imports a module."""
    (tmp_path / "sitecustomize.py").write_text(AMID_IMPORTS)
    more = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "SIGNAL_AT": at, "SIGNAL": str(int(number))}
    command = [sys.executable, *door, *call.split()]
    return subprocess.run(command, capture_output=True, cwd=tmp_path, env={**os.environ, **more}, timeout=60)
