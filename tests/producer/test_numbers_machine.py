"""Numbers of both kinds, dead letters, lost answers and restarts, in any order: successful ⇔ stored once, readable."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillable_stream import Channel, Producer
from spillable_stream.errors import ChannelFullError, OptionError, ProducerSequenceError, SendFailedError
from spillable_stream.format.numbered_batch import Numbers
from spillable_stream.producer.future import SendFuture
from spillable_stream.producer.target import ChannelTarget
from tests.support.events import peek
from tests.support.examples import examples
from tests.support.fake_targets import PATIENCE_SECONDS

IDS = st.sampled_from(["me", "you"])
KEYS = st.sampled_from(["a", "link to a", "b"])
NUMBERS, COUNTS = st.integers(1, 4), st.sampled_from([1, 1, 2])
FAULTS = st.sampled_from(["", "", "bad", "bad", "refused", "answer lost", "answers lost"])
NUMBER = st.tuples(st.just("number"), KEYS, NUMBERS, COUNTS, FAULTS)
NUMBER_MANY = st.tuples(st.just("number many"), KEYS, NUMBERS, COUNTS, FAULTS)
SEND = st.tuples(st.just("send"), KEYS, NUMBERS, COUNTS, FAULTS)
RESTART = st.tuples(st.just("restart"), IDS, st.sampled_from([True, True, False]))
STEPS = st.lists(st.one_of(NUMBER, NUMBER, NUMBER_MANY, RESTART, st.one_of(SEND, NUMBER)), max_size=25)


class Faulty(ChannelTarget):
    """A channel whose commits fail as a test says, before or after they are done."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.fault = ""

    def commit(self, batch: pa.RecordBatch, producer_id: str, numbers: Numbers) -> tuple[int, int]:
        fault = self.fault
        if fault == "bad":
            raise ValueError("bad")
        if fault != "answers lost":
            self.fault = ""
        if fault == "refused":
            raise ChannelFullError("full")
        ids = super().commit(batch, producer_id, numbers)
        if fault:
            raise ConnectionError("the answer was lost")
        return ids


@dataclass
class Sent:
    """A batch that was accepted.

    Args:
        place: the channel that it is for.
        bodies: its events.
        future: of its result.
        in_doubt: whether an answer may have been lost.
        dead: whether the producer had a dead-letter channel.
    """

    place: str
    bodies: list[bytes]
    future: SendFuture
    in_doubt: bool
    dead: bool

    @property
    def error(self) -> SendFailedError | None:
        found = self.future.exception(PATIENCE_SECONDS)
        assert found is None or isinstance(found, SendFailedError)
        return found


class Run:
    """Channels, of which one has two keys, and a producer on them that comes and goes."""

    def __init__(self, directory: Path) -> None:
        self.paths = {name: directory / name for name in ("a", "b", "dead")}
        for path in self.paths.values():
            Channel(path).close()
        (directory / "link").symlink_to(self.paths["a"])
        self.ways = {"a": self.paths["a"], "link to a": directory / "link", "b": self.paths["b"]}
        self.sent: list[Sent] = []
        self._count = 0
        self.start("me", dead=True)

    def start(self, producer_id: str, *, dead: bool) -> None:
        self.dead = dead
        targets = {key: Faulty(path) for key, path in self.ways.items()}
        self.producer = Producer(
            targets,
            producer_id=producer_id,
            dead_letter=self.paths["dead"] if dead else None,
            rng=random.Random(1),
            linger_ms=0,
            retries=1,
            base_retry_backoff_ms=1,
            max_retry_backoff_ms=1,
            io_thread_count=2,
        )
        self.targets = {**targets, "link to a": targets["a"]}

    def restart(self, producer_id: str, dead: bool) -> None:
        self.producer.close()
        self.start(producer_id, dead=dead)

    def number(self, key: str, sequence: int, count: int, fault: str, times: int = 1) -> None:
        """Send a batch, and perhaps some after it: the same number with another count has other events."""
        self.targets[key].fault = fault
        for number in range(sequence, sequence + times):
            whose = f"{self.producer.producer_id} to {Path(self.targets[key].name).name}"
            bodies = [f"{whose} {number} of {count}: {i}".encode() for i in range(count)]
            with suppress(ProducerSequenceError, OptionError):
                self._note(key, bodies, self.producer.send_many(bodies, key=key, sequence=number), fault)
        self._settle(key)

    def send(self, key: str, count: int, fault: str) -> None:
        self.targets[key].fault = fault
        for _ in range(count):
            self._count += 1
            with suppress(OptionError):
                body = b"%d" % self._count
                self._note(key, [body], self.producer.send(body, key=key), fault)
        self._settle(key)

    def _note(self, key: str, bodies: list[bytes], future: SendFuture, fault: str) -> None:
        self.sent.append(Sent(self.targets[key].name, bodies, future, "lost" in fault, self.dead))

    def _settle(self, key: str) -> None:
        self.producer.flush(PATIENCE_SECONDS)
        self.targets[key].fault = ""

    def check(self) -> None:
        stored = {str(path): Counter(self._read(path)) for path in self.paths.values()}
        dead = stored[str(self.paths["dead"])]
        for counts in stored.values():
            assert max(counts.values(), default=1) == 1, counts
        may_be_stored = {(s.place, body) for s in self.sent if s.error is None or s.in_doubt for body in s.bodies}
        for sent in self.sent:
            error = sent.error
            if error is None:
                assert all(stored[sent.place][body] == 1 for body in sent.bodies), sent
            elif error.result.dead_letter:
                assert all(dead[body] == 1 for body in sent.bodies), sent
                first = next(s for s in self.sent if s.bodies == sent.bodies)
                again = [s for s in self.sent if s.bodies == sent.bodies]
                if first.error is not None and all(s.dead and not s.in_doubt for s in again):
                    assert all(stored[sent.place][body] == 0 for body in sent.bodies), sent
            else:
                assert [event.body for event in error.events] == sent.bodies
        for place, counts in stored.items():
            if place != str(self.paths["dead"]):
                assert {(place, body) for body in counts} <= may_be_stored

    def _read(self, path: Path) -> Iterator[bytes]:
        with Channel(path) as channel:
            return iter(peek(channel))


@pytest.mark.timeout(600)
@settings(max_examples=examples(60))
@given(STEPS)
def test_successful_is_stored_once_whoever_numbers_and_however_often_it_is_sent(steps: list[tuple]) -> None:  # type: ignore[type-arg]
    with tempfile.TemporaryDirectory() as directory:
        run = Run(Path(directory))
        try:
            for what, *values in steps:
                if what == "restart":
                    run.restart(*values)
                elif what == "send":
                    run.send(values[0], *values[2:])
                else:
                    run.number(*values, times=3 if what == "number many" else 1)
                run.check()
        finally:
            run.producer.close()
        run.check()
