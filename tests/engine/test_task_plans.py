"""What a task of another process is sent: the same there, and not to be changed."""

from __future__ import annotations

import dataclasses
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import spillable_stream as ss
from spillable_stream.engine.port import ReadPlan, StagePlan
from tests.support.events import numbered, put


@pytest.fixture
def plans(tmp_path: Path) -> tuple[ReadPlan, StagePlan]:
    with ss.Channel(tmp_path / "c", minimum_required_space=0, compression="zstd") as channel:
        put(channel, *numbered(0, 5))
        [read] = channel.port().plan_read([[(2, 4)]])
        return read, channel.port().plan_stage()


def test_plans_are_the_same_in_another_process(plans: tuple[ReadPlan, StagePlan], tmp_path: Path) -> None:
    (tmp_path / "plans").write_bytes(pickle.dumps(plans))
    program = (
        "import pickle, sys; plans = pickle.load(open(sys.argv[1], 'rb')); pickle.dump(plans, open(sys.argv[1], 'wb'))"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path / "plans"], check=True)
    assert pickle.loads((tmp_path / "plans").read_bytes()) == plans


def test_plans_cannot_be_changed(plans: tuple[ReadPlan, StagePlan]) -> None:
    for plan in plans:
        with pytest.raises(dataclasses.FrozenInstanceError):
            plan.layout = None  # type: ignore[union-attr]


def test_a_plan_says_where_exactly_the_events_are(plans: tuple[ReadPlan, StagePlan]) -> None:
    read, _ = plans
    assert [(extent.first_id, extent.last_id) for extent in read.extents] == [(2, 4)]
    assert read.ends[read.extents[0].file] > read.extents[0].offset


def test_a_staged_file_is_what_the_plan_says(plans: tuple[ReadPlan, StagePlan]) -> None:
    _, stage = plans
    staged = stage.begin("query", 7)
    assert staged.name.startswith("segment.query.7.") and stage.compression == "zstd"
    staged.discard()
