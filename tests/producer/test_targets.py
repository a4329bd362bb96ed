from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spillable_stream import (
    Channel,
    OptionError,
    Producer,
    ProducerSequenceError,
    ReadonlyChannelError,
    SpillableError,
)
from spillable_stream.producer.destination import Destination
from spillable_stream.producer.targets import Targets
from tests.support.fake_targets import FakeTarget


def destinations_of(targets: Targets) -> list[Destination]:
    return [Destination(target, "p", 0, 0, 0) for target in targets.receiving]


@pytest.mark.parametrize("nothing", [[], {}])
def test_no_target_is_refused(nothing: Any) -> None:
    with pytest.raises(OptionError, match="at least one"):
        Targets(nothing, None)


def test_what_is_not_a_target_is_refused_and_the_others_are_closed() -> None:
    target = FakeTarget()
    with pytest.raises(OptionError, match="to a path, a Channel or a Target, not to int"):
        Targets([target, 7], None)  # type: ignore[list-item]
    assert target.closed


@pytest.mark.parametrize("bad", ["a letter", "a target"])
def test_no_channel_is_created_if_another_one_cannot_be_opened_or_made(tmp_path: Path, bad: str) -> None:
    (tmp_path / "file").write_text("not a channel")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "stranger").write_text("x")
    before = sorted(tmp_path.rglob("*"))
    for wrong in (tmp_path / "file", tmp_path / "full", f"object+file://{tmp_path}/file/below"):
        new = tmp_path / "new"
        with pytest.raises(SpillableError):
            Targets([new, wrong], None) if bad == "a target" else Targets({"a": new}, wrong)
        assert sorted(tmp_path.rglob("*")) == before


def test_a_channel_that_is_given_counts_as_its_path_too(path: Path) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        targets = Targets([str(path), channel], None)
        [target] = targets.receiving
        targets.close()
        assert target.name == str(path) and channel.stats().channel_size == 0, "it is still open"


def test_two_ways_to_one_place_are_one_target(path: Path) -> None:
    targets = Targets({"a": path, "b": str(path)}, None)
    assert len(targets.receiving) == len(list(targets)) == 1
    route = targets.route(destinations_of(targets), targets.config({}))
    assert route.to("a") is route.to("b")
    targets.close()


def test_a_channel_that_is_only_looked_at_is_refused(path: Path, tmp_path: Path) -> None:
    Channel(path).close()
    with Channel(path, readonly=True) as channel:
        for given, dead in ((channel, None), (tmp_path / "other", channel)):
            with pytest.raises(ReadonlyChannelError, match="a producer would change the channel"):
                Producer(given, dead_letter=dead)
    assert not (tmp_path / "other").exists()


def test_the_dead_letters_go_elsewhere_and_fit_there() -> None:
    target, small = FakeTarget(), FakeTarget(max_events=1)
    with pytest.raises(OptionError, match="can't be the dead-letter channel: events are sent there"):
        Targets(target, target)
    with pytest.raises(OptionError, match="takes 1 event at once, fewer than a batch may have"):
        Targets(FakeTarget(), small).config({})


def test_only_channels_of_this_host_are_sent_to_without_a_long_wait(path: Path) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        assert Targets(channel, None).config({}).linger_ms == 20
        assert Targets([channel, FakeTarget()], None).config({}).linger_ms == 2000


def test_each_key_leads_to_the_destination_of_its_target() -> None:
    one, other = FakeTarget(), FakeTarget()
    named = Targets({"one": one, "other": other}, None)
    destinations = destinations_of(named)
    route = named.route(destinations, named.config({}))
    assert [route.to("one"), route.to("other")] == destinations
    shared = Targets([one, other], None)
    destinations = destinations_of(shared)
    route = shared.route(destinations, shared.config({}))
    assert {route.to(f"key {i}") for i in range(100)} == set(destinations)


@pytest.mark.parametrize(
    ("options", "environment", "said"),
    [
        ({"batch_count_threshold": 20_000}, {}, "batch_count_threshold is 20,000, which is more than"),
        ({"batch_count_threshold": 7}, {"SPILLABLE_TRANSACTION_CAPACITY": "5"}, "batch_count_threshold is 7, which"),
        ({"linger_ms": -1}, {}, "linger_ms"),
    ],
)
@pytest.mark.parametrize("several", [False, True])
def test_no_channel_is_created_for_options_that_do_not_fit_it(
    tmp_path: Path,
    options: Any,
    environment: dict[str, str],
    said: str,
    several: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(OptionError, match=said):
        Producer([tmp_path / "a", tmp_path / "b"] if several else tmp_path / "a", **options)
    assert list(tmp_path.iterdir()) == []


def test_no_channel_is_created_where_the_dead_letters_have_too_little_room(tmp_path: Path) -> None:
    with (
        Channel(tmp_path / "dead", transaction_capacity=5) as dead,
        pytest.raises(OptionError, match=rf"the dead-letter channel {tmp_path}/dead takes 5 events at once"),
    ):
        Producer(tmp_path / "a", dead_letter=dead)
    assert [p.name for p in tmp_path.iterdir()] == ["dead"]


def test_channels_that_divide_the_keys_otherwise_are_refused_where_the_application_numbers(tmp_path: Path) -> None:
    """A key would lead to a channel that does not know its batches, and these would be stored again there."""
    a, b, c = (tmp_path / name for name in "abc")
    with Producer([a, b], producer_id="import") as producer:
        for key in ("one", "five"):  # of which each channel gets one
            producer.send_many([key.encode()], key=key, sequence=1).result()
    for channels, options in (([a, b, c], {}), ([b, a], {}), ([a], {}), ([a, b], {"buckets": 2})):
        with pytest.raises(
            ProducerSequenceError,
            match=r"numbered batches for .* as channel \d of 2 by 64 buckets, and it is channel \d of \d by .* now",
        ):
            Producer(channels, producer_id="import", **options)  # type: ignore[arg-type]
    with Producer([a, b], producer_id="import") as producer:
        assert [producer.last_sequence(key) for key in ("one", "five")] == [1, 1]
    with Producer([a, b, c], producer_id="another") as producer:
        assert producer.last_sequence("one") == 0


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ("a", "ab", "as channel 1 of 1 by 1 bucket, and it is channel 1 of 2 by 64 buckets now"),
        ("ab", "a", "as channel 1 of 2 by 64 buckets, and it is channel 1 of 1 by 1 bucket now"),
        ("ab", "ac", "as one of (.*), .*, and it is one of \\1, .* now"),
    ],
)
def test_another_list_is_refused_wherever_it_has_a_channel_with_numbers(
    tmp_path: Path, before: str, now: str, said: str
) -> None:
    def given(names: str) -> Any:
        paths = [tmp_path / name for name in names]
        return paths if len(paths) > 1 else paths[0]

    with Producer(given(before), producer_id="import") as producer:
        for key in ("one", "five") if len(before) > 1 else (None,):  # each of two channels gets one
            producer.send_many([b"x"], key=key, sequence=1).result()
    with pytest.raises(ProducerSequenceError, match=said):
        Producer(given(now), producer_id="import")
    with Producer(given(before), producer_id="import") as producer:
        assert producer.last_sequence("one" if len(before) > 1 else None) == 1


def test_one_channel_is_the_same_as_a_list_of_it_whatever_the_buckets(tmp_path: Path) -> None:
    with Producer(tmp_path / "a", producer_id="import") as producer:
        producer.send_many([b"x"], sequence=1).result()
    with Producer([tmp_path / "a"], producer_id="import", buckets=8) as producer:
        assert producer.last_sequence("one") == 1


def test_channels_may_divide_the_keys_otherwise_where_the_producer_numbers(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    for channels in ([a], [a, b], [b, a]):
        with Producer(channels, producer_id="steady") as producer:
            assert producer.send(b"x", key="one").result().successful
