"""The listener: with events as Spark sends them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql.streaming.listener import QueryIdleEvent, QueryTerminatedEvent

import spillable_stream as ss
import spillable_stream.spark
from spillable_stream.engine.commit_on_behalf import finish_takes
from spillable_stream.engine.owner_note import owner_since
from spillable_stream.errors import MemoryLossWarning
from spillable_stream.integrity.verify import verify
from spillable_stream.spark.progress.query_listener import QueryListener
from tests.support import pythons
from tests.support.damage import kill, lose_memory
from tests.support.events import numbered, put
from tests.support.spark import reader_process
from tests.support.spark.events import end_offset, group_state, tell
from tests.support.spark.reader_process import plan, progress, reader
from tests.support.spark.versions import needs

pytestmark = [pytest.mark.spark, needs(4, 2, "a source that says to its query's progress what a listener must know")]
Open = Callable[..., ss.Channel]
RUN = "00000000-0000-0000-0000-000000000001"


def end(listener: QueryListener, run: str = RUN) -> None:
    event = {"id": RUN, "runId": run, "exception": None, "errorClassOnException": None}
    listener.onQueryTerminated(QueryTerminatedEvent.fromJson(event))


# ── who commits first ───────────────────────────────────────────────────────────────────────


def test_the_listener_commits_before_the_source(open_channel: Open, path: Path, alone: QueryListener) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 20))
    source = reader(str(path))
    first = plan(source, source.initialOffset(), 0)
    tell(alone, first)
    assert group_state(channel) == (10, 0)
    second = plan(source, end_offset(first), 1)
    source.commit(end_offset(first))  # as Spark does, a batch late
    assert group_state(channel) == (10, 10)
    source.commit(end_offset(second))
    assert group_state(channel) == (20, 0)
    source.stop()


def test_so_it_does_in_a_store_where_the_source_leaves_its_commit_to_the_next_take(
    path: Path, alone: QueryListener
) -> None:
    place = f"object+file://{path}"
    with ss.Channel(place, commit_interval=0) as channel:
        put(channel, *numbered(0, 20))
        source = reader(place)
        first = plan(source, source.initialOffset(), 0)
        tell(alone, first)
        assert group_state(channel) == (10, 0)
        second = plan(source, end_offset(first), 1)
        source.commit(end_offset(first))
        assert group_state(channel) == (10, 10)
        tell(alone, second)
        assert group_state(channel) == (20, 0)
        source.commit(end_offset(second))
        source.stop()
        end(alone)
        assert group_state(channel) == (20, 0) and channel.stats().channel_size == 0


def test_the_source_commits_before_the_listener(open_channel: Open, path: Path, alone: QueryListener) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 20))
    source = reader(str(path))
    first = plan(source, source.initialOffset(), 0)
    source.commit(end_offset(first))
    plan(source, end_offset(first), 1)
    channel.stats()
    written = channel.engine().positions.disk.offset
    tell(alone, first)
    assert group_state(channel) == (10, 10)  # the take of the batch under way is left alone
    assert channel.engine().positions.disk.offset == written
    assert finish_takes(channel.engine(), "default", 10) == 0
    source.stop()


def test_source_and_listener_commit_the_same_takes_at_once_from_two_processes(open_channel: Open, path: Path) -> None:
    batches = 60
    channel = open_channel(memory_capacity=200)  # the takes of the first batches are in memory, the later ones on disk
    put(channel, *numbered(0, 150))
    put(channel, *numbered(150, 10 * batches - 150))
    listener = QueryListener(None, None, {})
    command = [sys.executable, reader_process.__file__, path, str(batches)]
    with pythons.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdin and worker.stdout
        for _ in range(batches):
            event = json.loads(worker.stdout.readline())
            worker.stdin.write("commit\n")
            worker.stdin.flush()
            tell(listener, event)
            assert group_state(channel)[0] >= end_offset(event)["writeOrderId"]
        assert worker.wait(60) == 0
    listener._close_channels()
    assert group_state(channel) == (10 * batches, 0)
    assert channel.stats().channel_size == 0
    channel.close()
    assert verify(path).healthy


def test_memory_that_is_lost_after_the_listener_committed_loses_nothing(
    open_channel: Open, path: Path, alone: QueryListener
) -> None:
    channel = open_channel(memory_capacity=100)
    put(channel, *numbered(0, 10))
    source = reader(str(path))
    tell(alone, plan(source, source.initialOffset(), 0))
    assert group_state(channel) == (10, 0)
    source.stop()
    alone._close_channels()
    kill(channel)
    lose_memory(path)
    with pytest.warns(MemoryLossWarning, match="no event is known to be lost"):
        assert open_channel().stats().lost == ()


# ── late events ─────────────────────────────────────────────────────────────────────────────


def test_a_late_event_does_not_commit_takes_of_the_next_owner(
    open_channel: Open, path: Path, alone: QueryListener
) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 10))
    source = reader(str(path))
    late = plan(source, source.initialOffset(), 0)
    source.stop()
    another = reader(str(path))  # with a new checkpoint: it reads the last batch again
    repeated = plan(another, another.initialOffset(), 0)
    assert end_offset(repeated) == end_offset(late)
    tell(alone, late)
    assert group_state(channel) == (0, 10)
    assert alone.reports()[0].lag_events == 0  # of the query of which the event tells
    tell(alone, repeated)
    assert group_state(channel) == (10, 0)
    another.stop()


def test_a_group_that_was_dropped_is_only_reported(open_channel: Open, path: Path, alone: QueryListener) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 10))
    source = reader(str(path))
    event = plan(source, source.initialOffset(), 0)
    source.stop()
    channel.drop_group("default")
    tell(alone, event)
    assert alone.reports()[0].lag_events == 0
    assert "default" not in channel.stats().groups


@pytest.mark.parametrize("all_groups_took_it", [False, True])
def test_checkpoint_that_a_power_cut_left_without_a_committed_batch_is_refused(
    open_channel: Open, path: Path, alone: QueryListener, all_groups_took_it: bool
) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 10))
    if not all_groups_took_it:
        channel.consumer("another")
    source = reader(str(path), max_events_per_trigger=None)
    start = source.initialOffset()
    tell(alone, plan(source, start, 0))
    source.stop()
    put(channel, *numbered(10, 10))
    again = reader(str(path), max_events_per_trigger=None)
    # The sink knows batch 0, and would drop whatever were in it now.
    with pytest.raises(
        ss.CheckpointMismatchError, match="up to the event 0, but the group 'default' has taken 1 to 10"
    ):
        again.latestOffset(start, again.getDefaultReadLimit())
    again.stop()


# ── channels that are not there, and what else an event may hold ────────────────────────────


def test_a_channel_on_another_machine_is_reported_from_what_spark_says(
    open_channel: Open, path: Path, alone: QueryListener, caplog: pytest.LogCaptureFixture
) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 30))
    source = reader(str(path))
    first = plan(source, source.initialOffset(), 0)
    second = plan(source, end_offset(first), 1)
    for event in (first, second):
        event["progress"]["sources"][0]["latestOffset"]["path"] = "/nowhere/channel"
        tell(alone, event)
    report = alone.reports()[0]
    assert (report.path, report.group, report.last_id, report.lag_events) == ("/nowhere/channel", "default", 20, 10)
    assert report.oldest_age_seconds is not None
    assert group_state(channel) == (10, 10), "the source has done it"
    assert [r.levelname for r in caplog.records if r.name.startswith("spillable_stream.")] == ["WARNING"]
    source.stop()


def test_a_removed_channel_is_reported_from_what_spark_says(
    path: Path, alone: QueryListener, caplog: pytest.LogCaptureFixture
) -> None:
    with ss.Channel(path, minimum_required_space=0) as channel:
        put(channel, *numbered(0, 20))
    source = reader(str(path))
    first = plan(source, source.initialOffset(), 0)
    second = plan(source, end_offset(first), 1)
    source.stop()
    tell(alone, first)
    shutil.rmtree(path)
    tell(alone, second)
    end(alone)
    report = alone.reports()[0]
    assert (report.last_id, report.lag_events, report.active) == (20, 0, False)
    assert [r.levelname for r in caplog.records if r.name.startswith("spillable_stream.")] == ["WARNING"]


def test_another_channel_at_the_path_is_left_alone(path: Path, alone: QueryListener) -> None:
    with ss.Channel(path, minimum_required_space=0) as channel:
        put(channel, *numbered(0, 10))
    source = reader(str(path))
    event = plan(source, source.initialOffset(), 0)
    source.stop()
    shutil.rmtree(path)
    with ss.Channel(path, minimum_required_space=0) as channel:
        put(channel, *numbered(0, 10))
        channel.consumer("default").prepare([(1, 10)])
        tell(alone, event)
        assert group_state(channel) == (0, 10)


def test_a_listener_that_is_told_the_group_commits_before_spark_4_2_too(
    open_channel: Open, path: Path, tmp_path: Path
) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 20))
    source = reader(str(path))
    done = plan(source, source.initialOffset(), 0)["progress"]["sources"][0]
    listener = QueryListener(None, None, {path: "default", tmp_path / "missing": "default"})
    tell(listener, progress([(done["startOffset"], done["endOffset"], done["endOffset"])]))
    assert group_state(channel) == (10, 0)
    assert [(r.path, r.group, r.lag_events) for r in listener.reports()] == [(str(path), "default", 10)]
    source.stop()
    listener._close_channels()


def test_a_listener_that_is_not_told_the_group_before_spark_4_2_says_once_what_to_tell_it(
    open_channel: Open, path: Path, alone: QueryListener, caplog: pytest.LogCaptureFixture
) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 20))
    source = reader(str(path))
    done = plan(source, source.initialOffset(), 0)["progress"]["sources"][0]
    begin, end_of_batch = done["startOffset"], done["endOffset"]
    tell(alone, progress([(begin, end_of_batch, None)]))  # as Spark 4.2 tells of a batch that is tried again
    assert caplog.text == ""
    for batch in range(2):
        tell(alone, progress([(begin, end_of_batch, end_of_batch)], batch))
    assert caplog.text.count(f"where the channel {channel.uuid} is") == 1
    assert "give listener() its group: channels={path: group}" in caplog.text
    assert group_state(channel) == (0, 10)
    source.stop()


def test_a_listener_that_is_told_the_group_leaves_the_takes_of_a_later_query_alone(
    open_channel: Open, path: Path
) -> None:
    """Before Spark 4.2 nobody says whose batch is done; who has the group since the batch ended has another."""
    channel = open_channel()
    put(channel, *numbered(0, 20))
    source = reader(str(path))
    late = plan(source, source.initialOffset(), 0)
    done = late["progress"]["sources"][0]
    done["latestOffset"] = done["endOffset"]
    source.stop()
    later = reader(str(path))  # with a new checkpoint: it reads the same events again
    repeated = plan(later, later.initialOffset(), 0)
    ended = owner_since(channel.engine().owners.owner_of("default"))
    assert ended is not None
    late["progress"]["timestamp"] = (ended - timedelta(seconds=1)).isoformat()
    listener = QueryListener(None, None, {path: "default"})
    tell(listener, late)
    assert group_state(channel) == (0, 10)
    assert [(r.last_id, r.lag_events) for r in listener.reports()] == [(10, 10)]
    repeated["progress"]["sources"][0]["latestOffset"] = done["endOffset"]
    tell(listener, repeated)
    assert group_state(channel) == (10, 0)
    later.stop()
    listener._close_channels()


def test_a_report_has_kafkas_words(open_channel: Open, path: Path, alone: QueryListener) -> None:
    put(open_channel(), *numbered(0, 25))
    source = reader(str(path))
    tell(alone, plan(source, source.initialOffset(), 0))
    (report,) = alone.reports()
    behind = report.min_offsets_behind_latest, report.max_offsets_behind_latest, report.avg_offsets_behind_latest
    assert behind == (15, 15, 15.0)
    unknown = replace(report, lag_events=None)
    assert unknown.min_offsets_behind_latest is unknown.avg_offsets_behind_latest is None
    source.stop()


def test_an_idle_event_commits_what_could_not_be_before(
    open_channel: Open, path: Path, alone: QueryListener, caplog: pytest.LogCaptureFixture
) -> None:
    channel = open_channel(lock_timeout=0.01)
    put(channel, *numbered(0, 10))
    source = reader(str(path))
    event = plan(source, source.initialOffset(), 0)
    with channel.engine().committing():
        tell(alone, event)
    assert "stay for the source to commit" in caplog.text
    assert group_state(channel) == (0, 10)
    alone.onQueryIdle(QueryIdleEvent.fromJson({"id": RUN, "runId": RUN, "timestamp": ""}))
    assert group_state(channel) == (10, 0)
    assert alone.reports()[0].events_per_second == 0.0
    source.stop()


def test_the_end_of_the_last_query_of_a_channel_moves_memory_to_disk(path: Path, alone: QueryListener) -> None:
    with ss.Channel(path, minimum_required_space=0, memory_capacity=100) as channel:
        put(channel, *numbered(0, 20))
        source = reader(str(path))
        event = plan(source, source.initialOffset(), 0)
        tell(alone, event)
        source.stop()
    assert (path / "memory").exists()  # the listener has it open
    end(alone, "00000000-0000-0000-0000-000000000002")
    assert (path / "memory").exists()
    end(alone)
    assert not (path / "memory").exists()
    with ss.Channel(path) as channel:
        assert channel.stats().drain_order == [-10]
