"""Exactly once from channel to channel, though the driver is killed: a sample of tests/crash/test_spark_kill.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.spark_lab import Lab
from tests.support.spark.versions import ADMISSION_CONTROL

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]


# Before Spark 4.2 a run that ends by itself leaves its last windows to the next one with new rows.
KINDS = ["map", "count"] if ADMISSION_CONTROL else ["map"]


def test_every_row_is_stored_once_though_the_driver_is_killed(tmp_path: Path) -> None:
    """What is on a disk and what is in a store share the drivers, each of which is a JVM's start."""
    stored = [f"{kind} stored" for kind in KINDS]
    with Lab(tmp_path, [*KINDS, *stored]) as lab:
        for kinds in (KINDS, stored):
            lab.kill_at(kinds[-1], "publish", "after", "driver", passes=1)
        lab.kill_at_random("driver")
        lab.drain()
        assert lab.wrongs() == []
        assert lab.driver_kills() == 3
