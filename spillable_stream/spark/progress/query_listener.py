"""A listener that commits takes as batches finish, and says how far each query is.

Spark sends a batch's progress after it has written the batch to its commit log
(``MicroBatchExecution.runBatch``, then ``finishTrigger``): never for a batch that failed, and a query without
new data sends an idle event, which names no batch. So everything up to a progress' ``endOffset`` is done.
The one exception is ``asyncProgressTrackingEnabled``, where the log is written later.

A late event does no harm: what its batches read is done for good, takes that end later are left alone, and
committing twice is nothing. Takes of a group that was taken over since, by the same query restarted or by
another one, are left to the new owner, whose lock's note differs (`ChannelPort.commit_through` looks while no other
commit is under way).
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming import StreamingQueryListener

from spillable_stream.channel.channel import Channel
from spillable_stream.channel.known_uuid import known_uuid
from spillable_stream.channel.live_picture import live_picture
from spillable_stream.log_records import fields, log_of
from spillable_stream.names import check_group
from spillable_stream.objects.location import is_location
from spillable_stream.spark.progress.lag import Lag
from spillable_stream.spark.progress.query_metrics import QueryMetrics
from spillable_stream.spark.progress.query_report import QueryReport
from spillable_stream.spark.progress.report_html import reports_html
from spillable_stream.spark.progress.run_channels import RunChannels
from spillable_stream.spark.progress.source_progress import SourceProgress
from spillable_stream.spark.registration import require_session

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["QueryListener", "QueryReport", "listener"]

_log = log_of(__name__)

_Key = tuple[str, int, str]  # a query's ID, the number of its source, and a channel's UUID

_MOST_REPORTS = 1000
_UNTOLD = (
    "Spark does not tell a listener before 4.2 where the channel %s is, which the query %s reads. So it reports no lag "
    "there, and commits nothing: give listener() its group: channels={path: group}"
)
_WORKER_END_SECONDS = 2.0  # how long Spark takes at most to end a query's worker


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
            session that reads the channel with the option `group` must be of that group.

    Returns:
        The listener; `QueryListener.close` removes it.

    Raises:
        ImportError: ``prometheus`` is given and prometheus-client is not installed.
        OptionError: it is not a session; ``prometheus`` is neither, or the registry has a listener's series already; or
            no group can have a name in ``channels``.
    """
    require_session(spark)
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
        self._told = {
            path if is_location(path) else str(os.path.abspath(path)): group for path, group in channels.items()
        }
        self._channels = RunChannels()
        self._events = threading.Lock()  # one event at a time
        self._mutex = threading.Lock()
        self._found: dict[_Key, tuple[SourceProgress, QueryReport]] = {}
        self._untold: set[str] = set()  # the channels that a warning has named
        self._closing = self._is_closed = False

    @property
    def prometheus_port(self) -> int | None:
        """The port at which Prometheus finds the series; None if none was asked for."""
        return self._metrics.port if self._metrics else None

    def reports(self) -> list[QueryReport]:
        """Return a report for each channel of each query, of the last 1,000 at most, the latest at the end."""
        with self._mutex:
            return [report for _, report in self._found.values()]

    def _repr_html_(self) -> str:
        return reports_html(self.reports())

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        """Return what a notebook's front end with widgets shows: the reports, live."""
        picture = live_picture(self)
        return {} if picture is None else picture.view()

    def close(self) -> None:
        """Remove the listener from the session, close its channels and stop serving Prometheus.

        Closing twice is fine: after an interrupt the second one does what is left to do.
        """
        with self._mutex:
            if self._is_closed:
                return
            self._closing = True
        self._guarded(lambda: self._session.streams.removeListener(self), "being removed from the session")
        with self._events:
            self._close_channels()
        if self._metrics is not None:
            self._guarded(self._metrics.close, "closing the port")
        atexit.unregister(self._close_channels)
        self._is_closed = True

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
        self._handle(lambda: self._waits(str(event.id), str(event.runId)), "an idle query")

    def onQueryTerminated(self, event: Any) -> None:
        """Close the channels that only this query used."""
        run = str(event.runId)
        self._handle(partial(self._look_again, run, active=False), "the end of a query")
        self._handle(lambda: self._channels.leave(run), "closing the channels of a query")

    # ── inside ──────────────────────────────────────────────────────────────────────────────

    def _handle(self, what: Callable[[], object], name: str) -> None:
        with self._events:
            if not self._closing:
                self._guarded(what, name)

    def _guarded(self, what: Callable[[], object], name: str) -> None:
        try:
            what()
        except Exception:
            _log.exception("%s: the listener of spillable channels failed; the query continues", name)

    def _progress(self, progress: Any) -> None:
        for number, source in enumerate(progress.sources):
            self._guarded(partial(self._batch_done, progress, number, source), "a batch")

    def _batch_done(self, progress: Any, number: int, source: Any) -> None:
        for done in self._source(progress, number, source):
            speed = source.processedRowsPerSecond * done.share
            report = _report(progress, done, last_batch=progress.batchId, speed=speed)
            commits, report = self._look(done, report)
            self._keep((report.query_id, number, done.channel), done, report)
            if self._metrics is not None:
                self._metrics.count(report, events=round(source.numInputRows * done.share), commits=commits)

    def _waits(self, query_id: str, run: str) -> None:
        """Report on a query that is idle; where one is that has had no batch in this run, its session knows."""
        if self._look_again(run, active=True) or self._session is None:
            return
        query = next((q for q in self._session.streams.active if str(q.id) == query_id), None)
        progress = None if query is None else query.lastProgress
        if progress is None or str(progress.runId) != run:
            return
        for number, source in enumerate(progress.sources):
            for done in self._source(progress, number, source):
                report = _report(progress, done, last_batch=progress.batchId - 1, speed=0.0)
                self._look_at(number, done, report)

    def _source(self, progress: Any, number: int, source: Any) -> list[SourceProgress]:
        """Return what is known of a source, of each of its channels; nothing if it is none."""
        query = str(progress.id)
        return [
            self._completed(found, progress, self._found.get((query, number, found.channel)))
            for found in SourceProgress.parse(source)
        ]

    def _completed(
        self, done: SourceProgress, progress: Any, before: tuple[SourceProgress, QueryReport] | None
    ) -> SourceProgress:
        """Return what Spark left out: it tells nothing before 4.2, and nothing of a batch that is tried again."""
        if done.path is not None:
            return done
        run = str(progress.runId)
        for path, group in self._told.items():
            if known_uuid(path) == done.channel:
                done = replace(done, path=path, group=done.group or group)
                return replace(done, owner=self._owner_then(done, progress))
        if before is not None and before[0].channel == done.channel:
            old, report = before
            owner = old.owner if report.run_id == run else None
            done = replace(done, path=old.path, group=done.group or old.group, owner=owner)
        if done.path is None and done.is_before_4_2 and done.channel not in self._untold:
            self._untold.add(done.channel)
            _log.warning(_UNTOLD, done.channel, progress.id, extra=fields(query=run))
        return done

    def _owner_then(self, done: SourceProgress, progress: Any) -> str | None:
        """Return who owned a group when a batch ended, which Spark does not tell; None if somebody has it only since.

        A new owner may be at the same events again. By the clock: only before Spark 4.2, or if it is told the group.
        """
        assert done.path is not None and done.group is not None
        channel = self._channels.get(done.path, done.channel, str(progress.runId))
        if channel is None:
            return None
        owner = channel.port().owner_of(done.group)
        ended = datetime.fromisoformat(progress.timestamp) + timedelta(milliseconds=progress.batchDuration)
        return owner.note if owner.since is not None and owner.since <= ended else None

    def _look_again(self, run: str, active: bool) -> bool:
        """Look at the channels of a run's last batch, and tell whether it has had one."""
        with self._mutex:
            found = [(key, *value) for key, value in self._found.items() if value[1].run_id == run]
        for (_, number, _), done, report in found:
            self._look_at(number, done, replace(report, active=active, events_per_second=0.0))
            if not active:
                self._wait_for_the_worker(done, run)
        return bool(found)

    def _look_at(self, number: int, done: SourceProgress, report: QueryReport) -> None:
        """Commit what is done, and report, while there is no new batch."""
        commits, now = self._look(done, report)
        self._keep((now.query_id, number, done.channel), done, now)
        if self._metrics is not None and commits:
            self._metrics.count(now, events=0, commits=commits, batches=0)

    def _look(self, done: SourceProgress, report: QueryReport) -> tuple[int, QueryReport]:
        """Commit what is done; return how many takes that were, and the report with the lag as it is now."""
        channel = None
        if done.path is not None:
            channel = self._channels.get(done.path, done.channel, report.run_id)
        if channel is None or done.group is None:
            return 0, report.with_lag(done.lag)
        commits = self._finish(channel, done) if done.owner is not None else 0
        with channel.port().snapshot() as state:
            return commits, report.with_lag(Lag.beyond(state, done.group, done.end_id))

    def _wait_for_the_worker(self, done: SourceProgress, run: str) -> None:
        """Let the source's worker die first: it would keep the listener from being the last, who flushes memory."""
        if done.path is None or done.group is None or done.owner is None:
            return
        channel = self._channels.get(done.path, done.channel, run)
        if channel is not None:
            channel.port().let_owner_go_first(done.group, done.owner, _WORKER_END_SECONDS)

    def _finish(self, channel: Channel, done: SourceProgress) -> int:
        assert done.group is not None
        try:
            commits = channel.port().commit_through(done.group, done.end_id, done.owner)
        except Exception:
            _log.exception(
                "the takes of %s in %s stay for the source to commit",
                done.group,
                done.path,
                extra=fields(done.path, group=done.group, last_id=done.end_id),
            )
            return 0
        if commits:
            channel.port().checkpoint_if_due()
        return commits

    def _keep(self, key: _Key, done: SourceProgress, report: QueryReport) -> None:
        dropped = None
        with self._mutex:
            self._found.pop(key, None)
            self._found[key] = done, report
            if len(self._found) > _MOST_REPORTS:
                _, dropped = self._found.pop(next(iter(self._found)))
        if self._metrics is not None:
            self._metrics.show(report)
            if dropped is not None:
                self._metrics.forget(dropped)


def _report(progress: Any, done: SourceProgress, *, last_batch: int, speed: float) -> QueryReport:
    """Return the report on a query's source, without the lag."""
    return QueryReport(
        query=progress.name,
        query_id=str(progress.id),
        run_id=str(progress.runId),
        channel=done.channel,
        path=done.path,
        group=done.group,
        active=True,
        last_batch=last_batch,
        last_id=done.end_id,
        lag_events=None,
        events_per_second=speed,
        oldest_age_seconds=None,
    )
