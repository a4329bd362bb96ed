"""Log records: with fields, and written where SPILLABLE_LOG is set."""

from __future__ import annotations

import ast
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import spillable_stream
from spillable_stream import Channel
from spillable_stream.log_records import FIELDS, configure, fields

PROGRAM = """
import sys
import spillable_stream as ss
with ss.Channel(sys.argv[1], minimum_required_space=0) as channel, channel.put_transaction() as tx:
    tx.put(ss.Event(b"a"))
with ss.Channel(sys.argv[1]) as channel, channel.take_transaction("audit") as tx:
    tx.take()
"""


def written(path: Path, level: str | None) -> str:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    environment.pop("SPILLABLE_LOG", None)
    if level is not None:
        environment["SPILLABLE_LOG"] = level
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, path], env=environment, capture_output=True, text=True, check=True
    ).stderr


def test_nothing_is_written_unless_it_is_asked_for(path: Path) -> None:
    assert written(path, None) == "" == written(path, "error")


def test_errors_reach_a_program_that_does_not_configure_logging() -> None:
    program = "import logging, spillable_stream; logging.getLogger('spillable_stream.x').error('gone')"
    environment = {name: value for name, value in os.environ.items() if name != "SPILLABLE_LOG"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == "gone\n"


def test_debug_says_what_is_done_to_which_channel_and_group(path: Path) -> None:
    lines = written(path, "debug").splitlines()
    assert any(f"DEBUG spillable_stream.channel.open_channel: opened {path} channel={path}" in line for line in lines)
    assert any(line.endswith(f"channel={path} group=audit") for line in lines)
    assert any(
        f"INFO spillable_stream.engine.channel_recovery: recovered {path}: log-000001 ends at " in line
        for line in lines
    )
    assert "DEBUG" not in written(path, "INFO")


def test_a_level_that_is_none_counts_as_info_and_says_so(path: Path) -> None:
    lines = written(path, "loud").splitlines()
    assert "SPILLABLE_LOG is 'loud', not one of debug, info, warning, error" in lines[0]


def test_records_have_fields_for_the_programs_handlers(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "spillable_stream"), Channel(path, minimum_required_space=0) as channel:
        channel.consumer("audit")
    found = {record.message: record for record in caplog.records}
    owned = found[f"the group 'audit' of {path} is owned here"]
    assert (owned.channel, owned.group, owned.levelname) == (str(path), "audit", "DEBUG")  # type: ignore[attr-defined]
    assert all(record.name.startswith("spillable_stream.") for record in caplog.records)


def test_fields_are_there_only_where_the_record_is_about_them() -> None:
    assert fields() == {} and fields("/c", group="g") == {"channel": "/c", "group": "g"}
    of_events = fields("c", group="g", first_id=0, last_id=0, count=0)
    of_places = fields(component="s", query="q", file="f", offset=0, slot=0, seconds=0.0)
    assert set(of_events | of_places) == set(FIELDS)
    assert not set(FIELDS) & set(vars(logging.makeLogRecord({}))), "logging refuses names that all records have"


def test_the_handler_takes_part_in_no_other_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = logging.getLogger("spillable_stream")
    before = tree.handlers[:], tree.propagate, tree.level
    try:
        configure({"SPILLABLE_LOG": "warning"})
        assert not tree.propagate and tree.level == logging.WARNING
    finally:
        tree.handlers[:], tree.propagate = before[0], before[1]
        tree.setLevel(before[2])


PACKAGE = Path(spillable_stream.__file__).parent
LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
NAMING_NOTHING = {
    "%s %s",  # an option of Java's
    "the variable %s is not an option's; the nearest is %s",
    "flume.monitoring.type = %s is not served; say http or prometheus",
    "a request for metrics from %s failed",
    "a callback of a producer raised",
    "the clock of a producer raised; the machine's is used instead",
    "a target could not be closed",
    "a channel was not closed cleanly at the end of a worker: %s",  # it may be none that has a path any more
    "%s: the listener of spillable channels failed; the query continues",
    "raised to Spark: %s",
    "the channels could not be looked at",
    "%s is %r, not one of %s: it counts as info",
}
NAMED = {
    r"the group %r|group %s": {"group"},
    r"%g s\b|%\.1f s\b": {"seconds"},
    r"%d (events|datagrams|lines)|%s events stay": {"count"},
    r"events? %d to %d": {"first_id", "last_id"},
    r"slot %d": {"slot"},
    r"the spool %s": {"file"},
    r"bytes %d to %d|offset %d": {"offset", "file"},
    r"[Tt]he sink %s": {"component"},
    r"^the path %s": {"file"},
    r"query run %s": {"query"},
}


def log_calls() -> Iterator[tuple[str, ast.Call]]:
    """Yield each call that logs, with its place: those of loggers, and of the producer's `say`."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            receiver, _, method = called.rpartition(".")
            is_said = called == "say" and path.parent.name == "producer"
            if is_said or (method in LEVELS and receiver in ("_log", "tree", "logging")):
                yield f"{path.relative_to(PACKAGE)}:{node.lineno}", node


def message_of(call: ast.Call) -> str | None:
    """Return the message of a call, or None if that is a variable."""
    texts = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    return texts[0] if texts else None


def test_every_record_has_the_fields_that_its_message_names() -> None:
    calls, lacking, unused = 0, [], set(NAMING_NOTHING)
    for place, call in log_calls():
        calls += 1
        message = message_of(call)
        if place.startswith("producer/trouble.py") or ast.unparse(call.args[0]) == "format":
            continue  # they pass on what they are given
        given = next((k.value for k in call.keywords if k.arg in ("extra", "about")), None)
        if given is None:
            unused.discard(message or "")
            lacking += [] if message in NAMING_NOTHING else [f"{place} has no fields: {message}"]
        elif isinstance(given, ast.Call) and ast.unparse(given.func) == "fields" and message is not None:
            has = {k.arg for k in given.keywords} | ({"channel"} if given.args else set())
            wanted = {name for pattern, names in NAMED.items() if re.search(pattern, message) for name in names}
            lacking += [f"{place} lacks {name}: {message}" for name in sorted(wanted - has)]
    assert not lacking
    assert not unused, "these messages are gone"
    assert calls > 140
