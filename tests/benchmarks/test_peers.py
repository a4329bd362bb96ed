"""The peers' adapters: first in, first out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import peer_rates
from benchmarks.peers.rows import POWER_CUT, SPEED, Row, lacks
from benchmarks.peers.store import Store

BODIES = [b"%d" % i for i in range(7)]
ROWS = [pytest.param(row, id=f"{row.name}-{number}") for number, row in enumerate(SPEED + POWER_CUT)]


def opened(row: Row, directory: Path) -> Store:
    if why := lacks(row):
        pytest.skip(why)
    disk, memory = directory / "disk", directory / "memory"
    disk.mkdir()
    memory.mkdir()
    return row.open(disk, memory)


@pytest.mark.parametrize("row", ROWS)
def test_what_was_put_comes_out_in_order(row: Row, tmp_path: Path) -> None:
    store = opened(row, tmp_path)
    try:
        store.put(BODIES[:1])
        store.put(BODIES[1:])
        assert store.take(1) == BODIES[:1]
        assert store.take(3) == BODIES[1:4]
        store.put(BODIES)
        assert list(store.read()) == BODIES[4:] + BODIES
    finally:
        store.close()


@pytest.mark.parametrize(("singly", "calls"), [(True, {100}), (False, {1_000})])
def test_a_product_without_transactions_can_be_stopped_between_its_calls(singly: bool, calls: set[int]) -> None:
    class Fake(Store):
        puts_singly = takes_singly = singly

        def __init__(self, *_: Path) -> None:
            self.asked: set[int] = set()

        def put(self, bodies: list[bytes]) -> int:
            self.asked.add(len(bodies))
            return 0

        def take(self, count: int) -> list[bytes]:
            self.asked.add(count)
            return [b""] * count

        def read(self) -> Iterator[bytes]:
            yield from ()

    store = Fake()
    peer_rates._rates(store, 1_000, 0.01)
    assert store.asked == calls


def test_every_product_has_a_safest_and_a_default_mode() -> None:
    for product in {row.product for row in SPEED}:
        modes = [row.mode for row in SPEED if row.product == product]
        assert any("default" in mode for mode in modes)
        assert any("safest" in mode for mode in modes)


def test_names_are_unique() -> None:
    assert len({row.name for row in SPEED}) == len(SPEED)
