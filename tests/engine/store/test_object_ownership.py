"""What a group's ownership is worth once another handle took the group over, or what it took is lost."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from spillable_stream import Channel, GroupOwnedError, UnsafeStoreError, repair
from spillable_stream.channel.take_transaction import TakeTransaction
from spillable_stream.engine.store.known_slots import KnownSlots
from spillable_stream.objects.checkpoints import Checkpoint
from tests.support.events import numbered, peek, put, take
from tests.support.object_channels import (
    OwnersClock,
    epoch_of,
    owners_of,
    store_of,
)

Open = Callable[..., Channel]


# ── a group that was taken over ──────────────────────────────────────────────────────────────────


def test_what_a_former_owner_takes_or_prepares_is_refused_and_names_the_new_one(
    open_handle: Open, owners_clock: OwnersClock
) -> None:
    owner, other = open_handle(), open_handle()
    put(owner, *numbered(0, 6))
    former = owner.consumer("default")
    claimed = former.claim(3)
    new = other.consumer("default")
    for verb in (former.prepare, former.commit):
        with pytest.raises(GroupOwnedError, match=r"owns the group 'default' of .* no more: .* took it over") as caught:
            verb(claimed)
        assert caught.value.owner == new.owner
    assert take(other) == numbered(0, 6)


@pytest.mark.parametrize("commits_at", range(9))
def test_no_event_is_committed_by_two_owners(open_handle: Open, owners_clock: OwnersClock, commits_at: int) -> None:
    """The former owner sleeps, and wakes up before the takeover, in its middle, or after it."""
    owner, other = open_handle(), open_handle()
    put(owner, *numbered(0, 6))
    former = owner.consumer("default")
    claimed, done = former.claim(3), list[bytes]()

    def wake() -> None:
        try:
            former.commit(claimed)
            done.extend(numbered(0, 3))
        except GroupOwnedError:
            pass

    count = 200 // 7 * commits_at  # of about 200 sleeps
    owners_clock.meanwhile = lambda: wake() if len(owners_clock.slept) == count else None
    done += take(other)
    if len(owners_clock.slept) < count or not count:
        wake()
    assert sorted(done) == numbered(0, 6)


def test_a_handle_whose_group_was_taken_over_claims_it_again_with_its_next_take(
    open_handle: Open, owners_clock: OwnersClock
) -> None:
    owner, other = open_handle(), open_handle()
    put(owner, *numbered(0, 6))
    tx = owner.take_transaction()
    tx.begin()
    assert len(tx.take_many(3)) == 3
    assert take(other, 1) == [b"0"]
    with pytest.raises(GroupOwnedError, match="begin another take, which claims it again"):
        tx.commit()
    tx.rollback()
    owners_clock.meanwhile = owners_of(other).answer_claims
    with pytest.raises(GroupOwnedError, match="which answers"):
        peek(owner)
    other.close()
    assert take(owner) == numbered(1, 5)


@pytest.mark.parametrize("made_again", [True, False])
def test_a_group_that_was_dropped_and_created_again_is_not_its_former_owners(
    open_handle: Open, owners_clock: OwnersClock, made_again: bool
) -> None:
    owner, other = open_handle(), open_handle()
    put(owner, *numbered(0, 3))
    former = owner.consumer("default")
    claimed, before = former.claim(3), epoch_of(owner)
    other.consumer("default")
    other.drop_group("default")
    if made_again:
        other.consumer("default")
        assert epoch_of(other) > before
    with pytest.raises(GroupOwnedError, match="no more"):
        former.commit(claimed)
    assert peek(other) == numbered(0, 3)


# ── what is taken, and lost ─────────────────────────────────────────────────────────────────────────


def take_of_lost_events(channel: Channel, count: int) -> TakeTransaction:
    """Return an open take of a group, of events that are lost since: the bucket was put back to before them."""
    put(channel, b"first")
    take(channel, group="g")
    tx = channel.take_transaction("g")
    tx.begin()
    with store_of(channel).inner.put_back():  # type: ignore[attr-defined]
        for _ in range(count):
            put(channel, b"lost")
        assert len(tx.take_many(100)) == count
    return tx


@pytest.mark.parametrize("notice", [lambda _: None, Channel.stats, lambda channel: peek(channel, group="other")])
@pytest.mark.parametrize(("lost", "new"), [(2, 3), (3, 4)])
def test_a_take_of_lost_events_counts_for_none_that_have_their_ids_by_now(
    open_handle: Open, notice: Callable[[Channel], object], lost: int, new: int
) -> None:
    channel, other = open_handle(), open_handle()
    tx = take_of_lost_events(channel, lost)
    for number in range(new):
        put(other, b"%d" % number)
    with suppress(UnsafeStoreError):
        notice(channel)
    with pytest.raises((UnsafeStoreError, GroupOwnedError)):
        tx.commit()
    with pytest.raises(GroupOwnedError, match="may have the IDs of other events now: roll back, and begin another"):
        tx.commit()
    tx.rollback()
    assert take(channel, group="g") == numbered(0, new)


@pytest.mark.parametrize("is_known", [False, True], ids=["before it knows the state", "after"])
def test_a_take_of_lost_events_counts_for_none_after_an_interrupt_of_the_load_that_finds_the_loss(
    open_handle: Open, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    channel, other = open_handle(), open_handle()
    tx = take_of_lost_events(channel, 3)
    put(other, b"0")
    begin = KnownSlots.begin

    def interrupted(known: KnownSlots, loaded: Checkpoint) -> None:
        if is_known:
            begin(known, loaded)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(KnownSlots, "begin", interrupted)
        with pytest.raises(KeyboardInterrupt):
            channel.stats()
    with pytest.raises((UnsafeStoreError, GroupOwnedError)):
        tx.commit()
    with pytest.raises(GroupOwnedError):
        tx.commit()
    tx.rollback()
    assert take(channel, group="g") == [b"0"]


def test_a_take_from_before_a_repair_counts_for_no_event_that_has_its_id_by_now(open_handle: Open) -> None:
    channel, other = open_handle(), open_handle()
    tx = take_of_lost_events(channel, 1)
    put(other, b"0")
    with pytest.raises(UnsafeStoreError):
        put(channel, b"behind the loss")
    repair(channel.path)
    with pytest.raises(GroupOwnedError, match="or the channel was repaired, so what it took"):
        tx.commit()
    tx.rollback()
    assert take(channel, group="g")[0] == b"0"


def test_two_handles_never_own_a_group_with_one_epoch(open_handle: Open, owners_clock: OwnersClock) -> None:
    """Epochs are transaction IDs, which are given out again when the bucket was put back."""
    other, channel = open_handle(), open_handle()
    put(other, *numbered(0, 4))
    with store_of(channel).inner.put_back():  # type: ignore[attr-defined]
        channel.consumer("g")
        epoch = epoch_of(channel, "g")
    other.consumer("g")
    assert epoch_of(other, "g") == epoch
    with pytest.raises(UnsafeStoreError):
        channel.stats()
        put(channel, b"not stored")
    txs = [handle.take_transaction("g") for handle in (channel, other)]
    committed = 0
    for tx in txs:
        with suppress(GroupOwnedError):
            tx.begin()
            tx.take_many(2)
    for tx in txs:
        with suppress(GroupOwnedError):
            tx.commit()
            committed += 1
    assert committed == 1
