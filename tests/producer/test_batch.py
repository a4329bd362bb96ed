"""The end of a batch: told to all who sent, freed once."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from spillable_stream import Result
from tests.producer.conftest import MakeProducer
from tests.support.fake_targets import PATIENCE_SECONDS, FakeTarget
from tests.support.producers import assert_it_goes_on


def test_a_watcher_that_raises_harms_nobody(produce: MakeProducer, target: FakeTarget) -> None:
    class Watcher:
        def finish(self, *, forked: bool = False) -> None:
            raise SystemExit

    target.hold()
    producer = produce(linger_ms=0)
    futures = [producer.send(b"x") for _ in range(2)]
    assert futures[0].batch.watch(0, Watcher())
    done = threading.Event()
    futures[1].add_done_callback(lambda f: done.set())
    target.let_go()
    assert futures[0].result(PATIENCE_SECONDS).successful and done.wait(PATIENCE_SECONDS)
    assert_it_goes_on(producer)


def test_a_batch_that_cannot_be_told_to_all_has_its_result_anyway(
    produce: MakeProducer, target: FakeTarget, caplog: pytest.LogCaptureFixture
) -> None:
    target.hold()
    producer = produce(linger_ms=0)
    future = producer.send(b"x", callback=lambda r: None)

    class NoMemory(list[Any]):
        def __iter__(self) -> Any:
            raise MemoryError

    future.batch.callbacks = NoMemory(future.batch.callbacks)
    target.let_go()
    assert future.result(PATIENCE_SECONDS).successful
    assert [r.message for r in caplog.records] == ["not everybody could be told about a batch for fake"]
    assert_it_goes_on(producer)


def test_a_batch_that_could_not_be_freed_at_once_is_freed_and_was_stored(
    produce: MakeProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def release(batch: Any) -> None:
        monkeypatch.undo()
        raise MemoryError

    producer = produce(linger_ms=0)
    monkeypatch.setattr(producer._pipeline.buffer, "release", release)
    assert producer.send(b"x").result(PATIENCE_SECONDS).successful
    producer.flush(PATIENCE_SECONDS)
    assert_it_goes_on(producer)


def test_what_goes_with_its_callback_may_look_at_its_future(produce: MakeProducer, target: FakeTarget) -> None:
    found: list[object] = []

    class Request:
        def __init__(self) -> None:
            self.future = producer.send(b"x", callback=self.told)

        def told(self, result: Result) -> None:
            """Be the only one that keeps the request."""

        def __del__(self) -> None:
            found.append(self.future.exception(0))

    producer = produce(linger_ms=60_000)
    for _ in range(2):
        Request()
    producer.flush(PATIENCE_SECONDS)
    assert found == [None, None]
