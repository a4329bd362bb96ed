from pathlib import Path

import pytest

import spillable_stream as ss
from spillable_stream.engine.timestamp_index import first_id_since
from tests.support.fake_files import FaultyFileSystem


def put_times(channel: ss.Channel, *counts: int, body: bytes = b"x") -> list[int]:
    """Put transactions of so many events and return when each event was committed, in microseconds."""
    for count in counts:
        with channel.put_transaction() as tx:
            tx.put_many([ss.Event(body)] * count)
    with channel.take_transaction("clock") as tx:
        times = [round(e.timestamp * 1e6) for e in tx.take_many(sum(counts))]
        tx.rollback()
    return times


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_inline_bytes": 0},
        {"memory_capacity": 1_000},
        {"memory_capacity": 20, "overflow_timeout": 0},
    ],
    ids=["log", "segments", "memory", "spilled"],
)
def test_first_event_since_every_time_is_found(tmp_path: Path, options: dict[str, int]) -> None:
    with ss.Channel(tmp_path / "c", minimum_required_space=0, **options) as channel:
        times = put_times(channel, 3, 1, 20, 2, 5)
        for wanted in {t + d for t in times for d in (-1, 0, 1)}:
            expected = next((i for i, t in enumerate(times, 1) if t >= wanted), len(times) + 1)
            assert first_id_since(channel.engine(), wanted) == expected


def test_first_event_is_found_in_the_middle_of_many_blocks(tmp_path: Path) -> None:
    with ss.Channel(tmp_path / "c", minimum_required_space=0) as channel:
        times = put_times(channel, *[10] * 40, body=b"x" * 5_000)
        assert len(channel.engine().follow().blocks) > 3
        for at in range(0, len(times), 37):
            assert first_id_since(channel.engine(), times[at]) == at // 10 * 10 + 1


def test_what_was_taken_is_not_found(tmp_path: Path) -> None:
    with ss.Channel(tmp_path / "c", minimum_required_space=0) as channel:
        put_times(channel, 5)
        channel.drop_group("clock")
        with channel.take_transaction() as tx:
            tx.take_many(3)
        assert first_id_since(channel.engine(), 0) == 4
        with channel.take_transaction() as tx:
            tx.take_many(3)
        assert first_id_since(channel.engine(), 0) == 6


def test_time_of_an_event_that_has_left_finds_the_first_that_is_there(tmp_path: Path) -> None:
    with ss.Channel(tmp_path / "c", minimum_required_space=0) as channel:
        times = put_times(channel, *[1] * 10)
        channel.drop_group("clock")
        with channel.take_transaction() as tx:
            tx.take_many(5)
        assert [first_id_since(channel.engine(), t) for t in times] == [6] * 6 + [7, 8, 9, 10]


def test_empty_channel_begins_with_its_next_event(tmp_path: Path) -> None:
    with ss.Channel(tmp_path / "c") as channel:
        assert first_id_since(channel.engine(), 0) == 1
        assert first_id_since(channel.engine(), 1 << 62) == 1


def test_kept_events_are_found(tmp_path: Path) -> None:
    with ss.Channel(tmp_path / "c", retention_ms=3_600_000, minimum_required_space=0) as channel:
        times = put_times(channel, *[1] * 10)
        with channel.take_transaction("clock") as tx:
            tx.take_many(5)
        assert channel.stats().first_id == 6
        assert [first_id_since(channel.engine(), t) for t in times] == list(range(1, 11))
        assert first_id_since(channel.engine(), 0) == 1


def test_search_looks_at_a_few_of_many_blocks_and_reads_one(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    with ss.Channel(tmp_path / "c", fs=fs, retention_ms=3_600_000, minimum_required_space=0) as channel:
        times = put_times(channel, *[10] * 40, body=b"x" * 100_000)
        blocks = channel.engine().follow().blocks
        assert len(blocks) > 30
        before = fs.read_bytes
        assert first_id_since(channel.engine(), times[203]) == 201
        assert fs.read_bytes - before < 5 << 20
        assert blocks.around(times[203])[0] is not None
