"""Log records become events, and what comes of sending them never does."""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from spillable_stream import Producer, ProducerHandler, Result
from spillable_stream.errors import OptionError, ProducerTimeoutError
from spillable_stream.producer.event_size import BATCH_BYTES
from tests.producer.conftest import MakeProducer
from tests.support.fake_targets import PATIENCE_SECONDS, FakeTarget

Logger = logging.Logger


@pytest.fixture
def logger() -> Iterator[Logger]:
    """The root logger, with no other handler: what is logged anywhere comes here."""
    gc.collect()  # what other tests left is logged now
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


def test_a_record_that_cannot_be_sent_is_an_error_of_the_handler(
    produce: MakeProducer, logger: Logger, handled: list[logging.LogRecord]
) -> None:
    handler = add(logger, produce(total_size_in_bytes=1500))
    logger.info("x" * 2000)
    assert len(handled) == handler.dropped_records == 1


def test_a_record_for_which_there_is_no_room_is_dropped_counted_and_said(
    produce: MakeProducer,
    target: FakeTarget,
    logger: Logger,
    handled: list[logging.LogRecord],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target.hold()
    producer = produce(total_size_in_bytes=2000, max_block_ms=-1, linger_ms=0)
    handler = add(logger, producer)
    for _ in range(4):
        logger.info("x" * 500)  # each returns, whatever the producer's other sends do
    assert handler.dropped_records == 3 and not handled
    said = capsys.readouterr().err
    assert said.startswith("1 log records were dropped, 1 in all: no room for") and said.count("\n") == 1
    target.let_go()
    producer.flush(PATIENCE_SECONDS)
    monkeypatch.setattr(handler, "_say_again", 0.0)  # as after a minute
    logger.info("there is room again")
    assert capsys.readouterr().err == "2 log records were dropped, 3 in all\n"
    handler.close()
    assert capsys.readouterr().err == "" and handler.dropped_records == 3


def test_what_was_dropped_and_not_yet_said_is_said_at_the_end(
    produce: MakeProducer, target: FakeTarget, logger: Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    target.hold()
    handler = add(logger, produce(total_size_in_bytes=2000, linger_ms=0))
    for _ in range(4):
        logger.info("x" * 500)
    capsys.readouterr()
    handler.close()
    assert capsys.readouterr().err == "2 log records were dropped, 3 in all\n"


@pytest.mark.parametrize(
    "bound",
    [
        {"max_block_ms": -1},
        {"flush_timeout_seconds": -1},
        {"max_block_ms": float("nan")},
        {"max_block_ms": float("inf")},
        {"max_block_ms": 10**400},
        {"flush_timeout_seconds": float("inf")},
    ],
)
def test_a_handler_without_a_bound_is_refused(produce: MakeProducer, bound: dict[str, float]) -> None:
    with pytest.raises(OptionError, match=r"of a logging handler must (be|have)"):
        ProducerHandler(produce(), **bound)  # type: ignore[arg-type]


@pytest.mark.parametrize("wait", [0.5, "0.5", "soon", True])
def test_a_wait_that_no_send_takes_is_refused_at_once_and_not_at_each_record(produce: MakeProducer, wait: Any) -> None:
    with pytest.raises(OptionError, match=r"^max_block_ms of a logging handler must be milliseconds, or a number"):
        ProducerHandler(produce(), max_block_ms=wait)


class Chatty(FakeTarget):
    """Logs when it has stored, as a client of a service does."""

    def commit(self, batch: pa.RecordBatch, producer_id: str, numbers: tuple[int, int]) -> tuple[int, int]:
        found = super().commit(batch, producer_id, numbers)
        logging.getLogger(f"http.{numbers}").warning("POST /commit")
        return found


def in_a_thread(call: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def wait_until_somebody_waits_for_room(producer: Producer) -> None:
    while not producer._pipeline.buffer.room.waiters:
        time.sleep(0)


def test_a_record_that_waits_for_room_keeps_nobody_from_logging_who_makes_it(
    produce: MakeProducer, logger: Logger
) -> None:
    target = Chatty()
    target.hold()
    producer = produce(target, total_size_in_bytes=2000, linger_ms=0)
    handler = add(logger, producer, max_block_ms=60_000)
    logger.info("x" * 500)
    logs = in_a_thread(lambda: logger.info("y" * 500))
    wait_until_somebody_waits_for_room(producer)
    target.let_go()
    logs.join(PATIENCE_SECONDS)
    assert not logs.is_alive() and handler.dropped_records == 0
    handler.flush()
    assert target.bodies == [b"x" * 500, b"y" * 500]


def test_a_record_does_not_wait_for_room_while_its_thread_has_the_lock_of_the_module(
    produce: MakeProducer, target: FakeTarget, logger: Logger
) -> None:
    def log() -> None:
        with logging._lock:  # type: ignore[attr-defined]
            logger.info("y" * 500)

    target.hold()
    handler = add(logger, produce(total_size_in_bytes=2000, linger_ms=0), max_block_ms=60_000)
    logger.info("x" * 500)
    logs = in_a_thread(log)
    logs.join(PATIENCE_SECONDS)
    assert not logs.is_alive() and handler.dropped_records == 1


def test_a_flush_takes_no_longer_than_it_was_told(produce: MakeProducer, target: FakeTarget, logger: Logger) -> None:
    target.hold()
    handler = add(logger, produce(), flush_timeout_seconds=0)
    logger.info("x")
    with pytest.raises(ProducerTimeoutError, match="1 event is still under way"):
        handler.flush()


DICT_CONFIG = """
import logging.config
import spillable_stream as ss
from tests.producer.test_logging_handler import Chatty

def configure():
    handler = {"()": lambda: ss.ProducerHandler(producer, flush_timeout_seconds=3600)}
    root = {"handlers": ["events"], "level": "INFO"}
    logging.config.dictConfig({"version": 1, "handlers": {"events": handler}, "root": root})

target = Chatty()
producer = ss.Producer(target, linger_ms=0, io_thread_count=1)
configure()
target.hold()
logging.info("first")
target.wait_for_attempts(1)
configure()  # closes the first handler, with the lock that the target needs for its own line
target.let_go()
logging.info("second")
producer.close()
print(target.bodies)
"""


def test_a_program_may_configure_its_logging_while_the_producer_logs() -> None:
    command = [sys.executable, "-c", DICT_CONFIG]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE_SECONDS, check=False)
    assert done.stdout == "[b'first', b'second']\n", done.stderr


def test_what_a_callback_logs_is_sent_and_never_waits(
    produce: MakeProducer, target: FakeTarget, logger: Logger
) -> None:
    producer = produce(total_size_in_bytes=2000 + BATCH_BYTES, max_block_ms=-1, linger_ms=0)
    handler = add(logger, producer, max_block_ms=60_000)
    logged = threading.Event()

    def log(result: Result) -> None:
        logger.info("fits")
        logger.info("x" * 500)
        logged.set()

    producer.send(b"x" * 500, callback=log)
    assert logged.wait(PATIENCE_SECONDS)
    handler.flush()
    assert target.bodies == [b"x" * 500, b"fits"] and handler.dropped_records == 1


def test_a_filter_may_give_a_handler_another_record(produce: MakeProducer, target: FakeTarget, logger: Logger) -> None:
    handler = add(logger, produce())
    if sys.version_info >= (3, 12):
        handler.addFilter(lambda r: logging.makeLogRecord({**vars(r), "msg": r.getMessage().upper()}))
    handler.addFilter(lambda r: "secret" not in r.getMessage().lower())
    logger.info("seen")
    logger.info("secret")
    handler.flush()
    assert target.bodies == [b"SEEN" if sys.version_info >= (3, 12) else b"seen"]


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
