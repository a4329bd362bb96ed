"""Loads that can be run again."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream import Channel, OptionError, ProducerSequenceError, Progress, progress
from spillable_stream.channel.put_transaction import PutTransaction
from spillable_stream.cli import numbered_load
from spillable_stream.cli.load_input import Format, open_input
from spillable_stream.cli.numbered_load import Load, RowDigest, load_name
from spillable_stream.errors import ChannelFullError, CommitOutcomeUnknownError
from tests.support.events import peek


def load(channel: Channel, file: Path, name: str = "load-x") -> Load:
    source = open_input(str(file), Format.LINES, None, as_rows=False)
    return Load(channel, source, lambda batch: batch, name)


def test_a_digest_does_not_depend_on_how_rows_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbered_load, "_UNIT_ROWS", 7)
    rng = random.Random(5)
    table = pa.table({"n": list(range(100)), "s": [f"row {i}" for i in range(100)]})
    seen: dict[int, set[int]] = {}
    for _ in range(20):
        digest, at = RowDigest(), 0
        while at < 100:
            rows = rng.randint(1, 30)
            digest.add(table.slice(at, rows).combine_chunks().to_batches()[0])
            at = min(100, at + rows)
            seen.setdefault(at, set()).add(digest.value())
    assert all(len(values) == 1 for values in seen.values()) and len(seen) > 50
    assert len(set.union(*seen.values())) == len(seen), "and every prefix has one of its own"


def test_a_load_that_stops_anywhere_is_continued_whatever_the_transactions_are(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_EVERY_SECONDS", 0)
    file, lines = tmp_path / "f", [b"%d" % i for i in range(1000)]
    file.write_bytes(b"\n".join(lines) + b"\n")
    stored = 0
    for capacity in (7, 300, 1, 50, 10_000):
        with Channel(path, minimum_required_space=0, transaction_capacity=capacity) as channel:
            work = load(channel, file)

            def stop(now: Progress, work: Load = work) -> None:
                assert (now.what, now.unit, now.total) == ("load", "bytes", file.stat().st_size)
                if work.stored >= 100:
                    raise KeyboardInterrupt

            if capacity < 10_000:
                with pytest.raises(KeyboardInterrupt):
                    work.run(stop)
            else:
                assert work.run().stored == 1000 - stored
            assert work.skipped == stored
            stored += work.stored
    with Channel(path, transaction_capacity=10_000) as channel:
        assert peek(channel) == lines


@pytest.mark.parametrize(
    ("fault", "unsettled"), [(CommitOutcomeUnknownError("?"), {"unsettled": 2}), (ChannelFullError("full"), {})]
)
def test_a_report_says_what_may_be_stored_where_the_outcome_of_a_commit_is_not_known(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception, unsettled: dict[str, int]
) -> None:
    def fails(_: PutTransaction) -> None:
        raise fault

    (tmp_path / "f").write_bytes(b"a\nb\n")
    with Channel(path, minimum_required_space=0) as channel:
        work = load(channel, tmp_path / "f")
        with monkeypatch.context() as m, pytest.raises(type(fault)):
            m.setattr(PutTransaction, "commit", fails)
            work.run()
        known = {"stored": 0, "skipped": 0, "first_id": 0, "last_id": 0, "name": "load-x"}
        assert work.report().to_json() == {**known, **unsettled}


def test_rows_are_skipped_in_every_report_that_an_earlier_run_had_stored(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "f"
    with Channel(path, minimum_required_space=0) as channel:
        file.write_bytes(b"a\nb\nc\n")
        load(channel, file).run()
        file.write_bytes(b"a\n")
        work = load(channel, file)
        with pytest.raises(ProducerSequenceError):
            work.run()
        assert work.report().skipped == work.so_far().skipped == 3


def test_a_file_that_grew_is_continued(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "f"
    with Channel(path, minimum_required_space=0) as channel:
        file.write_bytes(b"a\nb")
        assert load(channel, file).run().stored == 2
        file.write_bytes(b"a\nb\nc\n")
        report = load(channel, file).run()
        assert (report.stored, report.skipped, report.first_id, report.last_id) == (1, 2, 3, 3)
        assert peek(channel) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("changed", [b"a\nX\nc\n", b"a\n", b"", b"b\na\nc\n", b"a\nb2"])
def test_a_file_that_changed_is_refused_and_nothing_is_stored(path: Path, tmp_path: Path, changed: bytes) -> None:
    file = tmp_path / "f"
    with Channel(path, minimum_required_space=0) as channel:
        file.write_bytes(b"a\nb")
        load(channel, file).run()
        file.write_bytes(changed)
        with pytest.raises(ProducerSequenceError, match=r"has changed since .* stored 2 rows of it: .*another --name"):
            load(channel, file).run()
        assert peek(channel) == [b"a", b"b"]
        assert load(channel, file, "load-y").run().stored == len(changed.splitlines())


def test_large_rows_are_divided_by_their_size(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"\n".join(b"%d" % i * 500_000 for i in range(30)))
    with Channel(path, minimum_required_space=0) as channel:
        load(channel, file).run()
        assert channel.stats().counters.event_put_success_count == 30
        assert len({batch.num_rows for batch in channel.read(max_bytes=1)}) > 0
        assert max(b.nbytes for b in channel.read(max_bytes=1)) < 6 << 20


def test_a_load_without_a_number_is_stored_again(path: Path, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a\n")
    with Channel(path, minimum_required_space=0) as channel:
        for _ in range(2):
            assert load(channel, tmp_path / "f", "").run().stored == 1
        assert peek(channel) == [b"a", b"a"]


def test_a_file_is_known_by_where_it_is_and_a_name_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "f")
    assert (
        load_name("f", None) == load_name(str(tmp_path / "f"), None) == load_name("link", None) != load_name("g", None)
    )
    assert load_name("-", "june") == "load-june"
    for wrong in ("a/b", "\udcc3", "", "x" * 124):
        with pytest.raises(OptionError, match=r"^--name '.* can't name a load: .* must be letters, digits"):
            load_name("-", wrong)
