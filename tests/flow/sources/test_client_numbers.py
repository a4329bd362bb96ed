from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spillable_stream import Channel
from spillable_stream.errors import DeliveryError, OptionError, ProducerSequenceError
from spillable_stream.flow.processor import ChannelProcessor
from spillable_stream.flow.selectors import Replicating
from spillable_stream.flow.sources.client_numbers import ClientNumbers
from spillable_stream.flow.sources.event_columns import events_of


@contextmanager
def two_channels(path: Path) -> Iterator[tuple[ClientNumbers, Channel, Channel]]:
    """The numbers of a processor with the channels a and b, of which b has room for one event."""
    with (
        Channel(path / "a", minimum_required_space=0) as a,
        Channel(path / "b", minimum_required_space=0, overflow_capacity=1, keep_alive=0) as b,
        ChannelProcessor({"a": a, "b": b}) as processor,
    ):
        yield ClientNumbers(processor), a, b


def bodies(channel: Channel) -> list[bytes]:
    with channel.take_transaction() as tx:
        return [e.body for e in tx.take_many(1000)]


def test_a_number_that_one_channel_has_goes_to_the_other_only(tmp_path: Path) -> None:
    with two_channels(tmp_path) as (numbers, a, b):
        numbers.store(events_of([b"1"], [{}]), "client", 1)
        with pytest.raises(DeliveryError, match=r"batch 5 of client is not in b: .*Send it again") as raised:
            numbers.store(events_of([b"5"], [{}]), "client", 5)
        assert raised.value.stored == ("a",)
        assert bodies(b) == [b"1"]
        numbers.store(events_of([b"5"], [{}]), "client", 5)
        numbers.store(events_of([b"1"], [{}]), "client", 1)  # an old one
        assert (bodies(a), bodies(b)) == ([b"1", b"5"], [b"5"])


def test_a_number_that_comes_late_is_not_acknowledged_unless_it_is_there(tmp_path: Path) -> None:
    with two_channels(tmp_path) as (numbers, a, b):
        numbers.store(events_of([b"2"], [{}]), "client", 2)
        with pytest.raises(DeliveryError):
            numbers.store(events_of([b"3"], [{}]), "client", 3)  # it is in a only, and the client gives it up
        assert bodies(b) == [b"2"]
        numbers.store(events_of([b"4"], [{}]), "client", 4)
        for number in (1, 3):
            with pytest.raises(ProducerSequenceError, match=rf"batch {number} of client comes after .*nothing was st"):
                numbers.store(events_of([b"%d" % number], [{}]), "client", number)
        for number in (2, 4):
            numbers.store(events_of([b"%d" % number], [{}]), "client", number)
        assert (bodies(a), bodies(b)) == ([b"2", b"3", b"4"], [b"4"])


def test_an_optional_channel_gets_a_number_once_or_not_at_all(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (
        Channel(tmp_path / "must", minimum_required_space=0) as must,
        Channel(tmp_path / "may", minimum_required_space=0, overflow_capacity=2, keep_alive=3600) as may,
        ChannelProcessor({"must": must, "may": may}, selector=Replicating(optional=["may"])) as processor,
    ):
        numbers = ClientNumbers(processor)
        for number in (1, 1, 2, 3, 3, 2):  # there is no room for 3, and nobody waits an hour
            numbers.store(events_of([b"%d" % number], [{}]), "client", number)
        processor.close()
        said = [r.args for r in caplog.records if "the optional channel" in r.getMessage()]
        assert said == [
            ("source", "may", "1 event", "it is full"),
            ("source", "may", "1 event", "it is full"),
        ]
        assert (bodies(must), bodies(may)) == ([b"1", b"2", b"3"], [b"1", b"2"])


def test_an_optional_channel_is_not_tried_before_the_required_ones_have_the_batch(tmp_path: Path) -> None:
    with (
        Channel(tmp_path / "must", minimum_required_space=0, overflow_capacity=1, keep_alive=0) as must,
        Channel(tmp_path / "may", minimum_required_space=0) as may,
        ChannelProcessor({"must": must, "may": may}, selector=Replicating(optional=["may"])) as processor,
    ):
        numbers = ClientNumbers(processor)
        numbers.store(events_of([b"1"], [{}]), "client", 1)
        with pytest.raises(DeliveryError):
            numbers.store(events_of([b"2"], [{}]), "client", 2)
        assert (bodies(must), bodies(may)) == ([b"1"], [b"1"])
        for _ in range(2):
            numbers.store(events_of([b"2"], [{}]), "client", 2)
        assert (bodies(must), bodies(may)) == ([b"2"], [b"2"])


def test_one_request_of_a_client_is_stored_at_a_time(tmp_path: Path) -> None:
    with Channel(tmp_path / "a", minimum_required_space=0) as a, ChannelProcessor({"a": a}) as processor:
        numbers = ClientNumbers(processor)

        def send() -> None:
            for number in range(1, 20):
                numbers.store(events_of([b"%d" % number], [{}]), "client", number)

        threads = [threading.Thread(target=send) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert bodies(a) == [b"%d" % n for n in range(1, 20)]


def test_a_name_that_no_producer_can_have_is_refused(tmp_path: Path) -> None:
    with Channel(tmp_path / "a", minimum_required_space=0) as a, ChannelProcessor({"a": a}) as processor:
        with pytest.raises(OptionError, match="producer"):
            ClientNumbers(processor).store(events_of([b"1"], [{}]), "", 1)
        assert a.stats().channel_size == 0
