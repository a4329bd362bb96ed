"""Which sink is asked, and what happens when it fails: Flume's rules, by a clock that the test sets."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from enum import Enum

import pytest

from spillable_stream.errors import DeliveryError, OptionError
from spillable_stream.flow.late_channel import ChannelAwayError
from spillable_stream.flow.order_selector import RoundRobinOrder
from spillable_stream.flow.sink_processors import Default, Failover, LoadBalance, SinkProcessor
from spillable_stream.flow.surroundings import Surroundings
from tests.support.flow_batches import STILL
from tests.support.producers import Mute

_MOMENT = 2.0**-10  # adds up without an error


class Status(Enum):
    READY = "ready"
    BACKOFF = "backoff"


class Sink:
    """A sink that does what its next answer says."""

    def __init__(self, asked: list[str], name: str) -> None:
        self.asked, self.name = asked, name
        self.channel_name = "c1"
        self.answer: Status | None = Status.READY
        self.is_away, self.why = False, "is down"

    @property
    def found_nothing(self) -> bool:
        return self.answer is Status.BACKOFF

    def process(self) -> Status:
        self.asked.append(self.name)
        if self.answer is None:
            raise (ChannelAwayError if self.is_away else OSError)(f"{self.name} {self.why}")
        return self.answer


class Group:
    """Sinks named by letters, and the clock of their processor."""

    def __init__(self, processor: SinkProcessor, names: str) -> None:
        self.seconds = 100.0
        self.asked: list[str] = []
        self.sinks = {name: Sink(self.asked, name) for name in names}
        self.processor = processor
        processor.configure(self.sinks, self.around())

    def around(self) -> Surroundings:
        return replace(STILL, monotonic=lambda: self.seconds)

    def round(self, after_seconds: float = 0.0, down: str | None = None) -> str:
        """Run a round; return whom it asked, in order."""
        self.seconds += after_seconds
        if down is not None:
            for name, sink in self.sinks.items():
                sink.answer = None if name in down else Status.READY
        self.asked.clear()
        try:
            self.processor.process()
        except (DeliveryError, ChannelAwayError) as e:
            return "".join(self.asked) + ("!" if isinstance(e, DeliveryError) else "?")
        return "".join(self.asked)


def failover(**priority: int) -> Callable[[], Group]:
    return lambda: Group(Failover(priority=priority), "abc")


def test_the_highest_priority_is_asked_and_the_next_when_it_fails() -> None:
    group = failover(a=5, b=10)()
    assert group.round() == "b"
    assert group.round(down="b") == "ba"
    assert group.round(down="ba") == "ac"
    assert group.round(down="abc") == "c!"


def test_sinks_without_a_priority_come_after_all_others_in_their_order() -> None:
    group = Group(Failover(priority={"c": -5}), "abc")
    assert [group.round(down=down) for down in ("", "a", "ab")] == ["a", "ab", "bc"]


def test_those_stand_by_that_are_not_asked_while_the_others_work() -> None:
    group = Group(Failover(priority={"a": 3, "b": 3, "c": 2, "d": 1}), "abcd")

    def standing_by() -> str:
        return "".join(sink.name for sink in group.sinks.values() if sink in group.processor.standing_by)

    assert standing_by() == "bcd"
    group.round(down="a")
    assert standing_by() == "bd", "a is asked again, and has its events"
    group.round(down="acd")
    assert standing_by() == "b"
    for _ in range(3):
        group.round(60.0, down="")
    assert group.round() == "a" and standing_by() == "bcd"


def test_a_failed_sink_that_finds_its_channel_empty_does_not_keep_the_others_from_theirs() -> None:
    group = failover(a=2, b=1)()
    group.sinks["b"].channel_name = group.sinks["c"].channel_name = "c2"
    assert group.round(down="a") == "ab"
    group.sinks["a"].answer = Status.BACKOFF  # what failed has expired, say
    assert [group.round(3.0), group.round()] == ["ab", "ab"]
    group.sinks["b"].channel_name = "c1"
    assert group.round() == "a", "nothing is there for b either"
    group.sinks["b"].channel_name, group.sinks["b"].answer, group.sinks["c"].answer = "c2", None, None
    assert group.round() == "abc", "what is left is an empty channel"


def test_of_two_sinks_with_one_priority_the_second_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    group = failover(a=1, b=1, c=0)()
    assert group.round(down="a") == "ac" and "the sink b has the priority 1 of a, and is not used" in caplog.text


def test_a_sink_that_is_up_again_is_active_at_once_when_its_penalty_is_over() -> None:
    group = failover(a=2, b=1)()
    assert group.round(down="a") == "ab"
    assert group.round(2.0, down="") == "b"
    assert group.round(_MOMENT) == "a"
    assert group.round() == "a"


@pytest.mark.parametrize("kind", [Failover, LoadBalance])
def test_a_sink_that_works_again_is_named_once(caplog: pytest.LogCaptureFixture, kind: type[SinkProcessor]) -> None:
    """Else a log that says of each sink when it failed looks as if it still did."""
    caplog.set_level("INFO", "spillable_stream.flow")
    group = Group(kind(), "ab")
    for down in ("", "a", "a", "", "", ""):
        group.round(3.0, down=down)
    assert [r.getMessage() for r in caplog.records if r.levelname == "INFO"] == ["the sink a works again"]


def test_the_penalty_doubles_with_each_failure_in_a_row_up_to_the_longest() -> None:
    group = failover(a=2, b=1)()
    group.round(down="a")
    for seconds in (2, 4, 8, 16, 30, 30):
        assert group.round(seconds, down="a") == "b", seconds
        assert group.round(_MOMENT) == "ab", seconds


def test_a_sink_that_says_backoff_is_not_penalized_and_stays_out() -> None:
    group = failover(a=2, b=1)()
    group.round(down="a")
    group.sinks["a"].answer = Status.BACKOFF
    assert group.round(2.1) == "a" and group.round() == "a"
    assert isinstance(group.processor, Failover) and group.processor.active == "b"


def test_all_that_failed_are_named() -> None:
    group = failover(a=2, b=1)()
    for sink in group.sinks.values():
        sink.answer = None
    with pytest.raises(DeliveryError, match="All sinks failed to process, nothing left to failover to") as e:
        group.processor.process()
    assert set(e.value.failures) == {"a", "b", "c"}


def test_a_penalty_is_capped_before_it_is_computed() -> None:
    group = Group(Failover(priority={"a": 2}, maxpenalty=1_000), "ab")
    group.round(down="a")
    for _ in range(100):
        assert group.round(1 + _MOMENT) == "ab"


def test_load_is_balanced_in_turn_and_goes_to_the_next_where_one_fails() -> None:
    group = Group(LoadBalance(), "abc")
    assert [group.round() for _ in range(4)] == ["a", "b", "c", "a"]
    assert [group.round(down="c") for _ in range(3)] == ["b", "ca", "a"]


def test_a_round_that_finds_the_channel_empty_is_nobodys_turn() -> None:
    """Otherwise one of two sinks gets all events that come one at a time, and the other one the looks in between."""
    group = Group(LoadBalance(), "ab")
    asked = []
    for _ in range(4):
        asked.append(group.round(down=""))
        for sink in group.sinks.values():
            sink.answer = Status.BACKOFF
        group.round()
    assert asked == ["a", "b", "a", "b"]


def test_with_backoff_a_sink_that_failed_is_left_out() -> None:
    group = Group(LoadBalance(backoff=True), "ab")
    assert group.round(down="a") == "ab"
    assert [group.round(2.0), group.round()] == ["b", "b"]
    assert "a" in group.round(_MOMENT)


def test_where_all_fail_it_says_so() -> None:
    group = Group(LoadBalance(backoff=True), "ab")
    assert group.round(down="ab") == "ab!"
    assert group.round() == "!"


def test_a_choice_by_chance_asks_each() -> None:
    group = Group(LoadBalance(selector="random"), "ab")
    assert {group.round() for _ in range(40)} == {"a", "b"}


@pytest.mark.parametrize("selector", [RoundRobinOrder(), "spillable_stream.flow.order_selector:RoundRobinOrder"])
def test_a_selector_of_your_own_is_an_object_or_an_import_path(selector: RoundRobinOrder | str) -> None:
    assert [Group(LoadBalance(selector=selector), "ab").round() for _ in range(1)] == ["a"]


def test_a_default_processor_asks_its_only_sink_and_raises_what_that_raises() -> None:
    group = Group(Default(), "a")
    assert group.round() == "a"
    group.sinks["a"].answer = None
    with pytest.raises(OSError, match="a is down"):
        group.processor.process()


@pytest.mark.parametrize(
    ("make", "names", "says"),
    [
        (Default, "ab", "exactly one sink, not 2: a, b"),
        (LoadBalance, "a", "needs two sinks, not 1: a"),
        (lambda: LoadBalance(selector="best"), "ab", "round_robin, random or a class, not 'best'"),
        (lambda: LoadBalance(selector="builtins.dict"), "ab", "is not an OrderSelector"),
    ],
)
def test_what_cannot_be_used_is_refused(make: Callable[[], SinkProcessor], names: str, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        Group(make(), names)


def test_load_is_balanced_over_sinks_of_several_channels_though_that_of_one_is_empty() -> None:
    group = Group(LoadBalance(), "abcd")
    for name, channel in zip("abcd", ("c1", "c1", "c2", "c2"), strict=True):
        group.sinks[name].channel_name = channel
    for name in "ab":
        group.sinks[name].answer = Status.BACKOFF
    assert [group.round() for _ in range(4)] == ["ac", "bc", "c", "d"]
    for name in "cd":
        group.sinks[name].answer = Status.BACKOFF
    assert [group.round() for _ in range(3)] == ["ac", "ac", "ac"], "each channel once"


def test_a_channel_whose_sinks_all_fail_is_trouble_though_those_of_another_one_work() -> None:
    group = Group(LoadBalance(), "abcd")
    for name, channel in zip("abcd", ("c1", "c1", "c2", "c2"), strict=True):
        group.sinks[name].channel_name = channel
    group.round(down="c")
    for _ in range(3):
        assert not group.round(down="c").endswith("!") and group.processor.trouble == ""
    for answer in (Status.READY, Status.BACKOFF):
        group.sinks["d"].answer = None
        group.sinks["a"].answer = group.sinks["b"].answer = answer
        for _ in range(4):
            assert not group.round().endswith("!")
        assert group.processor.trouble == "each sink of the channel c2 fails: OSError: c is down"
    group.sinks["d"].answer = Status.BACKOFF
    group.round()
    assert group.processor.trouble == ""


@pytest.mark.parametrize("processor", [Failover, lambda: LoadBalance(backoff=True)])
def test_a_group_is_away_if_the_channel_of_each_sink_is_also_in_a_round_that_asks_only_some_of_them(
    processor: Callable[[], SinkProcessor],
) -> None:
    group = Group(processor(), "ab")
    for sink in group.sinks.values():
        sink.is_away = True
    assert [group.round(down="ab"), group.round()] == ["ab?", "?"]
    group.sinks["a"].is_away = False
    assert sorted(group.round(10.0)) == ["!", "a", "b"]
    assert group.round() == "!"
    group.sinks["a"].is_away = True
    assert sorted(group.round(10.0)) == ["?", "a", "b"]


class Mutes(Sink):
    """A sink whose error has no text."""

    def process(self) -> Status:
        self.asked.append(self.name)
        raise Mute


@pytest.mark.parametrize("kind", [Failover, LoadBalance])
def test_an_error_whose_text_raises_is_said_and_the_next_sink_is_asked(
    kind: type[SinkProcessor], caplog: pytest.LogCaptureFixture
) -> None:
    processor, asked = kind(), list[str]()
    processor.configure({"a": Mutes(asked, "a"), "b": Sink(asked, "b")}, STILL)
    assert processor.process() is Status.READY
    assert asked == ["a", "b"]
    assert "(its text can't be told: ValueError)" in caplog.text


def test_a_sink_that_stays_down_is_named_seldom_though_each_second_round_asks_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A group without backoff filled the log with a line for each batch."""
    group = Group(LoadBalance(), "ab")
    group.round(down="a")
    for _ in range(50):
        group.round()
    assert caplog.text.count("the sink a failed, and the next one is asked") == 1
    group.round(down="")
    group.round()
    for _ in range(2):
        group.round(down="a")
    assert caplog.text.count("the sink a failed, and the next one is asked") == 2, "it had worked again"


def test_why_a_sink_fails_is_said_at_once_when_that_changes(caplog: pytest.LogCaptureFixture) -> None:
    """What kept a sink from working after its channel was back was not said for a minute."""
    group = Group(LoadBalance(), "ab")
    group.round(down="a")
    group.sinks["a"].why = "has no directory"
    for _ in range(10):
        group.round()
    said = [record.getMessage() for record in caplog.records if "the sink a failed" in record.getMessage()]
    assert [text.rpartition(": ")[2] for text in said] == ["a is down", "a has no directory"]


@pytest.mark.parametrize("kind", [Failover, LoadBalance])
def test_a_sink_that_exits_has_failed_and_the_next_one_is_asked(kind: type[SinkProcessor]) -> None:
    """It ended the thread of its group, which asked it first again when that had been started anew."""

    class Exits(Sink):
        def process(self) -> Status:
            self.asked.append(self.name)
            sys.exit("a mistake")

    processor, asked = kind(), list[str]()
    processor.configure({"a": Exits(asked, "a"), "b": Sink(asked, "b")}, STILL)
    assert processor.process() is Status.READY
    assert asked == ["a", "b"]


def test_an_order_of_your_own_that_raised_once_makes_no_sink_fail_that_works_again() -> None:
    class RaisesOnce(RoundRobinOrder):
        raises = True

        def failed(self, sink: int, now_ms: float) -> None:
            if self.raises:
                self.raises = False
                raise ValueError("a mistake")
            super().failed(sink, now_ms)

    group = Group(LoadBalance(selector=RaisesOnce()), "ab")
    with pytest.raises(ValueError, match="a mistake"):
        group.round(down="a")
    assert {group.round(down="") for _ in range(4)} == {"a", "b"}
