"""What a group's owner has claimed: given to nobody else, until it is committed, given back or voided."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import count

import pytest

from spillable_stream import Channel, ChannelClosedError, Event, TransactionStateError
from spillable_stream.channel.claims import Claims
from spillable_stream.state.ranges import Range
from tests.support.events import numbered, put
from tests.support.expiry import WallClock
from tests.support.interrupts import Interrupts

Open = Callable[..., Channel]


@pytest.fixture
def channel(open_channel: Open) -> Channel:
    channel = open_channel()
    put(channel, *numbered(0, 10))
    return channel


@pytest.fixture
def claims(channel: Channel) -> Claims:
    return channel.consumer("g").claims


def claim(claims: Claims, limit: int, most_judged: int, moved_at: int | None) -> tuple[list[Range], list[Range]]:
    claimed: list[Range] = []
    expired = claims.claim(limit, most_judged, moved_at, claimed)
    return claimed, expired


def free(channel: Channel, claims: Claims) -> list[Range]:
    with channel.engine().snapshot() as state:
        return list(claims.free(state))


def test_what_is_claimed_is_not_free_until_it_is_released(channel: Channel, claims: Claims) -> None:
    assert claim(claims, 4, 4, None) == ([(1, 4)], [])
    assert free(channel, claims) == [(5, 10)]
    claims.release([(2, 3)])
    assert free(channel, claims) == [(2, 3), (5, 10)]
    assert claim(claims, 3, 3, 0) == ([(2, 3), (5, 5)], [])


def test_what_was_claimed_before_a_move_is_void_and_cannot_be_released(channel: Channel, claims: Claims) -> None:
    claim(claims, 4, 4, None)
    claims.void(7)
    assert (claims.moved_at, free(channel, claims)) == (7, [(1, 10)])
    with pytest.raises(TransactionStateError, match="was moved by a seek since this transaction took from it"):
        claim(claims, 1, 1, 0)
    assert claim(claims, 4, 4, 7) == ([(1, 4)], [])
    claims.release([(1, 4)], 0)
    assert free(channel, claims) == [(5, 10)], "they are of another transaction by now"


def test_a_move_that_failed_voids_nothing(channel: Channel, claims: Claims) -> None:
    claim(claims, 4, 4, None)
    before = claims.copy()
    claims.void(7)
    claims.restore(before)
    assert (claims.moved_at, free(channel, claims)) == (0, [(5, 10)])


def test_claims_are_given_back_once(channel: Channel, claims: Claims) -> None:
    mine, _ = claim(claims, 4, 4, None)
    claims.give_back(mine, 0)
    others, _ = claim(claims, 2, 2, None)
    claims.give_back(mine, 0)
    assert (mine, others, free(channel, claims)) == ([], [(1, 2)], [(3, 10)])
    claims.void(7)
    claim(claims, 2, 2, 7)
    claims.give_back(others, 0)
    assert free(channel, claims) == [(3, 10)], "a move has given them back, and they are of another transaction by now"


def test_what_a_commit_in_doubt_takes_is_not_free_until_its_outcome_is_known(channel: Channel, claims: Claims) -> None:
    claimed, _ = claim(claims, 4, 4, None)
    in_doubt = [True]
    claims.hold_while(lambda: in_doubt[0], claimed)
    claims.give_back(claimed, 0)
    assert free(channel, claims) == [(5, 10)]
    claims.void(7)
    assert free(channel, claims) == [(5, 10)]
    in_doubt[0] = False
    assert free(channel, claims) == [(1, 10)]


def test_what_was_forgotten_is_free_though_an_interrupt_comes_while_it_is_released(
    channel: Channel, claims: Claims
) -> None:
    for number in count(1):
        claim(claims, 4, 4, None)
        claims.release_later([(1, 2), (4, 4)], 0)
        interrupts = Interrupts(number, "channel/claims.py")
        interrupts.run(lambda: free(channel, claims))
        assert free(channel, claims) == [(1, 2), (4, 10)]
        claims.release([(3, 3)])
        if not interrupts.hit:
            break
    assert number > 3


def test_a_group_that_was_dropped_has_nothing_to_claim(channel: Channel) -> None:
    claims = Claims(channel.engine(), "none", channel.consumer("g")._reader, channel.consumer("g")._mutex)
    with pytest.raises(ChannelClosedError, match=r"the group 'none' of .* was dropped"):
        free(channel, claims)


def test_expired_events_are_passed_over_and_stay_claimed_for_the_next_commit(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, channel = WallClock(monkeypatch), open_channel()
    for ttl in (10, None, 10, None):
        with channel.put_transaction() as tx:
            tx.put_many([Event(b"x")] * 2, ttl=None if ttl is None else timedelta(seconds=ttl))
    clock.pass_by(11)
    claims = channel.consumer("g").claims
    assert claim(claims, 3, 8, None) == ([(3, 4), (7, 7)], [(1, 2), (5, 6)])
    assert free(channel, claims) == [(8, 8)], "what is behind the limit is free again"
    passed, moved_at = claims.take_passed()
    assert (list(passed), moved_at, claims.passed) == ([(1, 2), (5, 6)], 0, None)
    claims.put_back_passed(passed, moved_at)
    assert claims.passed == passed
    claims.void(7)
    claims.put_back_passed(passed, moved_at)
    assert claims.passed is None, "a move has given them back"


def test_what_is_claimed_was_judged_then(open_channel: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, channel = WallClock(monkeypatch), open_channel()
    with channel.put_transaction() as tx:
        tx.put_many([Event(b"x")] * 4, ttl=10)
    claims = channel.consumer("g").claims
    assert claim(claims, 2, 2, None) == ([(1, 2)], [])
    clock.pass_by(11)
    assert claims.expired_among([(1, 4)]) == [(3, 4)]
