"""Errors whose text raises, and a log that does."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from spillable_stream import Result
from tests.producer.conftest import MakeProducer
from tests.support.fake_targets import PATIENCE_SECONDS, FakeTarget
from tests.support.producers import Speechless, assert_it_goes_on, error_of


def test_an_error_whose_text_raises_is_told_without_it(produce: MakeProducer, target: FakeTarget) -> None:
    target.fail(Speechless())
    producer = produce(linger_ms=0)
    result = error_of(producer.send(b"x")).result
    assert (result.error_code, result.error_message) == ("Speechless", "(its text can't be told: SystemExit)")
    assert producer.stats().last_error == "Speechless: (its text can't be told: SystemExit)"
    assert_it_goes_on(producer)


class Raising(logging.Handler):
    def handle(self, record: logging.LogRecord) -> bool:
        raise SystemExit("the log is full")


def refuse(record: logging.LogRecord) -> bool:
    raise ValueError("a filter's trouble")


@pytest.fixture(params=["handler", "filter"])
def broken_log(request: pytest.FixtureRequest) -> Iterator[None]:
    log, handler = logging.getLogger("spillable_stream.producer"), Raising()
    if request.param == "handler":
        log.addHandler(handler)
    else:
        log.addFilter(refuse)
    yield
    log.removeHandler(handler)
    log.removeFilter(refuse)


def bad(result: Result) -> None:
    raise ValueError("mine")


@pytest.mark.usefixtures("broken_log")
def test_a_log_that_raises_ends_nothing_and_its_lines_go_to_standard_error(
    produce: MakeProducer, target: FakeTarget, capsys: pytest.CaptureFixture[str]
) -> None:
    target.fail(ValueError("bad"), None)
    producer = produce(linger_ms=0)
    assert error_of(producer.send(b"x")).result.error_code == "ValueError"
    assert producer.send(b"y", callback=bad).result(PATIENCE_SECONDS).successful
    assert_it_goes_on(producer)
    said = capsys.readouterr().err
    assert "1 event for fake failed: ValueError: bad (a logging handler raised" in said
    assert "a callback of a producer raised (a logging handler raised" in said and "ValueError: mine" in said


@pytest.mark.usefixtures("broken_log")
def test_what_is_in_the_dead_letter_channel_is_so_though_the_log_raises(
    produce: MakeProducer, target: FakeTarget
) -> None:
    target.fail(ValueError("bad"))
    dead = FakeTarget(name="dead")
    producer = produce(linger_ms=0, dead_letter=dead)
    assert error_of(producer.send(b"x")).result.dead_letter == "dead" and dead.bodies == [b"x"]
    assert_it_goes_on(producer)


@pytest.mark.usefixtures("broken_log")
def test_a_log_that_raises_does_so_without_a_standard_error_too(
    produce: MakeProducer, target: FakeTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "lastResort", Raising())
    target.fail(ValueError("bad"))
    producer = produce(linger_ms=0)
    assert error_of(producer.send(b"x")).result.error_code == "ValueError"
    assert_it_goes_on(producer)
