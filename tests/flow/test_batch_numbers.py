"""A source's channels tell its newest batch, and whether that is in all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from spillable_stream import Channel, Event
from spillable_stream.errors import OptionError, ProducerBusyError, SpillableError
from spillable_stream.flow.batch_numbers import BatchNumbers, write_note
from spillable_stream.flow.sources.base import Noted
from spillable_stream.format.numbered_batch import BY_PRODUCER, MAX_NOTE_BYTES, NumberedBatch, Numbers


@pytest.fixture
def channels(tmp_path: Path) -> Iterator[dict[str, Channel]]:
    found = {name: Channel(tmp_path / name) for name in ("c1", "c2")}
    yield found
    for channel in found.values():
        channel.close()


def put(channel: Channel, batch: NumberedBatch) -> None:
    with channel.put_transaction() as tx:
        tx.producer = batch
        tx.put(Event(b"x"))


def claimed(channels: dict[str, Channel]) -> BatchNumbers:
    numbers = BatchNumbers("p", channels)
    numbers.claim()
    return numbers


def test_channels_without_a_batch_have_no_newest_one(channels: dict[str, Channel]) -> None:
    numbers = claimed(channels)
    assert numbers.newest is None
    numbers.release()


def test_the_newest_batch_is_complete_when_each_channel_with_a_part_has_it(channels: dict[str, Channel]) -> None:
    both, one = write_note({"c1": 1, "c2": 1}, b"both"), write_note({"c1": 1}, b"one")
    put(channels["c1"], NumberedBatch("p", Numbers(1, 1, BY_PRODUCER), both))
    numbers = claimed(channels)
    assert numbers.newest == Noted(1, b"both", False)
    put(channels["c2"], numbers.numbered("c2", 1, both))
    numbers.release()
    numbers = claimed(channels)
    assert numbers.newest == Noted(1, b"both", True)
    put(channels["c1"], numbers.numbered("c1", 2, one))
    numbers.release()
    numbers = claimed(channels)
    assert numbers.newest == Noted(2, b"one", True)
    numbers.release()


def test_another_look_finds_what_was_put_since_and_keeps_what_is_known_of_optional_channels(
    channels: dict[str, Channel],
) -> None:
    numbers, note = BatchNumbers("p", channels, optional=["c2"]), write_note({"c1": 1}, b"one")
    numbers.look_again()
    numbers.join("c2", 1)
    for name, channel in channels.items():
        put(channel, numbers.numbered(name, 1, note))
        numbers.stored(name, 1)
    numbers.look_again()
    assert numbers.newest == Noted(1, b"one", True)
    assert numbers.numbered("c2", 2, b"").numbers == Numbers(2, 2, BY_PRODUCER)
    numbers.release()


def test_a_put_names_all_numbers_since_the_channels_last_one(channels: dict[str, Channel]) -> None:
    numbers = claimed(channels)
    assert numbers.numbered("c1", 3, b"").numbers == Numbers(1, 3, BY_PRODUCER)
    numbers.stored("c1", 3)
    assert numbers.numbered("c1", 4, b"").numbers == Numbers(4, 4, BY_PRODUCER)
    assert numbers.numbered("c1", 3, b"").numbers == Numbers(3, 3, BY_PRODUCER)
    numbers.release()


def test_other_parts_than_before_are_named_once(channels: dict[str, Channel], caplog: pytest.LogCaptureFixture) -> None:
    put(channels["c1"], NumberedBatch("p", Numbers(1, 1, BY_PRODUCER), write_note({"c1": 1}, b"")))
    numbers = claimed(channels)
    for _ in range(2):
        numbers.compare(1, {"c1": 2})
    assert (
        caplog.text.count("batch 1 of p had other parts before the restart: {'c1': 1} events then, {'c1': 2} now") == 1
    )
    numbers.release()


def test_a_name_that_another_has_in_one_channel_is_given_back_in_the_others(channels: dict[str, Channel]) -> None:
    other = claimed({"c2": channels["c2"]})
    with pytest.raises(ProducerBusyError):
        claimed(channels)
    claimed({"c1": channels["c1"]}).release()
    other.release()


def test_a_name_that_another_got_in_a_channel_meanwhile_is_not_proven_there(channels: dict[str, Channel]) -> None:
    numbers = claimed(channels)
    (Path(channels["c1"].path) / "producers" / "p.lock").unlink()
    other = claimed({"c1": channels["c1"]})
    for name in ("c1", "c2"):
        claim = numbers.claim_in(name)
        assert claim is not None
        with pytest.raises(ProducerBusyError, match="'p'") if name == "c1" else nullcontext():
            claim.require(channels[name].engine().state)
    other.release()
    numbers.release()


def test_an_optional_channel_with_batches_that_the_others_do_not_know_takes_only_later_ones(
    channels: dict[str, Channel],
) -> None:
    put(channels["c1"], NumberedBatch("p", Numbers(1, 3, BY_PRODUCER), b""))
    put(channels["c2"], NumberedBatch("p", Numbers(1, 5, BY_PRODUCER), b""))
    numbers = BatchNumbers("p", channels, {"c2"})
    numbers.claim()
    for number in (4, 5):
        with pytest.raises(SpillableError, match=r"it has batch 5 of p .* and 3 was the last .* Start .* with c2 as a"):
            numbers.join("c2", number)
        assert not numbers.is_begun(number)
    numbers.join("c2", 6)
    assert numbers.numbered("c2", 6, b"").numbers == Numbers(6, 6, BY_PRODUCER)
    numbers.release()


def test_an_optional_channel_may_have_its_part_of_the_newest_batch(channels: dict[str, Channel]) -> None:
    for channel in channels.values():
        put(channel, NumberedBatch("p", Numbers(1, 3, BY_PRODUCER), b""))
    numbers = BatchNumbers("p", channels, {"c2"})
    numbers.claim()
    numbers.join("c2", 3)
    assert numbers.numbered("c2", 4, b"").numbers == Numbers(4, 4, BY_PRODUCER)
    numbers.release()


def test_a_channel_that_is_named_twice_is_refused(channels: dict[str, Channel], tmp_path: Path) -> None:
    with Channel(tmp_path / "c1") as twin, pytest.raises(OptionError, match="c1 and twin are one channel"):
        claimed({**channels, "twin": twin})


def test_a_note_that_is_too_large_is_refused() -> None:
    with pytest.raises(OptionError, match="the note of a batch has 65,536 bytes, and 65,"):
        write_note({"c1": 1}, bytes(MAX_NOTE_BYTES))
    assert len(write_note({"c1": 1}, bytes(MAX_NOTE_BYTES - 100))) <= MAX_NOTE_BYTES


def test_a_note_that_no_processor_wrote_is_passed_over(channels: dict[str, Channel]) -> None:
    put(channels["c1"], NumberedBatch("p", Numbers(1, 4, BY_PRODUCER), b"\xff a note of another program"))
    numbers = claimed(channels)
    assert numbers.newest == Noted(4, b"", True)
    numbers.release()


@pytest.mark.parametrize(
    ("began", "now", "newest"),
    [
        ("x", "x", Noted(1, b"of the source", complete=False)),
        ("x", "y", Noted(2, b"of the source", complete=False)),
        ("", "y", Noted(1, b"of the source", complete=False)),  # by an earlier version
        ("x", "", Noted(1, b"of the source", complete=False)),  # of Python objects
    ],
)
def test_a_batch_in_some_channels_only_is_a_new_one_where_the_division_is_another_one(
    channels: dict[str, Channel], caplog: pytest.LogCaptureFixture, began: str, now: str, newest: Noted
) -> None:
    note = write_note({"c1": 3, "c2": 2}, b"of the source", began)
    put(channels["c1"], NumberedBatch("p", Numbers(1, 1, BY_PRODUCER), note))
    numbers = BatchNumbers("p", channels, division=now)
    numbers.claim()
    assert numbers.newest == newest
    is_said = "not in c2" in caplog.text and "as batch 2" in caplog.text and "be duplicated: {'c1': 3}" in caplog.text
    assert is_said == (newest.number == 2)
    numbers.release()


def test_a_batch_that_is_in_all_channels_is_complete_by_whatever_division(channels: dict[str, Channel]) -> None:
    for channel in channels.values():
        put(channel, NumberedBatch("p", Numbers(1, 1, BY_PRODUCER), write_note({"c1": 3, "c2": 2}, b"", "x")))
    numbers = BatchNumbers("p", channels, division="y")
    numbers.claim()
    assert numbers.newest == Noted(1, b"", complete=True)
    numbers.release()


@pytest.mark.parametrize(
    ("began", "is_settled", "newest", "says"),
    [
        ("x", None, Noted(1, b"", complete=True), "need not put into any more: {'c9': 2}. Where one"),
        ("", False, Noted(1, b"", complete=True), "they are lost"),
        ("x", False, Noted(2, b"", complete=False), "is perhaps not in c9, and the configuration"),
        ("x", False, Noted(2, b"", complete=False), "those that channels have already may be duplicated: {'c1': 3}"),
        ("x", True, Noted(1, b"", complete=True), ""),
    ],
)
def test_a_batch_of_a_channel_that_is_no_more_is_put_anew_unless_the_source_knows_that_it_was_there(
    channels: dict[str, Channel],
    caplog: pytest.LogCaptureFixture,
    began: str,
    is_settled: bool | None,
    newest: Noted,
    says: str,
) -> None:
    """What a source can't know is said."""
    put(channels["c1"], NumberedBatch("p", Numbers(1, 1, BY_PRODUCER), write_note({"c1": 3, "c9": 2}, b"", began)))
    numbers, asked = BatchNumbers("p", channels, division="y"), list[int]()
    numbers.claim(None if is_settled is None else lambda number: (asked.append(number), bool(is_settled))[1])
    assert numbers.newest == newest
    assert says in caplog.text if says else not caplog.records
    assert asked == ([] if is_settled is None else [1])
    numbers.release()


@pytest.mark.parametrize("is_settled", [True, False])
def test_a_batch_that_another_channel_of_a_known_name_lacks_is_put_anew_unless_the_source_knows_that_all_had_it(
    channels: dict[str, Channel], is_settled: bool
) -> None:
    """As where the agent's dead-letter channel is another one now."""
    put(channels["c1"], NumberedBatch("p", Numbers(1, 1, BY_PRODUCER), write_note({"c1": 3, "c2": 2}, b"", "x")))
    numbers = BatchNumbers("p", channels, division="y")
    numbers.claim(lambda _: is_settled)
    assert numbers.newest == (Noted(1, b"", complete=True) if is_settled else Noted(2, b"", complete=False))
    numbers.release()


def test_a_batch_that_a_channel_lacks_is_completed_by_the_division_that_began_it_whatever_the_source_knows(
    channels: dict[str, Channel],
) -> None:
    note = write_note({"c1": 3, "c2": 2, "c9": 1}, b"", "x")
    put(channels["c1"], NumberedBatch("p", Numbers(1, 1, BY_PRODUCER), note))
    numbers = BatchNumbers("p", channels, division="x")
    numbers.claim(lambda _: True)
    assert numbers.newest == Noted(1, b"", complete=False)
    numbers.release()
