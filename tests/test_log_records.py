"""Log records: with fields, and written where SPILLABLE_LOG is set."""

from __future__ import annotations

import ast
import logging
import os
import pickle
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import spillable_stream
from spillable_stream import Channel
from spillable_stream.log import wal
from spillable_stream.log_records import FIELDS, configure, fields, log_of
from tests.support.events import peek, put

PROGRAM = """
import sys
import spillable_stream as ss
with ss.Channel(sys.argv[1], minimum_required_space=0) as channel, channel.put_transaction() as tx:
    tx.put(ss.Event(b"a"))
with ss.Channel(sys.argv[1]) as channel, channel.take_transaction("audit") as tx:
    tx.take()
"""


def written(path: Path, level: str | None) -> str:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    environment.pop("SPILLABLE_LOG", None)
    if level is not None:
        environment["SPILLABLE_LOG"] = level
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, path], env=environment, capture_output=True, text=True, check=True
    ).stderr


def test_nothing_is_written_unless_it_is_asked_for(path: Path) -> None:
    assert written(path, None) == "" == written(path, "error")


def test_errors_reach_a_program_that_does_not_configure_logging() -> None:
    program = "import logging, spillable_stream; logging.getLogger('spillable_stream.x').error('gone')"
    environment = {name: value for name, value in os.environ.items() if name != "SPILLABLE_LOG"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == "gone\n"


def test_debug_says_what_is_done_to_which_channel_and_group(path: Path) -> None:
    lines = written(path, "debug").splitlines()
    assert any(f"DEBUG spillable_stream.channel.open_channel: opened {path} channel={path}" in line for line in lines)
    assert any(line.endswith(f"channel={path} group=audit") for line in lines)
    told = [line.split(" INFO spillable_stream.", 1)[1] for line in lines if " INFO " in line]
    assert told[0] == f"engine.local.creation: created {path} channel={path}"
    (recovered,) = [line for line in told if "recovered" in line]  # not the one who created it
    assert recovered.startswith(f"engine.local.channel_recovery: recovered {path}: log-000001 ends at ")
    assert "DEBUG" not in written(path, "INFO")


def test_a_level_that_is_none_counts_as_info_and_says_so(path: Path) -> None:
    lines = written(path, "loud").splitlines()
    assert "SPILLABLE_LOG is 'loud', not one of debug, info, warning, error" in lines[0]


def test_records_have_fields_for_the_programs_handlers(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "spillable_stream"), Channel(path, minimum_required_space=0) as channel:
        channel.consumer("audit")
    found = {record.message: record for record in caplog.records}
    owned = found[f"the group 'audit' of {path} is owned here"]
    assert (owned.channel, owned.group, owned.levelname) == (str(path), "audit", "DEBUG")  # type: ignore[attr-defined]
    assert all(record.name.startswith("spillable_stream.") for record in caplog.records)


def test_fields_are_there_only_where_the_record_is_about_them() -> None:
    assert fields() == {} and fields("/c", group="g") == {"channel": "/c", "group": "g"}
    of_events = fields("c", group="g", first_id=0, last_id=0, count=0)
    of_places = fields(component="s", query="q", file="f", offset=0, slot=0, seconds=0.0)
    assert set(of_events | of_places) == set(FIELDS)
    assert not set(FIELDS) & set(vars(logging.makeLogRecord({}))), "logging refuses names that all records have"


def test_the_handler_takes_part_in_no_other_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = logging.getLogger("spillable_stream")
    before = tree.handlers[:], tree.propagate, tree.level
    try:
        configure({"SPILLABLE_LOG": "warning"})
        assert not tree.propagate and tree.level == logging.WARNING
    finally:
        tree.handlers[:], tree.propagate = before[0], before[1]
        tree.setLevel(before[2])


PACKAGE = Path(spillable_stream.__file__).parent
LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
NAMING_NOTHING = {
    "%s %s",  # an option of Java's
    "the variable %s is not an option's; the nearest is %s",
    "flume.monitoring.type = %s is not served; give http or prometheus",
    "a request for metrics from %s failed",
    "a request for metrics from %s gets no answer: %s",
    "a request for %r failed",
    "no request for metrics can be accepted now: %s",
    "a network source's task ends; the other ones continue",
    "a callback of a producer raised",
    "the clock of a producer raised; the machine's is used instead",
    "a target could not be closed",
    "a channel was not closed cleanly at the end of a worker: %s",  # it may be none that has a path any more
    "a worker ends without closing its channels, whose next close moves their memory: %s",
    "%s: the listener of spillable channels failed; the query continues",
    "raised to Spark: %s",
    "the channels could not be looked at",
    "%s is %r, not one of %s: it counts as info",
}
NAMED = {
    r"the group %r|group %s": {"group"},
    r"%g s\b|%\.1f s\b": {"seconds"},
    r"%d (events|datagrams|lines)|%s events stay": {"count"},
    r"events? %d to %d": {"first_id", "last_id"},
    r"slot %d": {"slot"},
    r"the spool %s": {"file"},
    r"bytes %d to %d|offset %d": {"offset", "file"},
    r"[Tt]he sink %s": {"component"},
    r"^the path %s": {"file"},
    r"query run %s": {"query"},
}


def log_calls() -> Iterator[tuple[str, ast.Call]]:
    """Yield each call that logs, with its place."""
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text()
        if not re.search(r"\b(_log|tree|logging)\.", text):
            continue
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Call):
                continue
            receiver, _, method = ast.unparse(node.func).rpartition(".")
            if method in LEVELS and (receiver in ("_log", "tree", "logging") or receiver.startswith("_log.of(")):
                yield f"{path.relative_to(PACKAGE)}:{node.lineno}", node


def fields_of(call: ast.Call) -> ast.Call | None:
    """Return the call that makes the fields of a record; None if it has none, or it can't be told."""
    on = call.func.value if isinstance(call.func, ast.Attribute) else None
    if isinstance(on, ast.Call):  # `_log.of(component, ...)`
        return ast.Call(on.func, [], [*on.keywords, ast.keyword("component", on.args[0])])
    return next((k.value for k in call.keywords if k.arg == "extra" and isinstance(k.value, ast.Call)), None)


def message_of(call: ast.Call) -> str | None:
    """Return the message of a call, or None if that is a variable."""
    texts = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    return texts[0] if texts else None


def test_every_record_has_the_fields_that_its_message_names() -> None:
    calls, lacking, unused = 0, [], set(NAMING_NOTHING)
    for place, call in log_calls():
        calls += 1
        message = message_of(call)
        if ast.unparse(call.args[0]) == "format":
            continue  # it passes on what it is given
        given = fields_of(call)
        if given is None and not any(k.arg == "extra" for k in call.keywords):
            unused.discard(message or "")
            lacking += [] if message in NAMING_NOTHING else [f"{place} has no fields: {message}"]
        elif given is not None and ast.unparse(given.func) in ("fields", "_log.of") and message is not None:
            has = {k.arg for k in given.keywords} | ({"channel"} if given.args else set())
            wanted = {name for pattern, names in NAMED.items() if re.search(pattern, message) for name in names}
            lacking += [f"{place} lacks {name}: {message}" for name in sorted(wanted - has)]
    assert not lacking
    assert not unused, "these messages are gone"
    assert calls > 140


def test_every_record_has_as_many_arguments_as_its_message_shows() -> None:
    wrong = []
    for place, call in log_calls():
        message = message_of(call)
        if message is None or any(isinstance(a, ast.Starred) for a in call.args):
            continue
        given = call.args[1 + next(i for i, a in enumerate(call.args) if ast.unparse(a) == repr(message)) :]
        if len(re.findall(r"%[^%]", message.replace("%%", ""))) != len(given):
            wrong.append(f"{place}: {message}")
    assert not wrong


def test_a_log_of_a_component_names_it_first_and_where_it_was_called(program: logging.Logger) -> None:
    program.addHandler(keeping := Keeping())
    log_of(program.name).of("a1.r1", file=Path("/f"), count=2).warning("%d lines of %s", 2, "/f")
    log_of(program.name).of("100%").exception("it failed")
    program.setLevel(logging.INFO)
    log_of(program.name).of("a1.r1").debug("nobody reads it")
    first, second = keeping.records
    assert first.getMessage() == "a1.r1: 2 lines of /f" and first.msg == "%s: %d lines of %s"
    assert (first.component, first.file, first.count) == ("a1.r1", "/f", 2)  # type: ignore[attr-defined]
    assert first.funcName == second.funcName == "test_a_log_of_a_component_names_it_first_and_where_it_was_called"
    assert second.getMessage() == "100%: it failed" and second.exc_info is not None


# ── a log that raises ───────────────────────────────────────────────────────────────────────────


class Raising(logging.Handler):
    def __init__(self, fault: type[BaseException]) -> None:
        super().__init__()
        self.fault = fault

    def handle(self, record: logging.LogRecord) -> bool:
        raise self.fault


class Keeping(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def program() -> Iterator[logging.Logger]:
    """The program's logger of a name of the package."""
    found = logging.getLogger("spillable_stream.of_a_test")
    yield found
    found.handlers.clear()
    found.filters.clear()
    found.setLevel(logging.NOTSET)
    found.disabled = False


@pytest.mark.parametrize("fault", [KeyboardInterrupt, SystemExit])
def test_what_a_signal_raises_amid_a_record_ends_the_program(
    program: logging.Logger, fault: type[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    """SIGTERM may come while a handler waits for a pipe, and `exit_on_sigterm` raises `SystemExit` there."""
    program.addHandler(Raising(fault))
    with pytest.raises(fault):
        log_of(program.name).warning("all is well")
    assert capsys.readouterr().err == ""


def test_a_handler_that_exits_ends_no_thread_of_the_package(
    program: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    program.addHandler(Raising(SystemExit))
    thread = threading.Thread(target=log_of(program.name).warning, args=("%d are gone", 3))
    thread.start()
    thread.join()
    assert capsys.readouterr().err == "3 are gone (a logging handler raised SystemExit)\n"


@pytest.mark.parametrize("fault", [ValueError, GeneratorExit])
def test_a_record_that_a_handler_refuses_goes_to_standard_error_and_raises_nothing(
    program: logging.Logger, fault: type[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    program.addHandler(Raising(fault))
    log_of(program.name).warning("%d are gone", 3)
    log_of(program.name).info("all is well")
    assert capsys.readouterr().err == f"3 are gone (a logging handler raised {fault.__name__})\n"


def test_a_record_that_a_filter_refuses_goes_to_standard_error_with_the_error_that_it_tells(
    program: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    program.addFilter(lambda record: record.levelno < 1 // 0)
    try:
        raise KeyError("mine")
    except KeyError:
        log_of(program.name).exception("a call failed")
    said = capsys.readouterr().err
    assert (
        said.startswith("a call failed (a logging handler raised ZeroDivisionError)\n") and "KeyError: 'mine'" in said
    )


@pytest.mark.parametrize("field", FIELDS)
def test_a_record_factory_that_sets_a_field_of_its_own_loses_no_record(program: logging.Logger, field: str) -> None:
    """Python refuses to overwrite what a factory has set, with a `KeyError` out of the call that logs."""

    def factory(*args: Any, **more: Any) -> logging.LogRecord:
        record = plain(*args, **more)
        setattr(record, field, "the program's")
        return record

    def refuses(*_: Any, **__: Any) -> logging.LogRecord:
        raise ValueError

    plain, handler = logging.getLogRecordFactory(), Keeping()
    program.addHandler(handler)
    for each in (factory, refuses):
        logging.setLogRecordFactory(each)
        try:
            log_of(program.name).warning("%d are gone", 3, extra={field: "ours"})
        finally:
            logging.setLogRecordFactory(plain)
    assert [(r.getMessage(), r.funcName, getattr(r, field)) for r in handler.records] == [
        ("3 are gone", "test_a_record_factory_that_sets_a_field_of_its_own_loses_no_record", "ours")
    ] * 2


@pytest.mark.parametrize("fault", [KeyboardInterrupt, SystemExit])
def test_what_a_signal_raises_within_a_record_factory_ends_the_program(
    program: logging.Logger, fault: type[BaseException]
) -> None:
    def factory(*_: Any, **__: Any) -> logging.LogRecord:
        raise fault

    plain = logging.getLogRecordFactory()
    logging.setLogRecordFactory(factory)
    try:
        with pytest.raises(fault):
            log_of(program.name).warning("all is well")
    finally:
        logging.setLogRecordFactory(plain)


def test_an_interrupt_within_a_handler_is_the_users(program: logging.Logger) -> None:
    program.addHandler(Raising(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        log_of(program.name).error("gone")


def test_the_programs_logger_of_the_name_decides_what_is_logged(
    program: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    log = log_of(program.name)
    program.setLevel(logging.DEBUG)
    log.debug("wanted")
    program.setLevel(logging.ERROR)
    log.warning("not wanted")
    program.addFilter(lambda record: "secret" not in record.msg)
    log.error("secret")
    program.disabled = True
    log.error("disabled")
    (found,) = caplog.records
    where = (found.name, found.filename, found.funcName)
    assert (found.message, *where) == ("wanted", program.name, "test_log_records.py", sys._getframe().f_code.co_name)


def test_a_logger_is_pickled_by_its_name_as_all_are() -> None:
    log = pickle.loads(pickle.dumps(log_of("spillable_stream.of_a_test")))
    assert type(log) is type(log_of("x")) and log.name == "spillable_stream.of_a_test"


def test_a_commit_that_warns_into_a_log_that_raises_is_acknowledged_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wal, "_SLOW_SYNC_SECONDS", 0.0)
    tree, handler = logging.getLogger("spillable_stream"), Raising(ValueError)
    with Channel(path, minimum_required_space=0) as channel:
        tree.addHandler(handler)
        try:
            put(channel, b"x")
        finally:
            tree.removeHandler(handler)
        assert peek(channel) == [b"x"]


def test_every_module_logs_by_what_survives_the_programs_handlers() -> None:
    """The sink ``logger`` does not: a record is all that its events become, so an error brings them back."""
    found = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if re.search(
            r"= logging\.getLogger|logging\.(debug|info|warning|error|exception|critical|log)\(", path.read_text()
        )
    }
    assert found == {"log_records.py", "flow/sinks/logger.py"}
