"""A listener that commits takes as batches finish, and says how far each query is.

Spark sends a batch's progress after it has written the batch to its commit log
(``MicroBatchExecution.runBatch``, then ``finishTrigger``): never for a batch that failed, and a query without
new data sends an idle event, which names no batch. So everything up to a progress' ``endOffset`` is done.
The one exception is ``asyncProgressTrackingEnabled``, where the log is written later.

A late event does no harm: what its batches read is done for good, takes that end later are left alone, and
committing twice is nothing. Takes of a group that was taken over since, by the same query restarted or by
another one, are left to the new owner, whose lock's note differs (`finish_takes` looks under the channel's lock).
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming import StreamingQueryListener

from spillable_stream.channel.channel import Channel
from spillable_stream.channel.finish import finish_takes, wait_for_owner_to_go
from spillable_stream.channel.ranges import count_of
from spillable_stream.errors import SpillableError
from spillable_stream.log.layout import Layout
from spillable_stream.names import check_group, is_name
from spillable_stream.spark.kept_channels import KeptChannels
from spillable_stream.spark.query_metrics import QueryMetrics
from spillable_stream.storage.filesystem import FileSystem

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["QueryListener", "QueryReport", "listener"]

_log = logging.getLogger(__name__)
_MOST_REPORTS = 1000
_WORKER_END_SECONDS = 2.0  # how long Spark takes at most to end a query's worker


@dataclass(frozen=True, slots=True)
class QueryReport:
    """How far a query is in one of its channels, after its last batch.

    Args:
        query: the query's name, or None.
        query_id: its ID, which stays over restarts.
        run_id: the ID of its run.
        channel: the channel's UUID.
        path: the channel's directory; None where Spark does not say it (before 4.2).
        group: the group; None likewise.
        active: whether the run goes on.
        last_batch: the ID of the last batch that is done.
        last_id: the write-order ID up to which the query is done.
        lag_events: how many events it has yet to take; None where that can't be told.
        events_per_second: how fast the last batch was; 0 while the query is idle or over.
        oldest_age_seconds: how long ago the oldest of these was put; None if there are none, or it can't be told.
    """

    query: str | None
    query_id: str
    run_id: str
    channel: str
    path: str | None
    group: str | None
    active: bool
    last_batch: int
    last_id: int
    lag_events: int | None
    events_per_second: float
    oldest_age_seconds: float | None


def listener(
    spark: Any,
    *,
    prometheus: int | CollectorRegistry | None = None,
    channels: Mapping[str | os.PathLike[str], str] | None = None,
) -> QueryListener:
    """Add a listener to a Spark session that commits takes as batches finish and reports on the queries.

    Spark tells a source that a batch is done when it plans the next one, so never of the last. With a listener
    space is free at once, and a new checkpoint does not repeat the last batch of the old one. Without it all
    promises hold as well. Spark does not sync its checkpoint: if the power fails in the seconds after a batch, the
    checkpoint may not know a batch whose take is committed, and the query says so when it is started again.
    Not for queries with ``asyncProgressTrackingEnabled``, whose batches are done later than Spark says.

    Args:
        spark: the ``SparkSession``, classic or Connect; its queries are watched. Where a channel's directory is
            not on this machine there are reports only.
        prometheus: a ``prometheus_client.CollectorRegistry`` to add series to, or a port of every network interface to
            serve them at.
        channels: for Spark 4.0 and 4.1, which do not tell: the group of each channel by path. Every query of the
            session that reads the channel must be of that group.

    Returns:
        The listener; `QueryListener.close` removes it.

    Raises:
        ImportError: ``prometheus`` is given and prometheus-client is not installed.
        OptionError: ``prometheus`` is neither, or the registry has a listener's series already; or no group can have a
            name in ``channels``.
    """
    for group in (channels or {}).values():
        check_group(group)
    metrics = None if prometheus is None else QueryMetrics(prometheus)
    found = QueryListener(spark, metrics, channels or {})
    try:
        spark.streams.addListener(found)
    except BaseException:
        if metrics is not None:
            metrics.close()
        raise
    atexit.register(found._close_channels)
    return found


@dataclass(frozen=True, slots=True)
class _Done:
    """What one source of a batch that is done says of itself."""

    end_id: int
    channel: str
    path: str | None
    group: str | None
    owner: str | None
    latest_id: int | None
    put_time_us: int | None


class QueryListener(StreamingQueryListener):
    """Watches the queries of a session; made by `listener`. Nothing that it meets is raised into Spark.

    Args:
        spark: the session.
        metrics: where to count, or None.
        channels: the group of each channel by path, where Spark does not tell.
    """

    def __init__(self, spark: Any, metrics: QueryMetrics | None, channels: Mapping[Any, str]) -> None:
        self._session = spark
        self._metrics = metrics
        self._told = {str(os.path.abspath(path)): group for path, group in channels.items()}
        self._channels = KeptChannels()
        self._events = threading.Lock()  # one event at a time
        self._mutex = threading.Lock()
        self._found: dict[tuple[str, int], tuple[_Done, QueryReport]] = {}  # query ID, number of the source
        self._closed = False

    @property
    def prometheus_port(self) -> int | None:
        """The port at which Prometheus finds the series; None if none was asked for."""
        return self._metrics.port if self._metrics else None

    def reports(self) -> list[QueryReport]:
        """Return a report for each channel of each query, of the last 1,000 at most, the latest at the end."""
        with self._mutex:
            return [report for _, report in self._found.values()]

    def close(self) -> None:
        """Remove the listener from the session, close its channels and stop serving Prometheus."""
        with self._mutex:
            if self._closed:
                return
            self._closed = True
        atexit.unregister(self._close_channels)
        self._guarded(lambda: self._session.streams.removeListener(self), "being removed from the session")
        with self._events:
            self._close_channels()
        if self._metrics is not None:
            self._guarded(self._metrics.close, "closing the port")

    def _close_channels(self) -> None:
        self._guarded(self._channels.close, "closing the channels")

    # ── what Spark calls ────────────────────────────────────────────────────────────────────

    def onQueryStarted(self, event: Any) -> None:
        """Do nothing: there is no batch yet."""

    def onQueryProgress(self, event: Any) -> None:
        """Commit the takes of a batch that is done, and report."""
        self._handle(lambda: self._progress(event.progress), "a query's progress")

    def onQueryIdle(self, event: Any) -> None:
        """Report that a query waits, and commit what could not be committed before."""
        self._handle(lambda: self._look_again(str(event.runId), active=True), "an idle query")

    def onQueryTerminated(self, event: Any) -> None:
        """Close the channels that only this query used."""
        run = str(event.runId)
        self._handle(lambda: self._look_again(run, active=False), "the end of a query")
        self._handle(lambda: self._channels.leave(run), "closing the channels of a query")

    # ── inside ──────────────────────────────────────────────────────────────────────────────

    def _handle(self, what: Callable[[], None], name: str) -> None:
        with self._events:
            if not self._closed:
                self._guarded(what, name)

    def _guarded(self, what: Callable[[], None], name: str) -> None:
        try:
            what()
        except Exception:
            _log.exception("%s: the listener of spillable channels failed; the query goes on", name)

    def _progress(self, progress: Any) -> None:
        for number, source in enumerate(progress.sources):
            self._guarded(partial(self._batch_done, progress, number, source), "a batch")

    def _batch_done(self, progress: Any, number: int, source: Any) -> None:
        done = _parse(source)
        if done is None:
            return
        key = str(progress.id), number
        done = self._completed(done, str(progress.runId), self._found.get(key))
        report = QueryReport(
            query=progress.name,
            query_id=key[0],
            run_id=str(progress.runId),
            channel=done.channel,
            path=done.path,
            group=done.group,
            active=True,
            last_batch=progress.batchId,
            last_id=done.end_id,
            lag_events=None,
            events_per_second=source.processedRowsPerSecond,
            oldest_age_seconds=None,
        )
        commits, report = self._look(done, report)
        self._keep(key, done, report)
        if self._metrics is not None:
            self._metrics.count(report, events=source.numInputRows, commits=commits)

    def _completed(self, done: _Done, run: str, before: tuple[_Done, QueryReport] | None) -> _Done:
        """Return what Spark left out: it tells nothing before 4.2, and nothing of a batch that is tried again."""
        if done.path is not None:
            return done
        for path, group in self._told.items():
            if _uuid(path) == done.channel:
                return replace(done, path=path, group=group)
        if before is not None and before[0].channel == done.channel:
            old, report = before
            owner = old.owner if report.run_id == run else None
            return replace(done, path=old.path, group=old.group, owner=owner)
        return done

    def _look_again(self, run: str, active: bool) -> None:
        with self._mutex:
            found = [(key, *value) for key, value in self._found.items() if value[1].run_id == run]
        for key, done, report in found:
            now = replace(report, active=active, events_per_second=0.0)
            commits, now = self._look(done, now)
            self._keep(key, done, now)
            if not active:
                self._wait_for_the_worker(done, run)
            if self._metrics is not None and commits:
                self._metrics.count(now, events=0, commits=commits, batches=0)

    def _look(self, done: _Done, report: QueryReport) -> tuple[int, QueryReport]:
        """Commit what is done; return how many takes that were, and the report with the lag as it is now."""
        channel = None
        if done.path is not None:
            channel = self._channels.get(done.path, done.channel, report.run_id)
        if channel is None or done.group is None:
            return 0, _as_spark_says(done, report)
        commits = self._finish(channel, done) if done.owner is not None or done.path in self._told else 0
        return commits, _as_the_channel_says(channel, done.group, done.end_id, report)

    def _wait_for_the_worker(self, done: _Done, run: str) -> None:
        """Let the source's worker die first: it would keep the listener from being the last, who flushes memory."""
        if done.path is None or done.group is None or done.owner is None:
            return
        channel = self._channels.get(done.path, done.channel, run)
        if channel is not None and channel.engine().memory.exists():
            wait_for_owner_to_go(channel.engine(), done.group, done.owner, _WORKER_END_SECONDS)

    def _finish(self, channel: Channel, done: _Done) -> int:
        assert done.group is not None
        try:
            commits = finish_takes(channel.engine(), done.group, done.end_id, done.owner)
        except Exception:
            _log.exception("the takes of %s in %s stay for the source to commit", done.group, done.path)
            return 0
        if commits:
            channel.engine().checkpointing.make_if_due()
        return commits

    def _keep(self, key: tuple[str, int], done: _Done, report: QueryReport) -> None:
        dropped = None
        with self._mutex:
            self._found.pop(key, None)
            self._found[key] = done, report
            if len(self._found) > _MOST_REPORTS:
                _, dropped = self._found.pop(next(iter(self._found)))
        if self._metrics is not None:
            self._metrics.note(report)
            if dropped is not None:
                self._metrics.forget(dropped)


def _uuid(path: str) -> str | None:
    """Return the identity of the channel at a path, or None."""
    try:
        return Layout.read(FileSystem(), Path(path)).channel
    except (SpillableError, OSError):
        return None


def _parse(source: Any) -> _Done | None:
    """Return what a source's progress says, or None if it is no channel's."""
    end, latest = _offset(source.endOffset), _offset(source.latestOffset)
    if end.keys() - {"start"} != {"channel", "writeOrderId"}:
        return None
    if latest.get("channel") != end["channel"] or "path" not in latest:
        return _Done(int(end["writeOrderId"]), end["channel"], None, None, None, None, None)
    return _Done(
        end_id=int(end["writeOrderId"]),
        channel=end["channel"],
        path=latest["path"],
        group=latest["group"] if is_name(latest["group"]) else None,
        owner=latest["owner"],
        latest_id=latest["writeOrderId"],
        put_time_us=latest["oldestPutTimeMicros"],
    )


def _offset(text: str | None) -> dict[str, Any]:
    """Return an offset; an empty one of what is none, such as the "None" that pyspark makes of a missing one."""
    try:
        value = json.loads(text or "null")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _as_the_channel_says(channel: Channel, group: str, end_id: int, report: QueryReport) -> QueryReport:
    with channel.engine().looking() as state:
        known = state.groups.get(group)
        position = max(end_id, known.position if known else 0)
        waiting = list(known.ahead.gaps(position + 1, state.last_id)) if known else [(position + 1, state.last_id)]
        lag = count_of(waiting)
        put_time_us = state.blocks.time_of(waiting[0][0]) if lag else None
    return replace(report, lag_events=lag, oldest_age_seconds=_age_seconds(put_time_us))


def _as_spark_says(done: _Done, report: QueryReport) -> QueryReport:
    """Return the lag as it was when the batch was planned."""
    lag = None if done.latest_id is None else max(0, done.latest_id - done.end_id)
    return replace(report, lag_events=lag, oldest_age_seconds=_age_seconds(done.put_time_us) if lag else None)


def _age_seconds(put_time_us: int | None) -> float | None:
    return None if put_time_us is None else max(0.0, time.time() - put_time_us / 1e6)
