"""A channel that an earlier version wrote to an object store must open forever."""

from __future__ import annotations

import json
import re
import shutil
import warnings
from pathlib import Path

import pytest

from spillable_stream import Channel, verify
from spillable_stream.engine import deliveries
from tests.golden.dump import CLOCK_MS, dump
from tests.golden.make_object import NAME, url_of
from tests.support.object_channels import OwnersClock

STORED = Path(__file__).parent / "object_v2"
EXPECTED = json.loads((STORED / f"{NAME}.json").read_text())


@pytest.fixture
def orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owners_clock: OwnersClock) -> Path:
    """A copy of the channel, at the time when it was made."""
    monkeypatch.setattr(deliveries, "wall_clock_ms", lambda: CLOCK_MS)
    shutil.copytree(STORED / NAME, tmp_path / NAME)
    return tmp_path / NAME


def test_it_has_every_kind_of_object() -> None:
    names = [str(p.relative_to(STORED / NAME)) for p in (STORED / NAME).rglob("*") if p.is_file()]
    for kind in ("checkpoints/", "log/", "segments/.*-merged", "segments/.*-local", "segments/.*-delayed"):
        assert [name for name in names if re.match(kind, name)], kind


@pytest.mark.parametrize("from_log_alone", [False, True])
def test_it_holds_what_it_held(orders: Path, from_log_alone: bool) -> None:
    if from_log_alone:
        shutil.rmtree(orders / "checkpoints")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert dump(orders, url_of) == EXPECTED


def test_it_continues(orders: Path) -> None:
    with Channel(url_of(orders), create=False, commit_interval=0) as channel:
        for group in ("fast", "slow"):
            with channel.take_transaction(group) as tx:
                assert len(tx.take_many(1000)) == len(EXPECTED["groups"][group]["events"])
        assert channel.stats().channel_size == 0
        channel.checkpoint()
    with Channel(url_of(orders), create=False) as channel:
        assert (channel.stats().channel_size, channel.stats().last_id) == (0, EXPECTED["last"])


def test_verify_finds_nothing_wrong(orders: Path) -> None:
    report = verify(url_of(orders))
    assert report.healthy, report.findings
    assert report.channel == EXPECTED["channel"]
