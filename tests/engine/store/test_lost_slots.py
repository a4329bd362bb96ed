"""What handles say, once, of slots that a store overwrote, or lacks since its bucket was put back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from spillable_stream import (
    Channel,
    CommitOutcomeUnknownError,
    DataLossError,
    Event,
    Producer,
    UnsafeStoreError,
    repair,
    verify,
)
from spillable_stream.objects.slots import slot_key
from tests.support.events import peek, put, take
from tests.support.faulty_store import Fault, once
from tests.support.object_channels import (
    URL,
    collect_now,
    log_of,
    lose_slots,
    store_of,
)

Open = Callable[..., Channel]


# ── a store that begins to ignore conditions ────────────────────────────────────────────────────


def overwrite(channel: Channel, other: Channel) -> None:
    """Let the last commit of a channel's handle be lost: the store takes another one in its place."""
    objects = store_of(channel).inner.objects  # type: ignore[attr-defined]
    log_of(other).position()
    put(channel, b"lost")
    del objects[slot_key(2)]
    put(other, b"in its place")


OVERWRITTEN = rf"{slot_key(2)} was overwritten: the store has ignored .* are lost"


def test_an_append_behind_a_slot_that_the_store_overwrote_is_told_and_leaves_a_void_slot(open_handle: Open) -> None:
    channel, other = open_handle(), open_handle()
    put(channel, b"0")
    overwrite(channel, other)
    with pytest.raises(UnsafeStoreError, match=OVERWRITTEN):
        put(channel, b"next")
    for number, handle in enumerate((channel, other, open_handle())):
        assert peek(handle, group=f"g{number}") == [b"0", b"in its place"]


def test_an_append_behind_a_slot_that_the_store_overwrote_needs_a_repair_where_it_could_not_be_said_to_be_void(
    open_handle: Open,
) -> None:
    channel, other = open_handle(), open_handle()
    put(channel, b"0")
    overwrite(channel, other)
    store_of(channel).schedule = once("replace", Fault.REFUSED)
    with pytest.raises(UnsafeStoreError, match=OVERWRITTEN):
        put(channel, b"next")
    for handle in (channel, other):
        with pytest.raises(DataLossError, match="slot 3 was appended after a slot 2"):
            peek(handle)
    for handle in (channel, other):
        handle.close()
    repair(URL)
    assert peek(open_handle()) == [b"0", b"in its place", b"next"]


def test_whoever_had_a_slot_that_the_store_overwrote_is_told_once(open_handle: Open) -> None:
    """Both commits were acknowledged, and the store has one."""
    channel, other = open_handle(), open_handle()
    put(channel, b"0")
    overwrite(channel, other)
    with pytest.raises(UnsafeStoreError, match=OVERWRITTEN):
        peek(channel)
    assert peek(channel) == [b"0", b"in its place"]
    put(channel, b"1")
    assert peek(other, group="another") == [b"0", b"in its place", b"1"]


def test_whoever_had_slots_that_a_bucket_lacks_which_was_put_back_is_told_once(open_handle: Open) -> None:
    """Nothing is in the place of the newest slot that the handle knows: it might have been collected."""
    channel = open_handle()
    put(channel, b"0")
    with store_of(channel).inner.put_back():  # type: ignore[attr-defined]
        for body in (b"lost", b"lost, too"):
            put(channel, body)
    with pytest.raises(UnsafeStoreError, match="ends with slot 1, and slot 3 was there: the bucket was put back"):
        peek(channel)
    assert peek(channel) == [b"0"]
    put(channel, b"1")
    assert peek(open_handle(), group="another") == [b"0", b"1"]


def continue_elsewhere(channel: Channel, other: Channel, puts: int) -> None:
    """Put the bucket back to before two commits of a handle, and let another handle continue from there."""
    lose_slots(channel)
    for number in range(puts):
        put(other, b"%d" % (number + 1))


@pytest.mark.parametrize(
    ("puts", "use"), [(2, peek), (3, peek), (3, lambda channel: put(channel, b"not stored")), (3, Channel.range_of)]
)
def test_whoever_had_slots_in_whose_places_others_have_put_theirs_since_the_bucket_was_put_back_is_told_once(
    open_handle: Open, use: Callable[[Channel], object], puts: int
) -> None:
    """The log is not shorter than it was, but another one."""
    channel = open_handle()
    put(channel, b"0")
    continue_elsewhere(channel, open_handle(), puts)
    with pytest.raises(UnsafeStoreError, match=r"slot 3 is not the one that was there.* are lost"):
        use(channel)
    assert peek(channel) == [b"%d" % number for number in range(puts + 1)]
    put(channel, b"stored")
    assert peek(open_handle(), group="another")[-1] == b"stored"


@pytest.mark.parametrize("use", [peek, lambda channel: put(channel, b"not stored")])
def test_whoever_had_slots_that_are_lost_is_told_also_where_others_have_a_checkpoint_behind_them(
    open_handle: Open, use: Callable[[Channel], object]
) -> None:
    """It does not load the slots that are in their places; but nobody has trimmed these."""
    channel, other = open_handle(), open_handle()
    put(channel, b"0")
    continue_elsewhere(channel, other, 5)
    other.checkpoint()
    with pytest.raises(UnsafeStoreError, match="lacks slot 3, which was there, and which nobody has trimmed"):
        use(channel)
    assert peek(channel) == [b"%d" % number for number in range(6)]


def test_a_handle_that_slept_while_its_slots_were_collected_reports_no_loss(open_handle: Open) -> None:
    sleeper, channel = open_handle(), open_handle()
    for body in (b"0", b"1"):
        put(sleeper, body)
    assert take(channel, limit=2) == [b"0", b"1"]
    collect_now(channel)
    assert sleeper.engine().follow().last_id == 2


@pytest.mark.parametrize(("lost", "continued"), [(1, 0), (2, 0), (2, 1), (3, 2)])
def test_an_append_that_notices_a_bucket_that_was_put_back_leaves_a_slot_that_all_others_pass(
    open_handle: Open, lost: int, continued: int, caplog: pytest.LogCaptureFixture
) -> None:
    channel, slow = open_handle(), open_handle()
    put(channel, b"0")
    slow.engine().follow()
    with store_of(channel).inner.put_back():  # type: ignore[attr-defined]
        for _ in range(lost):
            put(channel, b"lost")
    bodies = [b"0"]
    for _ in range(continued):
        bodies.append(b"of another handle")
        put(open_handle(), bodies[-1])
    with pytest.raises(CommitOutcomeUnknownError):
        put(channel, b"behind the hole")
    objects = store_of(channel).inner.objects  # type: ignore[attr-defined]
    assert slot_key(lost + 2) in objects
    with pytest.raises(UnsafeStoreError, match=f"Close all handles, and run `spillable verify {URL}`"):
        peek(channel)
    assert verify(URL).loss.lost == ((continued + 2, lost + 1),), "nobody has these IDs yet"
    for handle in (channel, slow, open_handle()):
        for _ in range(2):
            bodies.append(b"of all handles")
            put(handle, bodies[-1])
    for number, handle in enumerate((channel, slow, open_handle())):
        assert peek(handle, group=f"g{number}") == bodies
    assert f"which knew the events up to {lost + 1}, found that slots before it were lost. If" in caplog.text
    report = verify(URL)
    assert [(f.severity.name, str(f.path), f.events) for f in report.findings] == [
        ("DAMAGE", slot_key(lost + 2), ((lost + 1, lost + 1),))
    ], "of the slot before it; others have the ID since"
    assert report.loss.lost == ()


@pytest.mark.parametrize("use", [peek, lambda channel: put(channel, b"not stored")])
def test_whoever_stands_on_a_void_slot_is_told_that_the_slot_before_it_is_lost(
    open_handle: Open, use: Callable[[Channel], object]
) -> None:
    """The bucket was put back once more, to when nobody had filled the place of the lost slots yet."""
    channel, other = open_handle(), open_handle()
    put(channel, b"0")
    with store_of(channel).inner.put_back():  # type: ignore[attr-defined]
        put(channel, b"lost")
    with pytest.raises(CommitOutcomeUnknownError):
        put(channel, b"void")
    with store_of(channel).inner.put_back():  # type: ignore[attr-defined]
        put(other, b"lost, too")
        assert log_of(other).position().disk.file_id == 3, "it stands on the void slot"
    with pytest.raises((UnsafeStoreError, CommitOutcomeUnknownError)):
        use(other)
    with suppress(UnsafeStoreError):
        other.engine().follow()
    put(other, b"1")
    assert peek(open_handle(), group="another") == [b"0", b"1"]


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_slot_that_was_said_to_be_void_and_is_proven_later_counts_and_nothing_says_so_any_more(
    open_handle: Open, is_refused: bool
) -> None:
    """The lost slot is there again before its handle has noticed more than that it was gone."""
    channel = open_handle()
    put(channel, b"0")
    put(channel, b"1")
    objects = store_of(channel).inner.objects  # type: ignore[attr-defined]
    lost = objects.pop(slot_key(2))
    with pytest.raises(CommitOutcomeUnknownError):
        put(channel, b"2")
    objects[slot_key(2)] = lost
    if is_refused:
        store_of(channel).schedule = once("delete", Fault.REFUSED)
    put(channel, b"3")
    assert any(".void." in key for key in objects) == is_refused
    assert peek(open_handle()) == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("lost", [1, 3])
def test_a_producer_whose_bucket_was_put_back_stores_each_later_batch_once_without_a_repair(
    open_handle: Open, lost: int
) -> None:
    channel = open_handle()
    put(channel, b"first")
    with Producer(channel, producer_id="p", linger_ms=0) as producer:
        with store_of(channel).inner.put_back():  # type: ignore[attr-defined]
            for _ in range(lost):
                put(channel, b"lost")
        for number in range(3):
            producer.send(Event(b"%d" % number))
            producer.flush()
    assert peek(channel) == [b"first", b"0", b"1", b"2"]
    channel.close()
    assert repair(URL).loss.lost == ()
    assert verify(URL).healthy


def test_a_slot_in_the_hole_that_collected_ones_left_is_not_said_to_be_void(open_handle: Open) -> None:
    """Nobody comes to it, and the collector deletes it."""
    sleeper, channel = open_handle(), open_handle(gc_delay=0)
    put(sleeper, b"0")
    assert take(channel) == [b"0"]
    collect_now(channel)
    log_of(sleeper)._presence.keep_fresh_for(900)  # it does not know that gcDelay is so short now, and looks late
    with pytest.raises(CommitOutcomeUnknownError):
        put(sleeper, b"in the hole")
    objects = store_of(channel).inner.objects  # type: ignore[attr-defined]
    assert slot_key(2) in objects and not any(".void." in key for key in objects)


@pytest.mark.parametrize("unsaid", [Fault.REFUSED, Fault.UNAVAILABLE])
@pytest.mark.parametrize(("lost", "continued"), [(1, 0), (2, 0), (2, 1), (3, 2)])
def test_a_slot_behind_a_bucket_that_was_put_back_needs_a_repair_where_its_writer_could_not_say_that_it_is_void(
    open_handle: Open, lost: int, continued: int, unsaid: Fault
) -> None:
    """It has created its slot by then, behind those that are lost. A number that was used is never free again: a
    deletion that came late, or twice, would delete what others have put there."""
    channel = open_handle()
    put(channel, b"0")
    with store_of(channel).inner.put_back():  # type: ignore[attr-defined]
        for _ in range(lost):
            put(channel, b"lost")
    for _ in range(continued):
        put(open_handle(), b"of another handle")
    store_of(channel).schedule = lambda request: (
        unsaid if request.kind == "replace" and ".void." in request.key else None
    )
    with pytest.raises(CommitOutcomeUnknownError):
        put(channel, b"behind the hole")
    assert slot_key(lost + 2) in store_of(channel).inner.objects  # type: ignore[attr-defined]
    if lost > continued + 1:
        with pytest.raises(UnsafeStoreError, match=f"left slot {lost + 2} .* run `spillable repair {URL}`"):
            peek(channel)
        for _ in range(lost - continued - 1):
            put(open_handle(), b"in the hole")
    for use in (lambda: peek(channel), open_handle):
        with pytest.raises(DataLossError, match=r"slot \d is missing, and slot \d is there.*spillable repair"):
            use()
    assert "delete" not in store_of(channel).counts
    channel.close()
    repair(URL)
    again = open_handle()
    put(again, b"2")
    assert (peek(again)[0], peek(again)[-1]) == (b"0", b"2")
