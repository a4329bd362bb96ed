from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spillable_stream import Channel
from spillable_stream.errors import PutTooLargeError, StorageError
from spillable_stream.flow.interceptors.headers import Static
from spillable_stream.flow.processor import ChannelProcessor
from spillable_stream.flow.selectors import Multiplexing, Replicating, Selector
from spillable_stream.flow.sources.base import Status
from spillable_stream.flow.sources.numbered_source import InFlightBatch, NumberedSource
from spillable_stream.flow.sources.spooldir import SpoolDir
from spillable_stream.flow.sources.taildir import TailDir
from tests.support.events import peek
from tests.support.flow_batches import batch_of
from tests.support.flow_processors import KeptBatches

BODIES = [b"%d" % i for i in range(10)]


class Told(NumberedSource[InFlightBatch]):
    """Reads bodies, and fails where it is told to."""

    def __init__(self) -> None:
        super().__init__(4, 1000, 5000)
        self.at = 0
        self.failures: list[Exception] = []
        self.failures_of_return: list[Exception] = []

    def _next(self) -> InFlightBatch | None:
        if self.failures:
            raise self.failures.pop()
        found = BODIES[self.at : self.at + self._limit.events]
        self.at += len(found)
        return InFlightBatch(batch=batch_of(*found), note=b"%d" % self.at) if found else None

    def _go_back(self, held: InFlightBatch) -> None:
        if self.failures_of_return:
            raise self.failures_of_return.pop()
        self.at -= held.batch.num_rows


class Numbered(KeptBatches):
    """Keeps the numbers, and takes no batch of more events than it is told."""

    most = 100

    def process(self, events: pa.RecordBatch, *, number: int | None = None, note: bytes = b"") -> None:
        if events.num_rows > self.most:
            raise PutTooLargeError("too large")
        super().process(events, number=number, note=note)


def sizes(kept: KeptBatches) -> list[int]:
    return [batch.num_rows for batch in kept.batches[0]]


def test_a_batch_comes_with_its_number_until_it_is_stored_and_then_the_next() -> None:
    kept, source = Numbered(), Told()
    kept.full = {0}
    for _ in range(3):
        with pytest.raises(Exception, match="full"):
            source.poll(kept)
    kept.full = set()
    source.failures = [StorageError("the disk")]
    assert source.poll(kept) is Status.READY
    with pytest.raises(StorageError):
        source.poll(kept)
    while source.poll(kept) is Status.READY:
        assert not source.finished
    assert source.finished and kept.bodies() == BODIES
    assert (sizes(kept), kept.newest().number) == ([4, 4, 2], 3)  # type: ignore[union-attr]
    assert source.counters.event_received_count == source.counters.event_accepted_count == 10


def test_a_batch_that_is_too_large_is_read_again_in_smaller_ones_and_its_number_is_theirs() -> None:
    kept, source = Numbered(), Told()
    kept.most = 1
    while source.poll(kept) is Status.READY:
        pass
    assert kept.bodies() == BODIES and set(sizes(kept)) == {1}
    assert kept.newest().number == 10  # type: ignore[union-attr]
    assert source.counters.event_received_count == 10


def test_a_source_that_cannot_go_back_now_holds_the_batch_and_its_number() -> None:
    kept, source = Numbered(), Told()
    kept.most, source.failures_of_return = 2, [StorageError("the disk")]
    with pytest.raises(StorageError):
        source.poll(kept)
    while source.poll(kept) is Status.READY:
        pass
    assert kept.bodies() == BODIES and sizes(kept) == [2] * 5
    assert kept.newest().number == 5  # type: ignore[union-attr]
    assert source.counters.event_received_count == 10


@pytest.mark.parametrize(("is_repeated", "bodies"), [(True, [b"1", b"2"]), (False, [b"1"])])
def test_a_batch_that_cannot_be_divided_waits(is_repeated: bool, bodies: list[bytes]) -> None:
    kept, source = Numbered(), Told()
    kept.most = 0
    source._held = InFlightBatch(batch=batch_of(*bodies), note=b"", is_repeated=is_repeated)
    for _ in range(2):
        with pytest.raises(PutTooLargeError):
            source.poll(kept)
    assert source._held is not None


# ── restarts ────────────────────────────────────────────────────────────────────────────────────

ONLY_OPTIONAL: dict[str, Selector] = {
    "replicating": Replicating(optional=["may", "must"]),
    "multiplexing": Multiplexing("h", {"a": ["must"]}, optional={"b": ["may"]}),
}


@pytest.mark.parametrize("kind", ["spooldir", "taildir"])
@pytest.mark.parametrize("selector", list(ONLY_OPTIONAL))
def test_a_source_continues_after_the_batches_that_only_optional_channels_have(
    tmp_path: Path, kind: str, selector: str
) -> None:
    (tmp_path / "in").mkdir()
    for run in range(3):
        for i in range(2):
            (tmp_path / "in" / f"{run}-{i}").write_text(f"{run}-{i}\n")
        source: Any = SpoolDir(tmp_path / "in")
        if kind == "taildir":
            source = TailDir({"g": f"{tmp_path}/in/.*"}, position_file=tmp_path / "positions.json")
        with (
            Channel(tmp_path / "may") as may,
            Channel(tmp_path / "must") as must,
            Channel(tmp_path / "dead") as dead,
            ChannelProcessor(
                {"may": may, "must": must},
                [Static(key="h", value="b")],
                ONLY_OPTIONAL[selector],
                producer="p",
                dead_letter=dead,
            ) as processor,
        ):
            source.open(processor)
            while source.poll(processor) is Status.READY:
                pass
            source.close()
            found = sorted(peek(may))
        for left in [*(tmp_path / "in").glob("?-?"), *tmp_path.glob("positions.json*")]:
            left.unlink()  # only the channels know the last number now
    assert found == [b"%d-%d" % (run, i) for run in range(3) for i in range(2)]
