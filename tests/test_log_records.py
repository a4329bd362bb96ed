"""Log records: with fields, and written where SPILLABLE_LOG is set."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

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
    assert any(f"DEBUG spillable_stream.channel.channel: opened {path} channel={path}" in line for line in lines)
    assert any(line.endswith(f"channel={path} group=audit") for line in lines)
    assert any(f"INFO spillable_stream.engine.channel_recovery: recovered {path}" in line for line in lines)
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
    assert set(fields("c", group="g", first_id=0, last_id=0, file="f")) == set(FIELDS)
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
