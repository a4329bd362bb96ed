"""Channels that earlier versions of the format wrote must open for ever."""

from __future__ import annotations

import json
import re
import shutil
import warnings
from pathlib import Path

import pytest

from spillable_stream import Channel
from spillable_stream.channel import spool_mover
from spillable_stream.channel.spool_mover import SpoolMover, spool_group
from spillable_stream.engine import deliveries
from spillable_stream.engine.groups import create_group
from spillable_stream.options import CHANNEL, defaults
from tests.golden.dump import CLOCK_MS, dump
from tests.golden.shape import SHAPES, shapes
from tests.support.object_channels import URL, stores_in_memory

HERE = Path(__file__).parent
KINDS = {"v1": ("events", "kept", "noted", "spilled", "typed"), "v3": ("delayed", "expiring", "spooled")}
CHANNELS = [f"{version}/{kind}" for version, kinds in KINDS.items() for kind in kinds]


def test_every_golden_channel_is_tested() -> None:
    assert sorted(str(p.relative_to(HERE).parent) for p in HERE.glob("v*/*/channel.json")) == CHANNELS


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let it be when the channels with delayed events were made."""
    monkeypatch.setattr(deliveries, "wall_clock_ms", lambda: CLOCK_MS)


@pytest.mark.parametrize("from_log_alone", [False, True])
@pytest.mark.parametrize("name", CHANNELS)
def test_a_golden_channel_holds_what_it_held(name: str, from_log_alone: bool, tmp_path: Path) -> None:
    shutil.copytree(HERE / name, tmp_path / "channel")
    if from_log_alone:
        shutil.rmtree(tmp_path / "channel" / "checkpoint", ignore_errors=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = json.loads((HERE / f"{name}.json").read_text())
        expected["options"] = {**defaults(CHANNEL), **expected["options"]}  # some came later
        del expected["options"]["checkpoint_on_close"]
        assert dump(tmp_path / "channel") == expected


@pytest.mark.parametrize("name", CHANNELS)
def test_a_golden_channel_continues(name: str, tmp_path: Path) -> None:
    expected = json.loads((HERE / f"{name}.json").read_text())
    shutil.copytree(HERE / name, tmp_path / "channel")
    with Channel(tmp_path / "channel", create=False) as channel:
        for group in channel.stats().groups:
            held = expected["groups"][group]
            with channel.take_transaction(group) as take:
                assert len(take.take_many(10_000)) == len(held["events"])
        assert channel.stats().channel_size == 0
        channel.checkpoint()
    with Channel(tmp_path / "channel", create=False) as channel:
        assert (channel.stats().channel_size, channel.stats().last_id) == (0, expected["last"])


def test_the_golden_spool_is_shipped_and_its_delayed_events_wait_in_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = json.loads((HERE / "v3/spooled.json").read_text())
    dues = [due_ms for _, dues_ms in expected["dues"] for due_ms in dues_ms]
    shutil.copytree(HERE / "v3/spooled", tmp_path / "spool")
    monkeypatch.setattr(spool_mover, "now_us", lambda: CLOCK_MS * 1000)
    with (
        stores_in_memory(),
        Channel(URL, commit_interval=0) as store,
        Channel(tmp_path / "spool", create=False) as spool,
    ):
        create_group(spool.engine(), spool_group(store.uuid), "earliest")
        mover = SpoolMover(spool.engine(), store.engine())
        assert mover.own()
        mover.ship()
        mover.close(is_answered=True)
        found = store.stats()
        assert (found.last_id, found.delayed.events) == (expected["stored"] - len(dues), len(dues))
        assert found.delayed.next_due == min(dues) / 1000


def test_the_documentations_worked_example_is_in_the_golden_channel() -> None:
    page = (HERE.parents[1] / "docs" / "format.md").read_text()
    rows = re.findall(r"^([0-9a-f]{3}): ((?:[0-9a-f]{2} +){8,16})", page, re.MULTILINE)
    shown = bytes.fromhex("".join(row for _, row in rows))
    data = (HERE / "v1" / "events" / "data" / "log-000009").read_bytes()
    assert len(shown) == 72
    assert data[int(rows[0][0], 16) :] == shown


def test_a_channel_that_keeps_nothing_is_on_disk_what_it_was(tmp_path: Path) -> None:
    """`plain.json` is of the last version that kept no events; since then groups and recoveries got tokens."""
    assert json.loads(json.dumps(shapes(tmp_path))) == json.loads(SHAPES.read_text())
