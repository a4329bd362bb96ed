"""SIGKILL of processes that put into a channel on a server, take from it and collect in it, at any moment, in loops.

`tests/crash/test_object_kill.py` does the same in a directory, and sees that broken programs are noticed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from spillable_stream.objects.store import Store
from tests.lab.object_harness import LOOKS
from tests.lab.size import sized

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3000)]

# CI's sample is on one server; each of the others that are installed has its kills on demand.
SERVERS = sized(ci=["s3"], full=["s3", "gcs", "azurite", "radosgw"])


@pytest.mark.parametrize("store", SERVERS, indirect=True)
def test_kills_at_any_moment_lose_nothing_and_double_nothing_on_a_server(store: Store, tmp_path: Path) -> None:
    """Ten kills in CI, three hundred of each server on demand."""
    for seed in range(sized(ci=1, full=10)):
        (directory := tmp_path / f"{seed}").mkdir()
        command = [sys.executable, "-m", "tests.lab.object_harness", f"{store.root}/{seed}", str(directory)]
        looks = sized(ci=1, full=LOOKS)
        done = subprocess.run([*command, f"{seed}", f"{looks}"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == []
