"""A stream through a flow: each row is once in each channel that its source's selector names."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import spillable_stream as ss
from spillable_stream import Event
from spillable_stream.engine.local.local_port import LocalPort
from spillable_stream.engine.port import Put, SinkBatch
from spillable_stream.flow.event_batch import as_event_batch
from spillable_stream.flow.interceptors.base import InterceptorChain
from spillable_stream.flow.interceptors.headers import Static
from spillable_stream.flow.interceptors.regex_filter import RegexFilter
from spillable_stream.flow.selectors import Routes, Selector
from spillable_stream.format.batch import encode_batch
from spillable_stream.spark.sink import flow_writer, optional_channels
from spillable_stream.spark.sink.flow_writer import FlowStreamWriter
from tests.spark.sink.test_flow_plan import CONF, plan, write_conf
from tests.support.delays import clock_of
from tests.support.events import peek, take

CHANNELS = ("ok", "errors", "may", "dead")


def staged(writer: Any, *tasks: Sequence[bytes], batch_id: int = 1) -> list[Any]:
    return [writer._stage(iter([as_event_batch([Event(b) for b in task])]), "query", batch_id) for task in tasks]


def stored(directory: Path) -> dict[str, list[bytes]]:
    found = {}
    for name in CHANNELS:
        with ss.Channel(directory / name, create=False) as channel:
            found[name] = peek(channel)
    return found


def test_rows_go_where_the_flow_leads_and_a_repetition_changes_nothing(tmp_path: Path) -> None:
    writer = FlowStreamWriter(plan(tmp_path))
    for _ in range(2):
        writer.commit(staged(writer, [b"INFO a", b"ERROR b"], [b"INFO bad", b"WARN c"]), 1)
    assert stored(tmp_path) == {
        "ok": [b"INFO a", b"WARN c"],
        "errors": [b"ERROR b"],
        "may": [b"INFO a"],
        "dead": [b"INFO bad"],
    }
    with ss.Channel(tmp_path / "dead") as dead, dead.take_transaction() as tx:
        (event,) = tx.take_many(2)
    assert event.headers["deadletter.component"] == "r1/Picky"
    assert event.headers["deadletter.error"] == "ValueError: it is bad"


class FirstMust(Selector):
    """Sends each event to a channel that must have the first one, and may have all; to another one the second one."""

    def select(self, batch: pa.RecordBatch, number: int) -> Routes:
        return Routes({"ok": pa.array([0]), "errors": pa.array([1])}, {"ok": None, "errors": pa.array([0, 1])})


def test_no_event_that_a_channel_must_have_is_lost_or_twice_where_it_may_have_it_too(tmp_path: Path) -> None:
    lines = [line for line in CONF.splitlines() if "selector" not in line]
    lines.append(f"a1.sources.r1.selector.type = {__name__}.FirstMust")
    writer = FlowStreamWriter(plan(tmp_path, "\n".join(lines) + "\n"))
    writer.commit(staged(writer, [b"INFO a", b"INFO b"]), 1)
    assert stored(tmp_path) == {"ok": [b"INFO a", b"INFO b"], "errors": [b"INFO a", b"INFO b"], "may": [], "dead": []}


def test_each_dead_letter_of_a_micro_batch_has_an_id_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever query, whichever task, and whichever of the batches that Spark hands it, has the event."""
    writer, queries = FlowStreamWriter(plan(tmp_path)), ("one", "other", "one")
    for query in queries:  # the last one repeats the batch of the first one
        found = []
        for task in (0, 1):
            monkeypatch.setattr(flow_writer, "partition_id", lambda task=task: task)
            rows = [as_event_batch([Event(b"INFO bad %d" % i)]) for i in range(2)]
            found.append(writer._stage(iter(rows), query, 7))
        writer.commit(found, 7)
    with ss.Channel(tmp_path / "dead") as dead, dead.take_transaction() as tx:
        ids = [e.headers["deadletter.id"] for e in tx.take_many(20)]
    assert ids == [f"r1:{query}-7:{i}" for query in queries[:2] for i in ("0:0", "0:1", "1:0", "1:1")]


def test_a_dead_letter_of_a_task_that_is_tried_again_has_its_id_again(tmp_path: Path) -> None:
    writer = FlowStreamWriter(plan(tmp_path))
    staged(writer, [b"INFO bad"])
    writer.commit(staged(writer, [b"INFO bad"]), 1)
    with ss.Channel(tmp_path / "dead") as dead, dead.take_transaction() as tx:
        assert [e.headers["deadletter.id"] for e in tx.take_many(9)] == ["r1:query-1:0:0"]


def commit_but_to_errors(writer: FlowStreamWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commit the batch 1, of two events, where the channel of errors fails."""
    publish = LocalPort.publish

    def faulty(port: LocalPort, *arguments: Any) -> bool:
        if Path(port._engine.path).name == "errors":
            raise ss.errors.StorageError("the disk failed")
        return publish(port, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(LocalPort, "publish", faulty)
        with pytest.raises(ss.errors.IncompleteWriteError, match="the channel ok has its rows, and it failed in"):
            writer.commit(staged(writer, [b"INFO a", b"ERROR b"]), 1)


def test_a_batch_that_failed_in_one_channel_is_completed_by_its_repetition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = FlowStreamWriter(plan(tmp_path))
    commit_but_to_errors(writer, monkeypatch)
    assert stored(tmp_path)["may"] == []
    writer.commit(staged(writer, [b"INFO a", b"ERROR b"]), 1)
    assert stored(tmp_path) == {"ok": [b"INFO a"], "errors": [b"ERROR b"], "may": [b"INFO a"], "dead": []}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("selector.mapping.ERROR = errors", "selector.mapping.ERROR = ok"),
        ("i1.regex = ^(\\\\w+)", "i1.regex = ^\\\\w+ (\\\\w+)"),
        ("interceptors = i1 i2", "interceptors = i1"),
        ("a1.sources.r1.deadLetter = dead\n", ""),
        ("", "a1.channels.ok.ttlHeader = ttl\n"),
    ],
)
def test_a_batch_that_some_channels_have_is_not_completed_by_another_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, after: str
) -> None:
    """An event that has another way now would be nowhere if its new channel has the batch already."""
    changed = CONF.replace(before, after) if before else CONF + after
    assert changed != CONF
    writer = FlowStreamWriter(plan(tmp_path))
    writer.commit(staged(writer, [b"INFO early"]), 0)
    commit_but_to_errors(writer, monkeypatch)
    other = FlowStreamWriter(plan(tmp_path, changed))
    with pytest.raises(ss.OptionError, match="the channel ok has, from query, the batch 1, stored when"):
        other.commit(staged(other, [b"INFO a", b"ERROR b"]), 1)
    assert stored(tmp_path)["ok"] == [b"INFO early", b"INFO a"] and stored(tmp_path)["errors"] == []

    writer = FlowStreamWriter(plan(tmp_path))
    writer.commit(staged(writer, [b"INFO a", b"ERROR b"]), 1)
    assert stored(tmp_path)["ok"] == [b"INFO early", b"INFO a"] and stored(tmp_path)["errors"] == [b"ERROR b"]
    other = FlowStreamWriter(plan(tmp_path, changed))
    other.commit(staged(other, [b"INFO c"]), 2)
    assert stored(tmp_path)["ok"][-1] == b"INFO c"


def test_a_file_that_is_changed_while_a_batch_is_under_way_sends_no_row_elsewhere(tmp_path: Path) -> None:
    """Spark's commit reads the file again. The rows were divided before, and the next commit knows how."""
    writer = FlowStreamWriter(plan(tmp_path))
    messages = staged(writer, [b"INFO a", b"ERROR b"])
    FlowStreamWriter(plan(tmp_path, CONF.replace("mapping.ERROR = errors", "mapping.ERROR = ok"))).commit(messages, 1)
    assert stored(tmp_path)["ok"] == [b"INFO a"] and stored(tmp_path)["errors"] == [b"ERROR b"]
    again = FlowStreamWriter(plan(tmp_path))
    again.commit(staged(again, [b"INFO a", b"ERROR b"]), 1)
    assert stored(tmp_path)["ok"] == [b"INFO a"] and stored(tmp_path)["errors"] == [b"ERROR b"]


@pytest.mark.parametrize(
    ("channels", "left"), [("errors ok may", []), ("ok may", ["errors-data"]), ("ok errors", ["may-data"])]
)
def test_a_batch_whose_channels_are_others_when_it_ends_is_refused_and_leaves_nothing_in_them(
    tmp_path: Path, channels: str, left: list[str]
) -> None:
    found = plan(tmp_path)
    writer = FlowStreamWriter(replace(found, channels=tuple(replace(c, max_inline_bytes=0) for c in found.channels)))
    messages = staged(writer, [b"INFO a", b"ERROR b"])
    text = CONF.replace("mapping.ERROR = errors", "mapping.ERROR = ok")
    if "may" not in channels:
        text = text.replace("a1.sources.r1.selector.optional.INFO = may\n", "")
    other = FlowStreamWriter(plan(tmp_path, text.replace("r1.channels = ok errors may", f"r1.channels = {channels}")))
    with pytest.raises(ss.OptionError, match=r"had the channels ok, errors, dead, may when .* and has .* now, in"):
        other.commit(messages, 1)
    other.abort(messages, 1)
    assert [p.parent.name for p in tmp_path.rglob("seg*")] == left
    assert all(rows == [] for rows in stored(tmp_path).values())
    writer.commit(staged(writer, [b"INFO a", b"ERROR b"]), 1)
    assert stored(tmp_path)["ok"] == [b"INFO a"] and stored(tmp_path)["errors"] == [b"ERROR b"]


CHANGED = CONF.replace("mapping.ERROR = errors", "mapping.ERROR = ok")


def test_a_batch_is_not_completed_by_tasks_that_divided_it_by_a_file_that_has_been_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What counts is how the tasks divided it, and not what the file says when Spark reads it for the commit."""
    commit_but_to_errors(FlowStreamWriter(plan(tmp_path)), monkeypatch)
    by_another = staged(FlowStreamWriter(plan(tmp_path, CHANGED)), [b"INFO a", b"ERROR b"])
    with pytest.raises(ss.OptionError, match="the channel ok has, from query, the batch 1, stored when"):
        FlowStreamWriter(plan(tmp_path)).commit(by_another, 1)
    assert (stored(tmp_path)["ok"], stored(tmp_path)["errors"]) == ([b"INFO a"], [])
    by_the_same = staged(FlowStreamWriter(plan(tmp_path)), [b"INFO a", b"ERROR b"])
    FlowStreamWriter(plan(tmp_path, CHANGED)).commit(by_the_same, 1)
    assert (stored(tmp_path)["ok"], stored(tmp_path)["errors"]) == ([b"INFO a"], [b"ERROR b"])


OK_MAY = CONF.replace("default = ok", "default = errors").replace("optional.INFO = may", "optional.INFO = ok")
OK_IS_NOT_THE_SOURCES = (
    CONF.replace("r1.channels = ok errors may", "r1.channels = errors may").replace("default = ok", "default = errors")
    + "a1.sinks = k1\na1.sinks.k1.type = logger\na1.sinks.k1.channel = ok\n"
)
MAY_MUST = (
    CONF.replace("r1.channels = ok errors may", "r1.channels = errors may")
    .replace("default = ok", "default = may")
    .replace("a1.sources.r1.selector.optional.INFO = may\n", "")
)


@pytest.mark.parametrize(
    ("changed", "has"),
    [
        pytest.param(OK_MAY, "the channels may, ok have", id="a required channel is optional now"),
        pytest.param(OK_IS_NOT_THE_SOURCES, "the channels may, ok have", id="a channel is another component's now"),
        pytest.param(MAY_MUST, "the channel may has", id="an optional channel is required now"),
    ],
)
def test_a_batch_is_refused_that_a_channel_has_which_the_file_named_otherwise(
    tmp_path: Path, changed: str, has: str
) -> None:
    writer = FlowStreamWriter(plan(tmp_path))
    writer.commit(staged(writer, [b"INFO a"]), 1)
    other = FlowStreamWriter(plan(tmp_path, changed))
    with pytest.raises(ss.OptionError, match=f"{has}, from query, the batch 1, stored when"):
        other.commit(staged(other, [b"INFO a"]), 1)
    assert stored(tmp_path) == {"ok": [b"INFO a"], "errors": [], "may": [b"INFO a"], "dead": []}
    other = FlowStreamWriter(plan(tmp_path, changed))
    other.commit(staged(other, [b"INFO b"], batch_id=2), 2)
    assert stored(tmp_path)["may" if changed == MAY_MUST else "errors"][-1] == b"INFO b"


def test_channels_that_are_not_the_sources_are_asked_at_the_first_batch_of_a_run_and_never_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan(tmp_path)
    asked, run = list[str](), uuid.uuid4().hex
    visit = optional_channels.visit_to_read
    monkeypatch.setattr(optional_channels, "visit_to_read", lambda path: asked.append(path) or visit(path))
    text = OK_IS_NOT_THE_SOURCES.replace("a1.channels = ok", "a1.channels = new ok") + "a1.sinks.k1.channel = new\n"
    text += f"a1.channels.new.type = file\na1.channels.new.path = {tmp_path}/new\n"
    for batch_id in (1, 2):
        writer = FlowStreamWriter(plan(tmp_path, text))
        messages = staged(writer, [b"INFO a"], batch_id=batch_id)
        for found in messages[0].of_shards.values():
            found.run = run
        writer.commit(messages, batch_id)
        assert asked == [str(tmp_path / "new")] and not (tmp_path / "new").exists()
    assert stored(tmp_path)["errors"] == [b"INFO a", b"INFO a"]


def test_a_task_whose_rows_are_all_for_optional_channels_says_which_run_it_is_of(tmp_path: Path) -> None:
    (message,) = staged(FlowStreamWriter(plan(tmp_path)), [b"INFO a"])
    message.of_shards.clear()
    assert message.run == message.checkpoints == ""
    message.optional["may"].staged.run = "a run"
    message.optional["may"].staged.checkpoints = "/checkpoints"
    assert (message.run, message.checkpoints) == ("a run", "/checkpoints")


def test_all_channels_remember_a_batch_in_one_form(tmp_path: Path) -> None:
    found = plan(tmp_path)
    writer = FlowStreamWriter(found)
    writer.commit(staged(writer, [b"INFO a", b"ERROR b", b"INFO bad"]), 1)
    for name in CHANNELS:
        with ss.Channel(tmp_path / name, create=False) as channel:
            assert channel.stats().sinks == {f"query/{found.division}": 1}, name


def test_a_batch_that_a_stream_without_a_flow_stored_is_not_stored_again_by_one(tmp_path: Path) -> None:
    found = plan(tmp_path)
    with ss.Channel(tmp_path / "errors", create=False) as channel:
        frames = encode_batch(as_event_batch([Event(b"ERROR b")]))
        assert channel.port().publish(Put(frames, [], SinkBatch("query", 1)), 0.0)
    writer = FlowStreamWriter(found)
    with pytest.raises(ss.OptionError, match="the channel errors has, from query, the batch 1"):
        FlowStreamWriter(plan(tmp_path)).commit(staged(writer, [b"INFO a", b"ERROR b"]), 1)
    assert (stored(tmp_path)["ok"], stored(tmp_path)["errors"]) == ([], [b"ERROR b"])


def test_an_optional_channel_that_is_full_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = plan(tmp_path)
    with ss.Channel(tmp_path / "may", overflow_capacity=1) as may, may.put_transaction() as tx:
        tx.put(Event(b"there"))
    writer = FlowStreamWriter(found)
    with caplog.at_level(logging.WARNING):
        writer.commit(staged(writer, [b"INFO a"]), 1)
    assert (stored(tmp_path)["ok"], stored(tmp_path)["may"]) == ([b"INFO a"], [b"there"])
    assert "the optional channel may does not get the batch 1" in caplog.text


@pytest.mark.spark
@pytest.mark.slow
def test_a_stream_and_a_chain_on_a_real_spark(spark: SparkSession, tmp_path: Path) -> None:
    with ss.Channel(tmp_path / "in") as channel, channel.put_transaction() as tx:
        tx.put_many([Event(b"INFO a"), Event(b"ERROR b"), Event(b"INFO bad")])
    query = (
        spark.readStream.format("spillable")
        .load(str(tmp_path / "in"))
        .select("headers", "body")
        .writeStream.format("spillable")
        .option("flow", write_conf(tmp_path))
        .option("agent", "a1")
        .option("source", "r1")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert stored(tmp_path) == {"ok": [b"INFO a"], "errors": [b"ERROR b"], "may": [b"INFO a"], "dead": [b"INFO bad"]}
    chain = InterceptorChain([RegexFilter("^INFO"), Static()])
    events = [({}, b"INFO a"), ({}, b"WARN b"), ({"h": "1"}, b"INFO bad")]
    frame = spark.createDataFrame(events, "headers map<string, string>, body binary").coalesce(1)
    rows = frame.mapInArrow(chain.apply, frame.schema).collect()
    assert [(bytes(row.body), row.headers) for row in rows] == [
        (b"INFO a", {"key": "value"}),
        (b"INFO bad", {"h": "1", "key": "value"}),
    ]


def test_rows_wait_and_expire_in_each_channel_as_the_file_says(tmp_path: Path) -> None:
    times = "a1.channels.ok.deliverAfter = 1h\na1.channels.may.ttlHeader = level\n"
    writer = FlowStreamWriter(plan(tmp_path, CONF + times))
    for _ in range(2):
        writer.commit(staged(writer, [b"INFO a", b"ERROR b", b"WARN c"]), 1)
    found = stored(tmp_path)
    assert (found["ok"], found["errors"], found["may"]) == ([], [b"ERROR b"], [])
    assert found["dead"] == [b"INFO a"]  # its ttl for one of the channels is no time
    with ss.Channel(tmp_path / "ok", create=False) as channel:
        assert channel.stats().delayed.events == 2
        clock_of(channel).pass_by(3600)
        assert take(channel) == [b"INFO a", b"WARN c"]
