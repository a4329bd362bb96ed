"""Several processes on one channel at once; nobody is killed (for that see tests/crash)."""

from __future__ import annotations

from pathlib import Path

from tests.lab.harness import Harness
from tests.lab.ledger import Outcome


def test_producers_and_a_consumer_of_other_processes_share_a_channel(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    workers = [harness.start("put", 60), harness.start("put", 60), harness.start("put", 60), harness.start("take", 60)]
    assert [w.wait() for w in workers] == [0] * 4
    assert harness.verdict() == []
    assert harness.errors() == ""
    outcome = Outcome.read(tmp_path.glob("*.ledger"))
    assert outcome.acknowledged.keys() == outcome.started.keys() and len(outcome.acknowledged) > 140
    assert len(outcome.taken) > 100 and not outcome.in_doubt
