"""Numbers of batches that the application chooses, so that it can send its input again."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spillable_stream import Channel, Producer
from spillable_stream.errors import OptionError, ProducerSequenceError, SendFailedError
from spillable_stream.producer.future import SendFuture
from tests.producer.conftest import MakeProducer
from tests.support.events import peek
from tests.support.fake_targets import PATIENCE_SECONDS, FakeTarget


def test_a_batch_is_committed_under_its_number_by_itself(produce: MakeProducer, target: FakeTarget) -> None:
    producer = produce(producer_id="tail")
    producer.send_many([b"a", b"b"], sequence=100)
    headers = pa.array([[]], target.schema.field("headers").type)
    producer.send_batch(pa.record_batch([headers, pa.array([b"c"])], schema=target.schema), sequence=250)
    producer.flush(PATIENCE_SECONDS)
    assert target.attempts == [(100, [b"a", b"b"]), (250, [b"c"])]
    assert producer.last_sequence() == 250


def test_input_that_is_sent_again_is_stored_once(path: Path) -> None:
    with Channel(path) as channel:
        for stored in (0, 30, 30):
            with Producer(channel, producer_id="tail") as producer:
                assert producer.last_sequence() == stored
                found = [producer.send_many([b"%d" % i], sequence=10 * i) for i in range(1, 4)]
            assert [f.result().write_order_id for f in found] == [1, 2, 3]
        assert peek(channel) == [b"1", b"2", b"3"]
        assert channel.stats().producers == {"tail": 30}


def test_batches_are_committed_one_after_the_other_in_their_order(produce: MakeProducer, target: FakeTarget) -> None:
    producer = produce(producer_id="tail", io_thread_count=4)
    target.hold()
    for i in range(1, 20):
        producer.send_many([b"%d" % i], sequence=i)
    target.wait_for_attempts(1)
    assert [s for s, _ in target.attempts] == [1]
    target.let_go()
    producer.flush(PATIENCE_SECONDS)
    assert [s for s, _ in target.attempts] == list(range(1, 20))


def test_nothing_is_committed_after_a_batch_that_failed_until_that_is_sent_again(
    produce: MakeProducer, target: FakeTarget
) -> None:
    target.fail(None, ValueError("bad"))
    target.hold()
    producer = produce(producer_id="tail")
    futures = [producer.send_many([b"%d" % i], sequence=i) for i in (1, 2, 3, 4)]
    target.let_go()
    assert futures[0].result(PATIENCE_SECONDS).successful
    for future in futures[1:]:
        error = future.exception(PATIENCE_SECONDS)
        assert isinstance(error, SendFailedError) and "bad" in str(error)
    assert producer.last_sequence() == 1
    with pytest.raises(ProducerSequenceError, match="must not be committed before batch 2, which failed; send that"):
        producer.send_many([b"5"], sequence=5)
    for i in (2, 3, 4, 5):
        producer.send_many([b"%d" % i], sequence=i)
    producer.flush(PATIENCE_SECONDS)
    assert target.bodies == [b"1", b"2", b"3", b"4", b"5"]


def test_numbers_are_chosen_by_one(produce: MakeProducer) -> None:
    mine = produce(FakeTarget(), producer_id="tail")
    mine.send_many([b"x"], sequence=1)
    for send in (lambda: mine.send(b"y"), lambda: mine.send_many([b"y"])):
        with pytest.raises(OptionError, match="numbered by the application"):
            send()
    its = produce(FakeTarget(), producer_id="tail")
    its.send(b"x")
    with pytest.raises(OptionError, match="numbered by the producer"):
        its.send_many([b"y"], sequence=2)


@pytest.mark.parametrize("sequence", [0, -1, 1.5, "7", True, 2**63])
def test_a_number_is_an_integer_of_at_least_1(produce: MakeProducer, sequence: object) -> None:
    with pytest.raises(OptionError, match="an integer of at least 1"):
        produce(producer_id="tail").send_many([b"x"], sequence=sequence)  # type: ignore[arg-type]


def test_a_number_needs_a_name_that_lasts(produce: MakeProducer) -> None:
    with pytest.raises(OptionError, match="without a producer_id that outlives this producer"):
        produce().send_many([b"x"], sequence=1)


def test_a_producer_that_comes_back_continues_after_its_last_number(path: Path) -> None:
    for i in range(3):
        with Producer(path, producer_id="me", batch_count_threshold=1) as producer:
            producer.send(b"%d a" % i)
            producer.send(b"%d b" % i)
    with Channel(path) as channel:
        assert len(peek(channel)) == 6
        assert channel.stats().producers == {"me": 6}


def test_a_batch_takes_the_numbers_since_the_last_that_was_stored(produce: MakeProducer, target: FakeTarget) -> None:
    """So however the application counts, bytes or lines, there are no gaps to remember."""
    target.fail(None, ValueError("bad"))
    producer = produce(producer_id="tail", dead_letter=FakeTarget(name="dead"))
    for number in (100, 250, 300, 200):
        producer.send_many([b"%d" % number], sequence=number)
    producer.flush(PATIENCE_SECONDS)
    assert target.taken == [(1, 100), (101, 250), (101, 300), (200, 200)]


# ── what is sent again, or out of order, or is other input ──────────────────────────────────────


def send(channel: Channel, *batches: tuple[int, list[bytes]], dead: Path | None = None) -> list[Any]:
    """Send batches by their numbers as one run of a program, and return the IDs, or the error, of each."""
    found: list[Any] = []
    with Producer(channel, producer_id="tail", dead_letter=dead) as producer:
        for sequence, bodies in batches:
            try:
                found.append(producer.send_many(bodies, sequence=sequence))
            except ProducerSequenceError as e:
                found.append(str(e))
    return [f if isinstance(f, str) else _outcome(f) for f in found]


def _outcome(future: SendFuture) -> Any:
    error = future.exception(PATIENCE_SECONDS)
    return str(error) if error else (future.result().first_id, future.result().last_id)


def lines(first: int, last: int) -> list[bytes]:
    return [b"%d" % i for i in range(first, last + 1)]


def test_input_of_long_ago_is_refused_since_nobody_knows_its_batches(path: Path) -> None:
    with Channel(path) as channel:
        batches = [(1000 * i, [b"%d" % i]) for i in range(1, 200)]
        send(channel, *batches)
        (refused, blocked) = send(channel, *batches[:2])
        assert "not one of the latest 64 that are stored" in refused and "batch 1000" in blocked
        assert send(channel, *batches[-64:]) == [(i, i) for i in range(136, 200)]
        assert channel.stats().channel_size == 199


def test_a_number_after_a_higher_one_is_refused(path: Path) -> None:
    with Channel(path) as channel:
        (stored, refused, blocked) = send(channel, (20, lines(1, 20)), (10, lines(1, 10)), (30, lines(21, 30)))
        assert stored == (1, 20)
        assert "batch 10 of the producer 'tail' comes after batch 20" in refused
        assert "must not be committed before batch 10" in blocked or "batch 10 before it failed" in blocked
        assert peek(channel) == lines(1, 20)
        assert send(channel, (30, lines(21, 30))) == [(21, 30)]


def test_input_that_is_divided_otherwise_when_it_is_sent_again_is_refused(path: Path) -> None:
    with Channel(path) as channel:
        send(channel, (10, lines(1, 10)), (20, lines(11, 20)))
        (refused, blocked) = send(channel, (15, lines(1, 15)), (30, lines(16, 30)))
        assert "divide its input as before" in refused and "batch 15" in blocked
        (merged,) = send(channel, (20, lines(1, 20)))
        assert "batch 20 of the producer 'tail' is stored with other events, as the write-order IDs 11 to 20" in merged
        assert peek(channel) == lines(1, 20)


def test_other_input_under_a_number_is_refused(path: Path) -> None:
    with Channel(path) as channel:
        send(channel, (10, [b"a"]))
        (refused,) = send(channel, (10, [b"b"]))
        assert "with other events" in refused
        assert peek(channel) == [b"a"]


def test_rows_and_arrow_batches_that_are_sent_again_are_known(path: Path) -> None:
    schema = pa.schema([("n", pa.int64()), ("of", pa.list_(pa.string()))])
    rows = [{"n": i, "of": [f"{i}", None]} for i in range(100)]
    table = pa.Table.from_pylist(rows * 2, schema=schema)
    with Channel(path, schema=schema) as channel:
        for _ in range(2):
            with Producer(channel, producer_id="tail") as producer:
                found = [
                    producer.send_many(rows, sequence=1),
                    producer.send_batch(table.slice(50, 100), sequence=2),
                    producer.send_batch(table.slice(50, 100).take(list(range(100))), sequence=2),
                ]
            assert [f.result().first_id for f in found] == [1, 101, 101]
        assert channel.stats().channel_size == 200


def send_rows(channel: Channel, rows: list[dict[str, Any]] | pa.Table) -> Any:
    """Send rows as batch 1 in one run of a program, and return their IDs, or the error."""
    with Producer(channel, producer_id="tail") as producer:
        send_all = producer.send_many if isinstance(rows, list) else producer.send_batch
        return _outcome(send_all(rows, sequence=1))


@pytest.mark.parametrize("added", [pa.string(), pa.struct([("x", pa.int64())]), pa.list_(pa.int8())], ids=str)
def test_a_batch_that_is_sent_again_after_columns_were_added_is_known(path: Path, added: pa.DataType) -> None:
    schema = pa.schema([("n", pa.int64()), ("m", pa.int64())])
    rows = [{"n": 1, "m": None}, {"n": 2, "m": None}]
    with Channel(path, schema=schema) as channel:
        assert send_rows(channel, rows) == (1, 2)
        channel.evolve(schema.append(pa.field("added", added)))
        assert send_rows(channel, rows) == send_rows(channel, pa.Table.from_pylist(rows, schema)) == (1, 2)
        assert channel.stats().channel_size == 2


def test_other_values_in_an_added_column_are_other_events(path: Path) -> None:
    with Channel(path, schema=pa.schema([("n", pa.int64())])) as channel:
        channel.evolve(pa.schema([("n", pa.int64()), ("added", pa.string())]))
        row = {"n": 1, "added": "x"}
        assert send_rows(channel, [row]) == (1, 1)
        channel.evolve(pa.schema([("n", pa.int64()), ("added", pa.string()), ("later", pa.string())]))
        assert send_rows(channel, [row]) == (1, 1)
        for other in ({"n": 1}, {"n": 1, "added": "y"}, {**row, "later": "x"}):
            assert "with other events" in send_rows(channel, [other])


def test_an_id_that_numbered_by_itself_is_not_numbered_by_the_application_later(path: Path) -> None:
    with Channel(path) as channel:
        with Producer(channel, producer_id="tail", batch_count_threshold=1) as producer:
            for body in lines(1, 50):
                producer.send(body)
        for sequence in (1, 1_000):
            (refused,) = send(channel, (sequence, [b"x"]))
            assert "are numbered by the producer itself in this channel, and the application numbered" in refused
        assert sorted(peek(channel), key=int) == lines(1, 50)


def test_an_id_that_the_application_numbered_does_not_number_by_itself_later(path: Path) -> None:
    with Channel(path) as channel:
        send(channel, (10, [b"x"]))
        with Producer(channel, producer_id="tail") as producer:
            error = producer.send(b"y").exception(PATIENCE_SECONDS)
        assert "are numbered by the application in this channel" in str(error)
        assert peek(channel) == [b"x"]


def test_all_that_failed_is_sent_again_before_anything_after_it(produce: MakeProducer, target: FakeTarget) -> None:
    target.fail(ValueError("bad"))
    target.hold()
    producer = produce(producer_id="tail")
    futures = [producer.send_many([b"%d" % i], sequence=i) for i in (10, 20, 30)]
    target.let_go()
    assert all(f.exception(PATIENCE_SECONDS) for f in futures)
    producer.send_many([b"5"], sequence=5)  # before the one that failed: another division of what is not stored
    for first, then in ((10, 20), (20, 30), (30, 40)):
        with pytest.raises(ProducerSequenceError, match=f"before batch {first}, which failed"):
            producer.send_many([b"x"], sequence=then)
        producer.send_many([b"%d" % first], sequence=first)
    producer.send_many([b"40"], sequence=40)
    producer.flush(PATIENCE_SECONDS)
    assert target.bodies == [b"5", b"10", b"20", b"30", b"40"]


# ── several channels ────────────────────────────────────────────────────────────────────────────


def test_a_number_goes_to_no_channel_in_turn(produce: MakeProducer) -> None:
    targets = [FakeTarget(name="a"), FakeTarget(name="b")]
    producer = produce(targets, producer_id="tail")
    for use in (lambda: producer.send_many([b"x"], sequence=1), producer.last_sequence):
        with pytest.raises(OptionError, match="each has numbers of its own: give a send with a sequence"):
            use()
    for i in (1, 2, 3):
        producer.send_many([b"%d" % i], sequence=i, key="k")
    producer.flush(PATIENCE_SECONDS)
    assert sorted(t.bodies for t in targets) == [[], [b"1", b"2", b"3"]]
    assert producer.last_sequence("k") == 3


def test_two_keys_of_one_shard_have_one_sequence_of_numbers(path: Path) -> None:
    with Channel(path) as channel, Producer([channel], producer_id="tail") as producer:
        first = producer.send_many([b"a"], sequence=10, key="a")
        second = producer.send_many([b"b"], sequence=10, key="b")
        assert first.result(PATIENCE_SECONDS).successful
        assert "with other events" in str(second.exception(PATIENCE_SECONDS))


def _ways(path: Path, link: Path) -> Any:
    """Return a mapping, and a list, of the ways to one channel."""
    link.symlink_to(path)
    return [path, str(link), Channel(path), Channel(link)]


@pytest.mark.parametrize("named", ["me", None])
@pytest.mark.parametrize("shape", ["mapping", "list"])
def test_one_channel_has_one_sequence_however_many_keys_and_paths_lead_to_it(
    path: Path, tmp_path: Path, shape: str, named: str | None
) -> None:
    Channel(path).close()
    ways = _ways(path, tmp_path / "link")
    keys = [f"key {i}" for i in range(4)]
    target = dict(zip(keys, ways, strict=True)) if shape == "mapping" else ways
    with Producer(target, producer_id=named, batch_count_threshold=1) as producer:
        found = [producer.send(b"%d" % i, key=keys[i % 4]) for i in range(40)]
    assert sorted(f.result().first_id for f in found) == list(range(1, 41))
    for way in ways[2:]:
        assert way.stats().channel_size == 40  # it was given: it stays open
        way.close()
    with Channel(path) as channel:
        assert len(peek(channel)) == 40


def test_one_target_under_two_keys_is_claimed_and_closed_once(target: FakeTarget) -> None:
    with Producer({"a": target, "b": target}, producer_id="me", io_thread_count=1, linger_ms=0) as producer:
        producer.send(b"a", key="a").result(PATIENCE_SECONDS)
        producer.send(b"b", key="b").result(PATIENCE_SECONDS)
    assert (target.bodies, target.closed) == ([b"a", b"b"], 1)


def test_a_copy_of_a_channel_is_another_channel(path: Path, tmp_path: Path) -> None:
    Channel(path).close()
    shutil.copytree(path, tmp_path / "copy")
    with Producer({"original": path, "copy": tmp_path / "copy"}) as producer:
        for key in ("original", "copy"):
            producer.send(key.encode(), key=key).result(PATIENCE_SECONDS)
    for place, body in ((path, b"original"), (tmp_path / "copy", b"copy")):
        with Channel(place) as channel:
            assert peek(channel) == [body]


def test_an_interrupt_of_what_is_sent_again_lets_nothing_pass_it(produce: MakeProducer, target: FakeTarget) -> None:
    target.fail(ValueError("bad"))
    producer = produce(producer_id="tail")
    assert producer.send_many([b"10"], sequence=10).exception(PATIENCE_SECONDS)
    destination = producer._only
    assert destination is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(producer._pipeline.accumulator, "_ship_batch", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            producer.send_many([b"10"], sequence=10)
    with pytest.raises(ProducerSequenceError, match="before batch 10, which failed"):
        producer.send_many([b"20"], sequence=20)


def _interrupted(batch: object) -> None:
    raise KeyboardInterrupt
