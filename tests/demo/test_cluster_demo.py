"""The demo on a cluster: in a small size, cut short, and what it says of flights that do not count once."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from demo.cluster.hosts import missing
from demo.cluster.report import Row, verdict
from tests.support.marked import processes_with
from tests.support.spark.class_archive import with_archive

NEEDS_HOSTS = pytest.mark.skipif(bool(missing()), reason=missing() or "-")
ROOT = Path(__file__).parents[2]
CARRIERS = ["UA", "AA", "UA"]
RIGHT: list[Row] = [(0, "UA", "north"), (1, "AA", "west"), (2, "UA", "north")]


def start(temporary: Path, mark: str, *arguments: str) -> subprocess.Popen[str]:
    """Start the demo, in a session of its own, as a terminal would; each of its JVMs maps the archive of classes."""
    return subprocess.Popen(
        [sys.executable, "-u", "-m", "demo.cluster.run", *arguments],
        cwd=ROOT,
        env={**os.environ, "JDK_JAVA_OPTIONS": with_archive(), "TMPDIR": str(temporary), "MARK": mark},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(900)
@NEEDS_HOSTS
def test_every_flight_counts_once_though_the_driver_and_an_executor_are_killed(tmp_path: Path) -> None:
    mark = str(uuid.uuid4())
    demo = start(tmp_path, mark, "--flights", "2000")
    said = demo.communicate()[0]
    assert demo.returncode == 0, said
    kills = re.findall(r"SIGKILL: the (\w+) on (\w+) .* with ([\d,]+) of 2,000 flights counted", said)
    assert [(what, host) for what, host, _ in kills] == [("driver", "north"), ("worker", "west")]
    assert all(0 < int(count.replace(",", "")) < 2000 for _, _, count in kills), "the kills came too late"
    steps = re.findall(r"[\d.]+ s  ((?:start|the).*)", said)
    assert [step.split()[0] for step in steps] == ["started", "the", "starting", "the", "starting", "the"], steps
    assert re.search(r"counted by north: [\d,]+, west: [\d,]+\n", said), "an executor did nothing"
    assert "OK: each of the 2,000 flights is counted once" in said
    processes_with(mark).wait_until_gone()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(300)
@NEEDS_HOSTS
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_a_demo_that_is_cut_short_leaves_no_process(tmp_path: Path, number: int, status: int) -> None:
    mark = str(uuid.uuid4())
    demo = start(tmp_path, mark, "--flights", "2000")
    assert demo.stdout is not None
    for line in demo.stdout:
        if "an executor" in line:  # the hosts are there, and Spark starts
            break
    demo.send_signal(number)
    said = demo.communicate()[0]
    assert demo.returncode == status, said
    processes_with(mark).wait_until_gone()
    assert (list(tmp_path.iterdir()) == []) == (number != signal.SIGKILL)


def test_without_what_it_needs_the_demo_says_so_in_one_line(tmp_path: Path) -> None:
    """Nobody but root, or nobody without the tools, can run it."""
    done = subprocess.run(
        [sys.executable, "-m", "demo.cluster.run"],
        cwd=ROOT,
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert re.fullmatch(r"make demo-cluster can't run: .+ needed.*\n", done.stderr), done.stderr


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (RIGHT, "OK: each of the 3 flights is counted once"),
        (RIGHT[:2], "1 flights are missing, 0 are counted more than once"),
        ([*RIGHT, RIGHT[0]], "0 flights are missing, 1 are counted more than once"),
        ([*RIGHT[:2], (7, "UA", "north")], "1 flights are missing, 0 are counted more than once, 1 were never put"),
        ([*RIGHT[:2], (2, "AA", "north")], "WRONG: 0 flights are missing"),
    ],
)
def test_the_demo_says_which_flights_do_not_count_once(
    rows: list[Row], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verdict(CARRIERS, rows) == (rows == RIGHT)
    assert said in capsys.readouterr().out
