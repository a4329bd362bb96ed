"""How much of a trace comes to Spark, and what a user is told of an error out of all that Spark says around it."""

from __future__ import annotations

import ast
import inspect
import logging
import re
import shutil
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import spillable_stream as ss
from spillable_stream.errors import (
    ChannelClosedError,
    CorruptionError,
    GroupOwnedError,
    OptionError,
    SpillableError,
    StorageError,
)
from spillable_stream.spark import explain
from spillable_stream.spark.datasource import SpillableDataSource
from spillable_stream.spark.source.read_limits import ReadAllAvailable
from spillable_stream.spark.source.stream_reader import SpillableStreamReader
from spillable_stream.spark.spark_errors import short_traces
from tests.support.damage import flip, log_file
from tests.support.spark.versions import SPARK

Put = Callable[..., Path]

pytestmark = pytest.mark.timeout(600)

TRACE = """Traceback (most recent call last):
  File "/x/spillable_stream/spark/short_trace.py", line 40, in call
    raise e.with_traceback(None) from None
spillable_stream.errors."""
AFTER = {
    "nothing": "",
    "the state of a batch's error": "\n SQLSTATE: 38000",
    "a query": "\n SQLSTATE: 38000 SQLSTATE: XXKST\n=== Streaming Query ===\nIdentifier: [id = 1]\n\nLogical Plan:\nx",
    "a query of a worker": "\n=== Streaming Query ===\nIdentifier: [id = 1]\n\nLogical Plan:\nx",
    "Java's trace": "\n\tat org.apache.spark.Job.run(Job.java:1)\n",
    "Java's trace after a blank line": "\n\n\tat org.apache.spark.Job.run(Job.java:1)\n",
    "Connect's": "\n SQLSTATE: 38000\n\nJVM stacktrace:\norg.apache.spark.X\n\tat a.b\nCaused by: x\n\tat a.b",
}


class SparksError(Exception):
    """Stands for one of Spark's, whose text is all that counts."""


# ── into Spark ──────────────────────────────────────────────────────────────────────────────


@short_traces
class Source:
    """A source in small."""

    def partitions(self, start: int, end: int = 0) -> int:
        return self._look(start)

    def read(self, partition: int) -> Iterator[int]:
        yield 1
        self._look(partition)

    def _look(self, start: int) -> int:
        if start < 0:
            raise KeyError(start)
        if start == 0:
            try:
                raise OSError("no disk")
            except OSError as e:
                raise StorageError("the disk failed") from e
        return start


def frames(error: BaseException) -> list[str]:
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)][1:]  # without the test's own


def test_own_error_has_one_frame_and_nothing_that_it_came_from() -> None:
    with pytest.raises(StorageError, match="the disk failed") as e:
        Source().partitions(0)
    assert frames(e.value) == ["call"]
    assert "OSError" not in "".join(traceback.format_exception(e.value))


def test_what_a_note_advises_is_in_the_message_once_however_often_the_error_passes() -> None:
    @short_traces
    class Outer:
        def read(self) -> None:
            Damaged().read()

    @short_traces
    class Damaged:
        def read(self) -> None:
            error = CorruptionError("a frame is damaged", "/c/data/log-000001", 48)
            error.advise("/c")
            raise error

    with pytest.raises(CorruptionError) as e:
        Outer().read()
    assert str(e.value) == (
        "a frame is damaged [/c/data/log-000001, offset 48]: see what is lost with 'spillable verify /c'"
    )
    assert not hasattr(e.value, "__notes__")


ADVICE = {
    "/a or its head was removed; open it again": "/a or its head was removed; start the query again",
    "it is damaged; open the channel again to rebuild it": "it is damaged; start the query again to rebuild it",
    "not at /a any more. Open it again for the one that is there": (
        "not at /a any more. Start the query again for the one that is there"
    ),
    "/a failed and must be opened again: EIO": "/a failed, and the query must be started again: EIO",
    "/a was moved; close the handle, and open the channel where it is now": (
        "/a was moved; start the query again where the channel is"
    ),
    "lock was moved; close every handle, and open the channel where it is now": (
        "lock was moved; close every handle, and start the query again where the channel is"
    ),
    "in the queue: roll back, and begin another take, which claims it again. It is": (
        "in the queue: start the query again. It is"
    ),
    "the IDs of other events: roll back, and begin another take": "the IDs of other events: start the query again",
    "nothing of it is committed. Roll it back, and begin another one": (
        "nothing of it is committed. Start the query again"
    ),
    "Raise overflowCapacity, or put fewer at once": (
        "Raise overflowCapacity, or write fewer rows at once; a query's batch that was planned comes again as it is, "
        "and maxEventsPerTrigger bounds those after it"
    ),
    "the rows do not fit": "the rows do not fit",
}


@pytest.mark.parametrize(("said", "shown"), ADVICE.items())
def test_what_a_program_would_do_with_its_handle_is_told_as_what_a_user_of_spark_can_do(said: str, shown: str) -> None:
    error = GroupOwnedError(said, "an owner")
    for _ in range(2):  # the same error may pass again
        with pytest.raises(GroupOwnedError) as e:
            Raising(error).commit()
        assert (str(e.value), e.value.owner) == (shown, "an owner")


@short_traces
class Raising:
    """A source whose every call raises an error."""

    def __init__(self, error: SpillableError) -> None:
        self._error = error

    def commit(self) -> None:
        raise self._error


def test_every_advice_about_a_handle_has_its_words_in_spark() -> None:
    """A message that is worded anew in another module is noticed here."""
    package = Path(inspect.getfile(ss)).parent
    about_handles = re.compile(
        r"open (it|the channel) again|be opened again|open the channel where|close the handle,|roll (it )?back,", re.I
    )
    found = set()
    for room in ("channel", "engine", "log", "storage", "objects"):
        for module in sorted((package / room).rglob("*.py")):
            for node in ast.walk(ast.parse(module.read_text())):
                if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Error"):
                    texts = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
                    text = "".join(t for t in texts if isinstance(t, str))
                    if about_handles.search(text):
                        found.add(text)
                        with pytest.raises(SpillableError) as e:
                            Raising(SpillableError(text)).commit()
                        assert not about_handles.search(str(e.value)), module
    assert len(found) > 5


def test_a_source_whose_channel_was_removed_advises_to_start_the_query_again(tmp_path: Path) -> None:
    with ss.Channel(tmp_path / "c") as channel, channel.put_transaction() as tx:
        tx.put(ss.Event(b"x"))
    schema = SpillableDataSource({"path": str(tmp_path / "c")}).schema()
    reader = SpillableDataSource({"path": str(tmp_path / "c")}).streamReader(schema)
    start = reader.initialOffset()
    reader.latestOffset(start, ReadAllAvailable())
    shutil.rmtree(tmp_path / "c")
    with pytest.raises(ChannelClosedError, match="start the query again"):
        reader.latestOffset(start, ReadAllAvailable())


def test_own_error_of_an_iterator_has_one_frame() -> None:
    rows = Source().read(0)
    assert next(rows) == 1
    with pytest.raises(StorageError) as e:
        next(rows)
    assert frames(e.value) == ["_short_iterator"]


def test_any_other_error_keeps_its_trace() -> None:
    with pytest.raises(KeyError) as e:
        Source().partitions(-1)
    assert frames(e.value)[-2:] == ["partitions", "_look"]
    rows = Source().read(-1)
    next(rows)
    with pytest.raises(KeyError) as e:
        next(rows)
    assert frames(e.value)[-2:] == ["read", "_look"]


def test_trace_is_in_the_log_for_whoever_debugs(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "spillable_stream"), pytest.raises(StorageError):
        Source().partitions(0)
    logged = caplog.records[-1].exc_info
    assert logged
    assert [frame.name for frame in traceback.extract_tb(logged[2])][-1] == "_look"


def test_methods_look_as_they_were_to_spark_which_asks_for_their_parameters() -> None:
    assert list(inspect.signature(Source().partitions).parameters) == ["start", "end"]
    assert list(inspect.signature(SpillableStreamReader.latestOffset).parameters) == ["self", "start", "limit"]
    assert inspect.isgeneratorfunction(inspect.unwrap(Source.read))
    assert Source().partitions(3) == 3


def test_source_raises_with_one_frame() -> None:
    with pytest.raises(OptionError) as e:
        SpillableDataSource({}).schema()
    assert frames(e.value) == ["call"]
    assert isinstance(e.value, SpillableError)


# ── out of a text ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("after", AFTER.values(), ids=AFTER)
@pytest.mark.parametrize("message", ["the group 'g' is owned: stop it", "it has\n  a: int\nand not\n  b: int", "a: b"])
def test_sentence_is_all_of_the_message_and_nothing_else(message: str, after: str) -> None:
    text = f"[STREAM_FAILED] Query terminated with exception: {TRACE}GroupOwnedError: {message}{after}"
    assert explain(SparksError(text)) == message


def test_of_several_errors_the_last_one_counts_that_is_not_a_repetition_in_a_trace_of_java() -> None:
    text = (
        f"failed: {TRACE}ChannelFullError: no room\n\nDuring handling of the above exception, another exception "
        f"occurred:\n\n{TRACE}StorageError: no disk\n\nJVM stacktrace:\nSuppressed: {TRACE}ChannelClosedError: closed\n"
    )
    assert explain(SparksError(text)) == "no disk"


def test_sentence_that_only_a_trace_of_java_has_is_found() -> None:
    assert explain(SparksError(f"failed\n\nJVM stacktrace:\nCaused by: {TRACE}StorageError: no disk\n")) == "no disk"


def test_class_that_this_package_does_not_have_is_none_of_its_errors() -> None:
    assert explain(SparksError(f"x\n{TRACE}__doc__: y")).startswith("the error is not one of spillable_stream: ")
    assert explain(SparksError("spillable_stream.errors.py: y")).startswith("the error is not one of spillable_stream")


# ── out of an exception ─────────────────────────────────────────────────────────────────────


def test_own_error_is_its_message() -> None:
    assert explain(ss.CorruptionError("damaged", "/c/log", 7)) == "damaged [/c/log, offset 7]"


def test_errors_of_any_module_of_the_package_are_explained() -> None:
    raised = TRACE.replace("spillable_stream.errors.", "spillable_stream.objects.store.")
    assert explain(SparksError(f"{raised}StoreError: the bucket is gone\n SQLSTATE: 38000")) == "the bucket is gone"


def test_error_that_was_raised_from_an_own_one_is_explained_by_that() -> None:
    error = RuntimeError("the job failed")
    error.__cause__ = ss.ChannelFullError("no room")
    assert explain(error) == "no room"
    error.__cause__.__cause__ = error  # nothing forbids it
    assert explain(error) == "no room"


def test_of_a_group_of_errors_each_one_is_a_line() -> None:
    """It was "not one of spillable_stream", and how many there were."""
    inner = RuntimeError("the job failed")
    inner.__cause__ = ss.StorageError("no disk")
    full = ss.ChannelFullError("no room")
    group = ExceptionGroup("two channels", [full, ExceptionGroup("one", [inner, ss.ChannelFullError("no room")])])
    assert explain(group) == "no room\nno disk"
    with pytest.raises(ExceptionGroup) as raised:
        raise group
    trace = "".join(traceback.format_exception(raised.value))
    assert explain(SparksError(f"the query failed\n{trace}\n SQLSTATE: 38000")) == "no room\nno disk"


def test_error_while_an_own_one_was_handled_is_another_matter() -> None:
    try:
        try:
            raise ss.ChannelFullError("no room")
        except ss.ChannelFullError:
            {}["x"]
    except KeyError as e:
        assert explain(e) == "the error is not one of spillable_stream: KeyError: 'x'"


def test_another_error_of_python_is_named_by_what_its_trace_ends_with() -> None:
    """The first line of Spark's text ended with the trace's beginning, and said nothing."""
    trace = 'Traceback (most recent call last):\n  File "f.py", line 1, in <module>\n    import shop\n'
    told = "ModuleNotFoundError: No module named 'shop'"
    for text in (f"Failed to plan: {trace}{told}\n SQLSTATE: 38000", f"Failed to plan\n{trace}{told}\n"):
        assert explain(SparksError(text)).endswith(f"SparksError: Failed to plan: {told}")


def test_another_error_of_python_is_the_one_that_was_raised_from_its_cause() -> None:
    try:
        try:
            raise KeyError("x")
        except KeyError as e:
            raise ValueError("the shop is closed") from e
    except ValueError:
        trace = traceback.format_exc()
    assert explain(SparksError(f"See the trace below.\n{trace}")).endswith(": ValueError: the shop is closed")


def test_another_error_of_python_is_the_one_that_kept_spark_from_a_reader() -> None:
    """Each Spark stops the reader that it then does not have, and Python says that of the variable."""

    def runs(make: Callable[[], SpillableStreamReader]) -> None:
        try:
            reader = make()
        finally:
            reader.stop()

    def fail() -> SpillableStreamReader:
        raise ModuleNotFoundError("No module named 'shop'")

    try:
        runs(fail)
    except UnboundLocalError:
        trace = traceback.format_exc()
    assert explain(SparksError(f"See the trace below.\n{trace}")).endswith(
        "ModuleNotFoundError: No module named 'shop'"
    )


@pytest.mark.parametrize("error", [KeyError(), KeyError("")])
def test_error_without_a_message_is_named(error: KeyError) -> None:
    assert explain(error).startswith("the error is not one of spillable_stream: KeyError")


def test_query_without_an_exception_has_none() -> None:
    assert explain(None) == "there is no error"


# ── real Spark ──────────────────────────────────────────────────────────────────────────────


def lines_up_to(sentence: str, text: str) -> list[str]:
    """Return the lines of an exception up to the one that has the sentence, as users see it.

    They see no source of Spark's own frames, which run from an archive.
    """
    text = re.sub(r'(^  File "[^"]*/pyspark/.*\n)(?:    .*\n)+', r"\1", text, flags=re.MULTILINE)
    assert text.count(sentence) == 1
    return text[: text.index(sentence)].lstrip("\n").splitlines()


def load(spark: SparkSession, path: Path, **options: Any) -> DataFrame:
    return spark.read.format("spillable").options(**options).load(str(path))


def damage(path: Path, body: bytes) -> None:
    """Change one byte of a body where it is stored."""
    file = path / "data" / "log-000001"
    data = bytearray(file.read_bytes())
    data[data.index(body)] ^= 1
    file.write_bytes(bytes(data))


@pytest.mark.spark
def test_batch_says_it_in_sparks_fourth_line_and_explained_in_one(
    spark: SparkSession, put: Put, tmp_path: Path
) -> None:
    path = put("a", b"x" * 100)
    rows = spark.range(1)
    writer = rows.write.format("spillable").mode("append")
    damaged = put("d", b"y" * 100)
    damage(damaged, b"y" * 100)
    found = [
        (lambda: load(spark, tmp_path / "none"), f"{tmp_path}/none is not a channel: it is missing. "),
        (
            lambda: load(spark, path, startingOffsets=99).collect(),
            f"the start 99 is after the next event of {path}, 2",
        ),
        (lambda: writer.save(str(path)), f"{path} is an event channel (headers, body) and can't have other columns"),
        (lambda: load(spark, damaged).collect(), "a frame is damaged in the event 1 ["),
        (lambda: load(spark, damaged).toPandas(), "a frame is damaged in the event 1 ["),
    ]
    for act, sentence in found:
        with pytest.raises(PySparkException) as e:
            act()
        assert len(lines_up_to(sentence, str(e.value))) <= 5
        assert explain(e.value).startswith(sentence)
        assert "\n" not in explain(e.value)


@pytest.mark.spark
def test_stream_says_it_last_before_its_plan_and_explained_in_one_line(
    spark: SparkSession, put: Put, tmp_path: Path
) -> None:
    path, damaged = put("a", b"x"), put("d", b"y" * 100)
    damage(damaged, b"y" * 100)

    def start(path: Path, sink: str, **options: Any) -> Any:
        events = spark.readStream.format("spillable").schema("headers MAP<STRING, STRING>, body BINARY")
        writer = events.options(**options).load(str(path)).selectExpr("body AS wrong").writeStream.format(sink)
        return writer.option("checkpointLocation", str(tmp_path / f"ck-{path.name}-{sink}")).start(str(path))

    found = [
        (lambda: start(path, "noop", endingOffsets=5), "endingOffsets is not an option of a Spark stream's source but"),
        (lambda: start(path, "spillable"), f"{path} is an event channel (headers, body) and can't have other columns"),
        (lambda: start(damaged, "noop"), "a frame is damaged in the event 1 ["),
    ]
    for act, sentence in found:
        query = act()
        with pytest.raises(PySparkException) as e:
            query.awaitTermination(500)
        assert len(lines_up_to(sentence, str(e.value))) <= 7  # two of them Spark's own frames
        after = [line for line in str(e.value)[str(e.value).index(sentence) :].splitlines()[1:] if line]
        assert re.match(" SQLSTATE: |=== Streaming Query ===" + ("" if SPARK >= (4, 2) else "|\tat "), after[0])
        for error in (e.value, query.exception()):
            assert explain(error).startswith(sentence)
            assert "\n" not in explain(error)


@pytest.mark.spark
def test_damage_in_a_channel_is_told_with_what_shows_the_loss_wherever_spark_finds_it(
    spark: SparkSession, put: Put, tmp_path: Path
) -> None:
    damaged, broken = put("d", b"y" * 100), put("b", b"y")
    damage(damaged, b"y" * 100)
    flip(log_file(broken), 8)
    rows = spark.createDataFrame([({}, b"z")], "headers MAP<STRING, STRING> NOT NULL, body BINARY NOT NULL")

    def stream(path: Path) -> None:
        events = spark.readStream.format("spillable").schema("headers MAP<STRING, STRING>, body BINARY")
        events.load(str(path)).writeStream.format("noop").start().awaitTermination(500)

    found = [
        (damaged, lambda: load(spark, damaged).collect()),
        (damaged, lambda: stream(damaged)),
        (broken, lambda: load(spark, broken)),
        (broken, lambda: stream(broken)),
        (broken, lambda: rows.write.format("spillable").mode("append").save(str(broken))),
    ]
    for path, act in found:
        with pytest.raises(PySparkException) as e:
            act()
        assert re.fullmatch(rf".+ \[.+\]: see what is lost with 'spillable verify {path}'", explain(e.value))


@pytest.mark.spark
def test_stream_whose_channel_is_gone_when_a_batch_ends_says_that_and_not_that_writing_failed(
    spark: SparkSession, put: Put, tmp_path: Path
) -> None:
    """Spark makes the writer anew to commit, and again to abort; an error of the second would hide the first."""
    found: list[str] = []
    # A task that begins to write only when the channel is gone says that itself, and is no matter: the next has longer.
    while len(found) < 5:
        name, seconds = str(len(found)), 0.5 * len(found)
        found.append(lost_in_a_batch(spark, put(f"a{name}", b"x"), tmp_path / name, seconds))
        if not any(said in found[-1] for said in (" has no channel at ", " has no directory ")):
            break
    assert found[-1].startswith(f"{tmp_path / str(len(found) - 1) / 'sink'} is not a channel: it is a file"), found


def lost_in_a_batch(spark: SparkSession, source: Path, directory: Path, seconds: float) -> str:
    """Return how the end of a query is explained whose sink's channel goes so many seconds after its rows are read."""
    sink, elsewhere = directory / "sink", directory / "elsewhere"

    def lose_the_sink(body: bytes) -> bytes:
        time.sleep(seconds)
        sink.rename(elsewhere)
        sink.write_text("no channel")
        return body

    events = spark.readStream.format("spillable").load(str(source))
    rows = events.select("headers", F.udf(lose_the_sink, "binary")("body").alias("body"))
    query = rows.writeStream.format("spillable").option("checkpointLocation", str(directory / "ck")).start(str(sink))
    with pytest.raises(PySparkException) as e:
        query.awaitTermination(500)
    assert explain(e.value) == explain(query.exception())
    return explain(e.value)


@pytest.mark.spark
def test_batch_functions_own_write_is_explained(spark: SparkSession, put: Put, tmp_path: Path) -> None:
    def write(batch: DataFrame, _: int) -> None:
        batch.write.format("spillable").mode("append").option("maxInlineBites", 1).save(str(tmp_path / "b"))

    query = spark.readStream.format("spillable").load(str(put("a", b"x"))).writeStream.foreachBatch(write).start()
    with pytest.raises(PySparkException) as e:
        query.awaitTermination(500)
    assert explain(e.value) == "'maxinlinebites' is not an option of a Spark sink; the nearest is 'maxInlineBytes'"


@pytest.mark.spark
def test_error_of_spark_itself_is_none_of_ours(spark: SparkSession) -> None:
    with pytest.raises(PySparkException) as e:
        spark.sql("SELECT x")
    assert explain(e.value).startswith(
        "the error is not one of spillable_stream: AnalysisException: [UNRESOLVED_COLUMN"
    )
