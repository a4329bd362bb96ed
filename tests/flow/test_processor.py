"""Every event is once in each channel that must have it: though one is full, fails, or the process is killed."""

from __future__ import annotations

import itertools
import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillable_stream import Channel, Event
from spillable_stream.channel.put_transaction import PutTransaction
from spillable_stream.errors import (
    ChannelFullError,
    DeliveryError,
    OptionError,
    ProducerBusyError,
    PutTooLargeError,
    SpillableError,
    TransactionCapacityError,
)
from spillable_stream.flow.interceptors.base import EventInterceptor, InterceptorChain
from spillable_stream.flow.interceptors.headers import Static
from spillable_stream.flow.interceptors.regex_filter import RegexFilter
from spillable_stream.flow.processor import ChannelProcessor
from spillable_stream.flow.selectors import LoadBalancing, Multiplexing, Replicating, Selector
from spillable_stream.flow.sources.base import Noted
from tests.support import pythons
from tests.support.events import peek
from tests.support.examples import examples
from tests.support.failed_channels import failed_channel
from tests.support.failing_puts import LIMITS, Faulty, Killed, Upper
from tests.support.flow_batches import STILL, batch_of
from tests.support.interrupts import Interrupts

# ── without numbers ─────────────────────────────────────────────────────────────────────────────


def test_a_batch_goes_through_the_interceptors_and_the_selector_into_the_channels(channels: dict[str, Channel]) -> None:
    selector = Multiplexing("to", {"2": ["c2"]}, default=["c1"])
    with ChannelProcessor(channels, [RegexFilter("x"), Upper()], selector) as processor:
        done = processor.process([Event(b"x1"), Event(b"x2", {"to": "2"}), Event(b"dropped")])
    assert done == (3, 2, 0, {"c1": 1, "c2": 1})
    assert [peek(c) for c in channels.values()] == [[b"X1"], [b"X2"], []]


def test_a_channel_that_a_storage_failure_closed_does_not_say_how_large_a_batch_may_be(tmp_path: Path) -> None:
    failed = failed_channel(tmp_path / "failed")
    with Channel(tmp_path / "small", transaction_capacity=7, minimum_required_space=0) as small:
        assert ChannelProcessor({"small": small, "failed": failed}).most_events == 7
    assert ChannelProcessor({"failed": failed}).most_events > 1_000_000
    failed.close()


def test_a_batch_without_an_event_left_is_a_success(channels: dict[str, Channel]) -> None:
    with ChannelProcessor(channels, [RegexFilter("nothing")]) as processor:
        assert processor.process(batch_of(b"x")) == (1, 0, 0, {})
    assert all(c.stats().counters.event_put_attempt_count == 0 for c in channels.values())


def test_a_batch_that_no_transaction_of_a_channel_can_hold_is_in_no_channel(tmp_path: Path) -> None:
    """What counts is the part of the channel, behind the interceptors and the selector."""
    with (
        Channel(tmp_path / "c1", minimum_required_space=0) as c1,
        Channel(tmp_path / "c2", minimum_required_space=0, transaction_capacity=2) as c2,
        ChannelProcessor({"c1": c1, "c2": c2}, [RegexFilter("x")]) as processor,
    ):
        assert processor.process(batch_of(b"x1", b"x2", b"dropped")).stored == {"c1": 2, "c2": 2}
        with pytest.raises(
            TransactionCapacityError, match="3 events for the channel c2, whose transaction_capacity is"
        ):
            processor.process(batch_of(b"x1", b"x2", b"x3"))
        assert c1.stats().channel_size == 2


def test_a_routed_batch_is_sent_again_to_those_only_that_do_not_have_it(channels: dict[str, Channel]) -> None:
    given = {**channels, "c2": Faulty(channels["c2"], ["full"])}
    with ChannelProcessor(given, [Upper()]) as processor:  # type: ignore[arg-type]
        routed = processor.route(batch_of(b"x"))
        with pytest.raises(DeliveryError, match=r"is in c1, c3, and not in c2: c2: it is full\. Send it again") as e:
            processor.deliver(routed)
        assert e.value.stored == ("c1", "c3") and isinstance(e.value.failures["c2"], ChannelFullError)
        assert processor.deliver(routed).stored == {"c1": 1, "c2": 1, "c3": 1}
    assert [peek(c) for c in channels.values()] == [[b"X"]] * 3


def test_optional_channels_are_not_tried_where_a_required_one_failed(channels: dict[str, Channel]) -> None:
    given = {**channels, "c1": Faulty(channels["c1"], ["before"])}
    processor = ChannelProcessor(given, selector=Replicating(optional=["c2"]))  # type: ignore[arg-type]
    with processor, pytest.raises(DeliveryError):
        processor.process(batch_of(b"x"))
    assert peek(channels["c2"]) == []


def test_several_channels_commit_at_the_same_time(channels: dict[str, Channel]) -> None:
    meeting = threading.Barrier(3, timeout=30)

    class Meeting(Faulty):
        def put_transaction(self) -> PutTransaction:
            meeting.wait()
            return self._channel.put_transaction()

    given = {name: Meeting(channel, []) for name, channel in channels.items()}
    with ChannelProcessor(given) as processor:  # type: ignore[arg-type]
        processor.process(batch_of(b"x"))
    assert [peek(c) for c in channels.values()] == [[b"x"]] * 3


def test_many_threads_may_process_batches_without_numbers(channels: dict[str, Channel]) -> None:
    with ChannelProcessor(channels) as processor:
        threads = [threading.Thread(target=processor.process, args=(batch_of(b"%d" % i),)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [sorted(peek(c)) for c in channels.values()] == [[b"%d" % i for i in range(8)]] * 3


# ── with numbers ────────────────────────────────────────────────────────────────────────────────


class Source:
    """A source of numbered batches that reads its input again; what the channels must have is in its model."""

    def __init__(self, channels: dict[str, Channel], make: Callable[[], Selector], plans: dict[str, list[str]]) -> None:
        self.channels = channels
        self.make = make
        self.given: Any = {name: Faulty(channel, plans.get(name, [])) for name, channel in channels.items()}
        self.processor = self.start()

    def start(self) -> ChannelProcessor:
        return ChannelProcessor(self.given, [Static()], self.make(), producer="a1.r1")

    def die(self) -> None:
        """End as a killed process does: nothing is put any more, and the kernel frees its claims."""
        assert self.processor._numbers is not None
        self.processor._numbers.release()
        self.processor = self.start()

    def run(self, batches: list[list[Event]]) -> None:
        number = 1
        while number <= len(batches):
            try:
                self.processor.process(batches[number - 1], number=number, note=b"%d" % number)
                number += 1
            except DeliveryError:
                continue
            except Killed:
                self.die()
                newest = self.processor.newest()
                number = 1 if newest is None else newest.number + newest.complete
                assert newest is None or newest.note == b"%d" % newest.number


SELECTORS: dict[str, Callable[[], Selector]] = {
    "replicating": Replicating,
    "multiplexing": lambda: Multiplexing("to", {"1": ["c1"], "2": ["c2"], "12": ["c1", "c2"]}, default=["c3"]),
    "round robin": LoadBalancing,
    "random": lambda: LoadBalancing(policy="random"),
}
FAULTS = st.lists(st.sampled_from(["", "", "full", "before", "after", "killed", "killed after"]), max_size=8)


@settings(max_examples=examples(100), deadline=None)
@given(
    st.sampled_from(list(SELECTORS)),
    st.lists(st.lists(st.sampled_from(["1", "2", "12", "3"]), min_size=1, max_size=4), min_size=1, max_size=5),
    st.fixed_dictionaries({"c1": FAULTS, "c2": FAULTS, "c3": FAULTS}),
)
def test_every_event_is_once_in_each_channel_that_must_have_it(
    kind: str, batches: list[list[str]], plans: dict[str, list[str]]
) -> None:
    ids = itertools.count()
    events = [[Event(b"%d" % next(ids), {"to": to}) for to in batch] for batch in batches]
    with tempfile.TemporaryDirectory() as directory:
        channels = {name: Channel(Path(directory) / name, **LIMITS) for name in ("c1", "c2", "c3")}
        source = Source(channels, SELECTORS[kind], plans)
        source.run(events)
        expected: dict[str, list[bytes]] = {name: [] for name in channels}
        for number, batch in enumerate(events, 1):
            for name, part in source.processor.route(batch, number=number).required.items():
                expected[name] += part.column(1).to_pylist()
        assert {name: peek(channel) for name, channel in channels.items()} == expected
        source.processor.close()
        for channel in channels.values():
            channel.close()


def test_a_repetition_is_what_was_routed_and_not_run_through_the_interceptors_again(
    channels: dict[str, Channel],
) -> None:
    runs: list[int] = []

    class Once(EventInterceptor):
        def intercept(self, event: Event) -> Event | None:
            runs.append(1)
            return event

    given = {**channels, "c2": Faulty(channels["c2"], ["full", "full"])}
    with ChannelProcessor(given, [Once()], producer="p") as processor:  # type: ignore[arg-type]
        for _ in range(2):
            with pytest.raises(DeliveryError, match="batch 1 of p is in c1, c3, and not in c2"):
                processor.process(batch_of(b"x"), number=1)
        with pytest.raises(
            SpillableError, match="batch 1 of p is not in all of its channels yet; put that again before batch 2"
        ):
            processor.process(batch_of(b"y"), number=2)
        processor.process(batch_of(b"x"), number=1)
    assert runs == [1] and [peek(c) for c in channels.values()] == [[b"x"]] * 3


def test_the_newest_note_says_what_may_be_missing(channels: dict[str, Channel]) -> None:
    given = {**channels, "c2": Faulty(channels["c2"], ["", "before"])}
    processor = ChannelProcessor(given, producer="p")  # type: ignore[arg-type]
    assert processor.newest() is None
    processor.process(batch_of(b"x"), number=1, note=b"one")
    with pytest.raises(DeliveryError):
        processor.process(batch_of(b"y"), number=2, note=b"two")
    processor.close()
    with ChannelProcessor(channels, producer="p") as again:
        assert again.newest() == Noted(2, b"two", False)
        again.process(batch_of(b"y"), number=2, note=b"two")
    with ChannelProcessor(channels, producer="p") as again:
        assert again.newest() == Noted(2, b"two", True)
    assert [peek(c) for c in channels.values()] == [[b"x", b"y"]] * 3


def test_a_source_that_begins_once_more_learns_what_the_channels_have_by_then(channels: dict[str, Channel]) -> None:
    given = {**channels, "c2": Faulty(channels["c2"], ["", "before"])}
    with ChannelProcessor(given, producer="p") as processor:  # type: ignore[arg-type]
        assert processor.newest() is None
        processor.process(batch_of(b"x"), number=1, note=b"one")
        assert processor.newest() == Noted(1, b"one", True)
        with pytest.raises(DeliveryError):
            processor.process(batch_of(b"y"), number=2, note=b"two")
        assert processor.newest() == Noted(2, b"two", False)
        processor.process(batch_of(b"y"), number=2, note=b"two")
        assert processor.newest() == Noted(2, b"two", True)
    assert [peek(c) for c in channels.values()] == [[b"x", b"y"]] * 3


def test_a_batch_that_no_channel_has_is_forgotten_where_its_source_begins_once_more_which_may_cut_it_otherwise(
    channels: dict[str, Channel],
) -> None:
    given = {"c1": Faulty(channels["c1"], ["before"])}
    with ChannelProcessor(given, producer="p") as processor:  # type: ignore[arg-type]
        assert processor.newest() is None
        with pytest.raises(DeliveryError):
            processor.process(batch_of(b"x"), number=1, note=b"one")
        assert processor.newest() is None
        processor.process(batch_of(b"x", b"y"), number=1, note=b"two")
    assert peek(channels["c1"]) == [b"x", b"y"]


def test_other_parts_than_before_a_restart_are_named(
    channels: dict[str, Channel], caplog: pytest.LogCaptureFixture
) -> None:
    given = {**channels, "c2": Faulty(channels["c2"], ["before"])}
    with ChannelProcessor(given, producer="p") as processor, pytest.raises(DeliveryError):  # type: ignore[arg-type]
        processor.process(batch_of(b"x", b"y"), number=1)
    with ChannelProcessor(channels, [RegexFilter("y")], producer="p") as again:
        again.process(batch_of(b"x", b"y"), number=1)
    assert "batch 1 of p had other parts before the restart" in caplog.text
    assert (peek(channels["c1"]), peek(channels["c2"])) == ([b"x", b"y"], [b"y"])


def test_an_optional_channel_never_gets_a_batch_twice(channels: dict[str, Channel]) -> None:
    for _ in range(2):
        with ChannelProcessor(channels, selector=Replicating(optional=["c2"]), producer="p") as processor:
            processor.process(batch_of(b"x"), number=1)
    assert [peek(c) for c in channels.values()] == [[b"x"]] * 3


def test_two_live_processors_of_one_name_are_refused(channels: dict[str, Channel], tmp_path: Path) -> None:
    with ChannelProcessor(channels, producer="p") as processor, Channel(tmp_path / "c3") as other:
        processor.newest()
        with pytest.raises(ProducerBusyError):
            ChannelProcessor({"c3": other}, producer="p").newest()
    with ChannelProcessor(channels, producer="p") as again:
        again.newest()


# ── what can't be ───────────────────────────────────────────────────────────────────────────────


def test_what_cannot_be_used_is_refused(channels: dict[str, Channel], tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="needs a channel"):
        ChannelProcessor({})
    with pytest.raises(OptionError, match="need a producer's name"):
        ChannelProcessor(channels).process(batch_of(b"x"), number=1)
    with Channel(tmp_path / "c1") as other, pytest.raises(OptionError, match="c1 and twin are one channel"):
        ChannelProcessor({"c1": channels["c1"], "twin": other}, producer="p").newest()
    processor = ChannelProcessor(channels)
    processor.close()
    with pytest.raises(SpillableError, match="is closed"):
        processor.process(batch_of(b"x"))


# ── dead letters ────────────────────────────────────────────────────────────────────────────────


def test_an_event_that_cannot_pass_goes_to_the_dead_letters_and_the_others_continue(
    channels: dict[str, Channel],
) -> None:
    dead = channels.pop("c3")
    with ChannelProcessor(
        channels, InterceptorChain([Upper()]), producer="a1.r1", dead_letter=dead, surroundings=STILL
    ) as processor:
        assert processor.process(batch_of(b"x", b"bad", b"y", h="1"), number=1) == (
            3,
            2,
            1,
            {"c1": 2, "c2": 2, "deadLetter": 1},
        )
    assert peek(channels["c1"]) == [b"X", b"Y"]
    with dead.take_transaction() as tx:
        (event,) = tx.take_many(9)
    assert (event.body, event.headers) == (
        b"bad",
        {
            "h": "1",
            "deadletter.component": "a1.r1/Upper",
            "deadletter.error": "ValueError: it is bad",
            "deadletter.time": "1700000000123",
            "deadletter.id": "a1.r1:1:0",
        },
    )


def test_a_channel_may_have_both_events_and_dead_letters(channels: dict[str, Channel], tmp_path: Path) -> None:
    with (
        Channel(tmp_path / "c1") as same,
        ChannelProcessor(channels, [Upper()], producer="p", dead_letter=same) as processor,
    ):
        assert processor.process(batch_of(b"x", b"bad"), number=1).stored == {"c1": 2, "c2": 1, "c3": 1}
    assert [peek(c) for c in channels.values()] == [[b"X", b"bad"], [b"X"], [b"X"]]


def test_a_channel_with_the_name_that_dead_letters_have_here_gets_its_own_events(channels: dict[str, Channel]) -> None:
    """It got none: the dead letters' channel took its place."""
    dead, own = channels["c3"], channels["c2"]
    with ChannelProcessor(
        {"c1": channels["c1"], "deadLetter": own}, [Upper()], producer="p", dead_letter=dead
    ) as processor:
        assert processor.process(batch_of(b"x", b"bad"), number=1).stored == {
            "c1": 1,
            "deadLetter": 1,
            "deadLetter2": 1,
        }
    assert [peek(c) for c in (channels["c1"], own, dead)] == [[b"X"], [b"X"], [b"bad"]]


def test_without_dead_letters_the_batch_fails_and_the_event_is_named_once_a_minute(
    channels: dict[str, Channel], caplog: pytest.LogCaptureFixture
) -> None:
    with ChannelProcessor(channels, [Upper()], producer="a1.r1", surroundings=STILL) as processor:
        for _ in range(3):
            with pytest.raises(ValueError, match="it is bad"):
                processor.process(batch_of(b"x", b"bad"), number=1)
        assert processor.stuck.why == "the event a1.r1:1:0 can't pass: ValueError: it is bad"
        processor.process(batch_of(b"x"), number=1)
        assert processor.stuck.why == ""
    assert [r.levelno for r in caplog.records if "can't pass" in r.getMessage()] == [logging.ERROR]
    assert [peek(c) for c in channels.values()] == [[b"X"]] * 3


# ── kills ───────────────────────────────────────────────────────────────────────────────────────

WORKER = """
import sys
from spillable_stream import Channel, Event
from spillable_stream.flow import ChannelProcessor
channels = {name: Channel(f"{sys.argv[1]}/{name}") for name in ("c1", "c2")}
processor = ChannelProcessor(channels, producer="a1.r1")
newest = processor.newest()
number = 1 if newest is None else newest.number + newest.complete
print("up", flush=True)
while True:
    processor.process([Event(b"%d.%d" % (number, i)) for i in range(3)], number=number, note=b"%d" % number)
    print(number, flush=True)
    number += 1
"""


@pytest.mark.slow
def test_a_process_that_is_killed_again_and_again_leaves_each_event_once_in_each_channel(tmp_path: Path) -> None:
    random_, acknowledged = random.Random(5), 0
    for _ in range(6):
        run = pythons.Popen([sys.executable, "-c", WORKER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert run.stdout is not None and run.stdout.readline() == "up\n"
        for _ in range(random_.randint(1, 40)):
            acknowledged = int(run.stdout.readline())
        os.kill(run.pid, signal.SIGKILL)
        acknowledged = max([acknowledged, *map(int, run.stdout.read().split())])
        run.wait()
        run.stdout.close()
    with Channel(tmp_path / "c1") as c1, Channel(tmp_path / "c2") as c2:
        with ChannelProcessor({"c1": c1, "c2": c2}, producer="a1.r1") as processor:
            newest = processor.newest()
            assert newest is not None and newest.number >= acknowledged and newest.note == b"%d" % newest.number
            processor.process([Event(b"%d.%d" % (newest.number, i)) for i in range(3)], number=newest.number)
        expected = [b"%d.%d" % (n, i) for n in range(1, newest.number + 1) for i in range(3)]
        assert peek(c1) == peek(c2) == expected


def test_an_event_that_never_fits_holds_up_only_a_source_that_numbers_its_batches(tmp_path: Path) -> None:
    options = {"memory_capacity": 9, "overflow_capacity": 0, "byte_capacity": 1 << 20}
    with (
        Channel(tmp_path / "c1", **options) as channel,
        ChannelProcessor({"c1": channel}, producer="a1.r1") as processor,
    ):
        for number, why in ((None, ""), (1, "the event a1.r1:1:0 can't pass: ")):
            with pytest.raises(PutTooLargeError):
                processor.process([Event(bytes(2 << 20))], number=number)
            assert processor.stuck.why.startswith(why) and bool(processor.stuck.why) == bool(why)
        processor.process([Event(b"x")], number=1)
        assert processor.stuck.why == "" and peek(channel) == [b"x"]


def test_a_close_that_an_interrupt_has_ended_is_completed_by_the_next_one(channels: dict[str, Channel]) -> None:
    """Else nobody else has the producer's name, nor is anything of the batches known, before the process ends."""
    closed = list[bool]()
    for number in itertools.count(1):
        processor = ChannelProcessor(channels, [Upper()], producer="a1.r1")
        processor.chain.close = lambda: closed.append(True)  # type: ignore[method-assign]
        processor.process(batch_of(b"one"))
        interrupts = Interrupts(number, "flow/processor.py", "flow/batch_numbers.py")
        interrupts.run(processor.close)
        processor.close()
        if not interrupts.hit:
            break
    assert len(closed) >= number > 5


def test_a_batch_that_is_put_anew_stays_whole_though_a_transaction_of_its_channel_has_room_for_less(
    channels: dict[str, Channel], tmp_path: Path
) -> None:
    """Each part of it had room, and its source can't divide what a note says must come again."""
    events = [Event(b"%d" % i, {"to": "12"[i % 2]}) for i in range(4)]
    by_header = Multiplexing("to", mapping={"1": ["c1"], "2": ["c2"]})
    with Channel(tmp_path / "little", minimum_required_space=0, transaction_capacity=2) as c1:
        given = {"c1": c1, "c2": Faulty(channels["c2"], ["full"])}
        with ChannelProcessor(given, [], by_header, producer="p", division="x") as before:  # type: ignore[arg-type]
            before.newest()
            with pytest.raises(DeliveryError, match="is in c1, and not in c2"):
                before.process(events, number=1)
        to_one = Multiplexing("to", mapping={"1": ["c1"], "2": ["c1"]})
        with ChannelProcessor({"c1": c1, "c2": channels["c2"]}, [], to_one, producer="p", division="y") as processor:
            assert processor.newest() == Noted(2, b"", complete=False)
            assert processor.process(events, number=2).stored == {"c1": 4}
            with pytest.raises(TransactionCapacityError):
                processor.process(events, number=3)
