"""The laboratory's children: none outlives the process that created it, and none is waited for without end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab import children
from tests.lab.children import Child

_MAKER = """
import os, sys, time
from pathlib import Path
from tests.lab.children import Child

def stay():
    print("here", flush=True)
    time.sleep(600)

Child(stay, Path(sys.argv[1]))
time.sleep(600)
"""


def test_a_child_of_a_process_that_is_killed_keeps_nobodys_pipe_open(tmp_path: Path) -> None:
    """Whoever reads what a run of tests says, reads to the end."""
    command = [sys.executable, "-c", _MAKER, str(tmp_path / "stderr")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as maker:
        assert maker.stdout is not None and maker.stdout.readline() == b"here\n"
        maker.kill()
        assert maker.communicate(timeout=60)[0] == b""


def test_a_child_whose_watchdog_hangs_with_it_is_killed_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "_MARGIN_SECONDS", 0.1)
    child = Child(lambda: os.kill(os.getpid(), signal.SIGSTOP), tmp_path / "stderr", 0.1)
    with pytest.raises(AssertionError, match="a child hung, and its watchdog with it"):
        child.wait()
    assert child.code == -signal.SIGKILL and not child.alive()


def test_a_child_of_a_child_ends_though_the_watchdog_of_the_first_was_forked_with_it(tmp_path: Path) -> None:
    def nest() -> None:
        assert Child(lambda: None, tmp_path / "stderr", 60).wait() == 0

    child = Child(nest, tmp_path / "stderr", 60)
    assert child.wait() == 0, (tmp_path / "stderr").read_text()
