"""Dead letters go back, each once."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

import spillable_stream as ss
from spillable_stream import Channel, ChannelFullError, Event, GroupOwnedError, OptionError, SchemaError
from spillable_stream.channel.consumer import Consumer
from spillable_stream.channel.put_transaction import PutTransaction
from spillable_stream.state.ranges import Range
from spillable_stream.workers.letters import ARROW_STREAM, arrow_stream
from spillable_stream.workers.transfer import Transfer
from tests.support.events import ids, peek, put
from tests.support.fake_targets import FakeTarget


@pytest.fixture
def channel(tmp_path: Path) -> Channel:
    return Channel(tmp_path / "c", minimum_required_space=0)


@pytest.fixture
def dead(tmp_path: Path) -> Channel:
    dead = Channel(tmp_path / "dead", minimum_required_space=0)
    with dead.put_transaction() as tx:
        tx.put_many(Event(b"%d" % i, {"k": "v", "dead_letter_group": "g"}) for i in range(2500))
    return dead


def test_all_dead_letters_go_back_once_in_order_without_what_was_added(channel: Channel, dead: Channel) -> None:
    assert ss.dead_letters.replay(dead, channel) == 2500
    with channel.take_transaction() as tx:
        events = tx.take_many(10_000)
    assert [e.body for e in events] == [b"%d" % i for i in range(2500)]
    assert {tuple(e.headers.items()) for e in events} == {(("k", "v"),)}
    assert ss.dead_letters.replay(dead, channel) == 0


def test_paths_are_opened_and_closed(tmp_path: Path, channel: Channel, dead: Channel) -> None:
    channel.close()
    dead.close()
    assert ss.dead_letters.replay(tmp_path / "dead", str(tmp_path / "c")) == 2500
    with pytest.raises(ss.NotAChannelError):
        ss.dead_letters.replay(tmp_path / "dead", tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("stored", [False, True])
def test_a_replay_that_dies_is_continued_by_the_next_one(
    channel: Channel, dead: Channel, stored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies right before or right after its second put."""
    commit, calls = PutTransaction.commit, []

    class Dead(BaseException):
        pass

    def dies(tx: PutTransaction) -> None:
        calls.append(tx)
        if len(calls) == 2 and not stored:
            raise Dead
        commit(tx)
        if len(calls) == 2:
            raise Dead

    monkeypatch.setattr(PutTransaction, "commit", dies)
    with pytest.raises(Dead):
        ss.dead_letters.replay(dead, channel)
    monkeypatch.setattr(PutTransaction, "commit", commit)
    ss.dead_letters.replay(dead, channel)
    assert peek(channel) == [b"%d" % i for i in range(2500)]


def test_a_channel_that_gets_full_has_what_fitted_and_the_rest_follows(tmp_path: Path, dead: Channel) -> None:
    with Channel(tmp_path / "s", overflow_capacity=2000, keep_alive=0, minimum_required_space=0) as channel:
        with pytest.raises(ChannelFullError):
            ss.dead_letters.replay(dead, channel)
        with channel.take_transaction() as tx:
            assert len(tx.take_many(3000)) == 2000
        assert ss.dead_letters.replay(dead, channel) == 500


def test_what_cannot_be_replayed_is_refused_and_stays(
    tmp_path: Path, dead: Channel, channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ss.dead_letters, "Consumer", partial(Consumer, owner_timeout_seconds=0))
    with Channel(tmp_path / "t", schema=pa.schema([("n", pa.int64())]), minimum_required_space=0) as typed:
        with pytest.raises(SchemaError, match="the dead letter 1 is an event"):
            ss.dead_letters.replay(dead, typed)
        with pytest.raises(SchemaError, match="must be an event channel"):
            ss.dead_letters.replay(typed, dead)
    with pytest.raises(OptionError, match=r"is .* itself"):
        ss.dead_letters.replay(dead, tmp_path / "dead")
    with Channel(tmp_path / "dead") as reader, reader.take_transaction() as tx:
        tx.take()
        tx.rollback()
        with pytest.raises(GroupOwnedError):
            ss.dead_letters.replay(dead, channel)
    assert dead.stats().groups["default"].lag == 2500 and peek(channel) == []


def test_another_group_replays_for_itself(channel: Channel, dead: Channel) -> None:
    put(dead, b"x")
    assert ss.dead_letters.replay(dead, channel) == 2501
    assert ss.dead_letters.replay(dead, channel, group="again") == 0, "the first group let the events go"


def test_an_event_that_is_an_arrow_stream_itself_is_put_back_as_an_event(channel: Channel, tmp_path: Path) -> None:
    given = Event(b"a stream of mine", {"content_type": ARROW_STREAM})

    def give_up(event: Event) -> None:
        raise ss.DeadLetter

    target = FakeTarget()
    target.fail(ValueError("never"))
    with channel.put_transaction() as tx:
        tx.put(given)
    with Channel(tmp_path / "letters", minimum_required_space=0) as dead:
        channel.worker("default", give_up, dead_letter=dead).run(until_empty=True)
        with ss.Producer(target, dead_letter=dead, context_headers=False) as producer:
            producer.send(given)
        assert ss.dead_letters.replay(dead, channel) == 2
    with channel.take_transaction() as tx:
        assert [(e.body, e.headers) for e in tx.take_many(10)] == [(given.body, given.headers)] * 2


def test_a_letter_that_does_not_fit_is_the_next_one_and_those_before_it_are_put_back(
    channel: Channel, tmp_path: Path
) -> None:
    rows = pa.record_batch({"n": pa.array([1], pa.int64())})
    a_row = Event(arrow_stream(rows), {"content_type": ARROW_STREAM})
    with Channel(tmp_path / "mixed", minimum_required_space=0) as dead:
        with dead.put_transaction() as tx:
            tx.put_many([Event(b"0"), Event(b"1"), Event(b"2"), Event(b"3"), Event(b"4"), a_row, Event(b"6")])
        for _ in range(2):
            with pytest.raises(SchemaError, match="the dead letter 6 holds rows"):
                ss.dead_letters.replay(dead, channel)
        assert (peek(channel), ids(dead)) == ([b"0", b"1", b"2", b"3", b"4"], [6, 7])


def test_rows_are_put_back_that_came_in_columns_of_several_types_which_all_fit(tmp_path: Path) -> None:
    """As from two channels, or from before a column was added."""
    several = pa.array([1], pa.int32()), pa.array([2], pa.int64())
    with Channel(tmp_path / "dead", minimum_required_space=0) as dead:
        with dead.put_transaction() as tx:
            for values in several:
                rows = pa.record_batch({"n": values})
                tx.put(Event(arrow_stream(rows), {"content_type": ARROW_STREAM}))
        schema = pa.schema([("n", pa.int64()), ("s", pa.string())])
        with Channel(tmp_path / "t", schema=schema, minimum_required_space=0) as typed:
            assert ss.dead_letters.replay(dead, typed) == 2
            with typed.take_transaction() as tx:
                assert tx.take_many(5) == [{"n": 1, "s": None}, {"n": 2, "s": None}]


def test_rows_that_do_not_fit_are_refused_by_a_schema_error(tmp_path: Path) -> None:
    with Channel(tmp_path / "dead", minimum_required_space=0) as dead:
        with dead.put_transaction() as tx:
            for column in ({"n": pa.array([1], pa.int64())}, {"n": pa.array(["x"])}, {"other": pa.array([1])}):
                tx.put(Event(arrow_stream(pa.record_batch(column)), {"content_type": ARROW_STREAM}))
        with Channel(tmp_path / "t", schema=pa.schema([("n", pa.int64())]), minimum_required_space=0) as typed:
            with pytest.raises(SchemaError, match=r"the dead letter 2: the column 'n' has another type"):
                ss.dead_letters.replay(dead, typed)
            assert typed.stats().channel_size == 1


def test_letters_that_come_during_a_replay_are_left_to_the_next_one(
    channel: Channel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that is still not mended puts them aside again: the replay would never end."""
    with Channel(tmp_path / "few", minimum_required_space=0) as few:
        put(few, b"0", b"1")
        store = Transfer.store

        def and_fail_again(transfer: Transfer, ranges: list[Range], batch: pa.RecordBatch) -> int:
            if few.stats().last_id < 100:
                put(few, b"again")
            return store(transfer, ranges, batch)

        monkeypatch.setattr(Transfer, "store", and_fail_again)
        assert ss.dead_letters.replay(few, channel) == 2
        assert peek(few) == [b"again"]
