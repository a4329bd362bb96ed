"""Log records become events, and what comes of sending them never does."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pyarrow as pa
import pytest

from spillable_stream import Producer, ProducerHandler
from tests.producer.conftest import MakeProducer
from tests.producer.fakes import PATIENCE_SECONDS, FakeTarget

Logger = logging.Logger


@pytest.fixture
def logger() -> Iterator[Logger]:
    """The root logger, with no other handler: what is logged anywhere comes here."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.setLevel(logging.DEBUG)
    yield root
    root.handlers[:] = handlers
    root.setLevel(level)


def add(logger: Logger, producer: Producer, **options: object) -> ProducerHandler:
    handler = ProducerHandler(producer, **options)  # type: ignore[arg-type]
    logger.handlers[:] = [handler]
    return handler


def headers(target: FakeTarget) -> list[dict[str, str]]:
    return [dict(h) for s in sorted(target.stored) for h in target.stored[s].column("headers").to_pylist()]


def test_a_record_is_an_event(produce: MakeProducer, target: FakeTarget, logger: Logger) -> None:
    handler = add(logger, produce(), level=logging.INFO)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logging.getLogger("shop.orders").warning("%d orders in %s", 3, "Zürich \udcff")
    logger.debug("not this")
    handler.flush()
    assert target.bodies == ["WARNING 3 orders in Zürich ".encode() + b"\\udcff"]
    (found,) = headers(target)
    assert (found["logger"], found["level"]) == ("shop.orders", "WARNING")
    assert float(found["time"]) > 1.7e9


def test_exceptions_are_formatted(produce: MakeProducer, target: FakeTarget, logger: Logger) -> None:
    handler = add(logger, produce())
    try:
        raise ValueError("mine")
    except ValueError:
        logger.exception("it failed")
    handler.flush()
    assert b"it failed\nTraceback" in target.bodies[0] and b"ValueError: mine" in target.bodies[0]


def test_what_this_package_logs_goes_to_standard_error_and_is_not_sent(
    produce: MakeProducer, target: FakeTarget, logger: Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    add(logger, produce())
    logging.getLogger("spillable_stream.producer").error("own trouble")
    logging.getLogger("spillable_stream").debug("own detail")
    logging.getLogger("spillable_streams").error("another's")
    logger.handlers[0].flush()
    assert target.bodies == [b"another's"]
    assert capsys.readouterr().err == "own trouble\n"


def test_what_a_target_logs_while_it_commits_is_not_sent(
    produce: MakeProducer, logger: Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    class Chatty(FakeTarget):
        def commit(self, batch: pa.RecordBatch, producer_id: str, numbers: tuple[int, int]) -> tuple[int, int]:
            logging.getLogger("http").warning("POST /commit")
            return super().commit(batch, producer_id, numbers)

    target = Chatty()
    handler = add(logger, produce(target))
    logger.info("once")
    for _ in range(5):
        handler.flush()
    assert target.bodies == [b"once"]
    assert capsys.readouterr().err == "POST /commit\n"


def test_what_formatting_logs_is_not_sent(
    produce: MakeProducer, target: FakeTarget, logger: Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    class Talks:
        def __str__(self) -> str:
            logger.warning("formatting")
            return "formatted"

    handler = add(logger, produce())
    logger.info("%s", Talks())
    handler.flush()
    assert target.bodies == [b"formatted"] and capsys.readouterr().err == "formatting\n"


@pytest.fixture
def handled(monkeypatch: pytest.MonkeyPatch) -> list[logging.LogRecord]:
    found: list[logging.LogRecord] = []
    monkeypatch.setattr(ProducerHandler, "handleError", lambda self, record: found.append(record))
    return found


def test_a_record_that_can_not_be_sent_is_an_error_of_the_handler(
    produce: MakeProducer, target: FakeTarget, logger: Logger, handled: list[logging.LogRecord]
) -> None:
    target.hold()
    add(logger, produce(total_size_in_bytes=1500, max_block_ms=0))
    for i in range(5):
        logger.info("%d %s", i, "x" * 300)
    assert 0 < len(handled) < 5
    target.let_go()


def test_a_record_that_was_not_stored_is_one_too(
    produce: MakeProducer, target: FakeTarget, logger: Logger, handled: list[logging.LogRecord]
) -> None:
    target.fail(ValueError("bad"))
    producer = produce(linger_ms=0)
    add(logger, producer)
    logger.info("lost")
    producer.flush(PATIENCE_SECONDS)
    logger.info("stored")
    producer.flush(PATIENCE_SECONDS)
    assert [r.getMessage() for r in handled] == ["lost"] and target.bodies == [b"stored"]


def test_a_producer_that_is_closed_is_one_too(
    produce: MakeProducer, logger: Logger, handled: list[logging.LogRecord]
) -> None:
    producer = produce()
    handler = add(logger, producer)
    producer.close()
    logger.info("late")
    handler.flush()
    assert [r.getMessage() for r in handled] == ["late"]


def test_structlog_goes_through_it(produce: MakeProducer, target: FakeTarget, logger: Logger) -> None:
    structlog = pytest.importorskip("structlog")
    handler = add(logger, produce())
    structlog.configure(
        processors=[structlog.processors.JSONRenderer(sort_keys=True)],
        logger_factory=structlog.stdlib.LoggerFactory(),
    )
    structlog.get_logger("shop").info("ordered", country="NL")
    structlog.reset_defaults()
    handler.flush()
    assert target.bodies == [b'{"country": "NL", "event": "ordered"}']
