"""A verb whose output nobody reads any more ends as SIGPIPE ends other programs: silently, with 141.

With ``set -o pipefail`` a script sees that status. A 1 would tell it that a channel is damaged.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import make_work, start


@pytest.fixture
def unread() -> Iterator[int]:
    """Return the writing end of a pipe that is closed at the other."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


# Each is like another verb, which is fast enough for every run: a process takes half a second.
SLOW_VERBS = [
    "help",
    "stats --help",
    "version",
    "stats c --json",
    "verify c",
    "tail c",
    "tap c --from-start",
    "metrics c",
    "ui c --port 0",
    "validate -f flume.conf",
]


@pytest.mark.parametrize(
    "verb",
    [
        "",
        "--help",
        "stats c",
        "put c lines",
        "tail c -f",
        "top c --once",
        *(pytest.param(verb, marks=pytest.mark.slow) for verb in SLOW_VERBS),
    ],
)
def test_a_verb_whose_output_nobody_reads_ends_silently_as_by_sigpipe(tmp_path: Path, unread: int, verb: str) -> None:
    make_work(tmp_path)
    process = start(*verb.split(), stdout=unread, stderr=subprocess.PIPE, cwd=tmp_path)
    _, said = process.communicate(timeout=120)
    assert (process.returncode, said) == (141, b"")


def test_an_agent_that_says_to_nobody_what_it_would_run_does_so_too(tmp_path: Path, unread: int) -> None:
    make_work(tmp_path)
    verb = ("agent", "-n", "a1", "-f", "flume.conf", "--dryrun")
    process = start(*verb, stdout=unread, stderr=subprocess.PIPE, cwd=tmp_path)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 141 and b"ipe" not in said, "its log has the findings"


@pytest.mark.parametrize(
    "verb", ["stats missing", *(pytest.param(v, marks=pytest.mark.slow) for v in ("nosuch", "stats", "help nosuch"))]
)
def test_a_verb_whose_complaint_nobody_reads_does_so_too(tmp_path: Path, unread: int, verb: str) -> None:
    process = start(*verb.split(), stdout=unread, stderr=unread, cwd=tmp_path)
    assert process.wait(120) == 141
