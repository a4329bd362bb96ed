"""The sink ``http``: posts each event."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, NamedTuple

from spillable_stream.call_threads import CallThreads
from spillable_stream.channel.channel import Channel
from spillable_stream.channel.event import ID_COLUMN
from spillable_stream.errors import OptionError, StorageError
from spillable_stream.flow.checked_arguments import Count, Within, checked
from spillable_stream.flow.sinks.base import BatchSink, Taken
from spillable_stream.flow.sinks.request_limit import RequestLimit
from spillable_stream.flow.sinks.written import WrittenEvents, ranges_of
from spillable_stream.flow.sources.base import Status
from spillable_stream.shown_value import shown

if TYPE_CHECKING:
    import httpx

__all__ = ["HttpSink"]

# Answers that are about the event. Others, such as 401 and 404, may be about the address or the server.
_WRONG_EVENT = {400, 406, 413, 415, 422}
_TOO_MUCH = {0, 429, 503}  # 0: there was no answer


class _Answer(NamedTuple):
    """What became of a request.

    Args:
        event_id: the event's write-order ID.
        status: the answer's; 0 without one.
        error: why there is none.
    """

    event_id: int
    status: int
    error: Exception | None = None


class HttpSink(BatchSink):
    """Posts the body of each event to an address, a request for each.

    The answer's status says whether the event is sent again (``rollback``), whether the sink waits first (``backoff``),
    and whether it counts. As in Flume, without other options every event is sent again whatever is answered: set
    ``rollback={"2XX": False}``. With a dead-letter channel an event goes there that the server finds wrong (400, 406,
    413, 415 and 422), unless ``rollback`` names that status. The header ``Spillable-Event-Id`` has the channel's UUID
    and the event's ID, so that a server can drop repetitions.

    Args:
        endpoint: the address.
        connect_timeout: how long a connection may take, in milliseconds.
        request_timeout: how long an answer may take, in milliseconds.
        content_type_header: the requests' Content-Type.
        accept_header: the requests' Accept.
        default_backoff: whether it waits after an answer that nothing else is said about.
        default_rollback: whether the event is sent again after such an answer.
        default_increment_metrics: whether such an answer counts as a success.
        backoff: the same by status, as ``404`` or ``4XX``.
        rollback: the same by status.
        increment_metrics: the same by status.
        max_requests: how many requests may be in flight at once. The sink begins with one. It adds one while all goes
            well, and halves their number where there is no answer, or 429 or 503. More than one gives up the order.
        channel: the name of the channel, for `Agent`.

    Raises:
        OptionError: the endpoint is no such address.
        ImportError: the extra ``flow`` is not installed.
    """

    @checked
    def __init__(
        self,
        endpoint: str,
        *,
        connect_timeout: Count = 5000,
        request_timeout: Count = 5000,
        content_type_header: str = "text/plain",
        accept_header: str = "text/plain",
        default_backoff: bool = True,
        default_rollback: bool = True,
        default_increment_metrics: bool = False,
        backoff: Mapping[str, bool] | None = None,
        rollback: Mapping[str, bool] | None = None,
        increment_metrics: Mapping[str, bool] | None = None,
        max_requests: Annotated[int, Within(1, 256)] = 1,
        channel: str = "",
    ) -> None:
        super().__init__(1, channel)
        try:
            import httpx
        except ImportError as e:
            raise ImportError("the http sink needs httpx: pip install 'spillable-stream[flow]'") from e
        try:
            url = httpx.URL(endpoint)
            is_address = url.scheme in ("http", "https") and re.fullmatch(r"[^\s%/]+", url.host) is not None
            is_address = is_address and (url.port is None or 0 < url.port < 65536)
        except httpx.InvalidURL:
            is_address = False
        if not is_address:
            raise OptionError(f"endpoint must be an address such as http://host:8080/events, not {shown(endpoint)}")
        for name, value in (("contentTypeHeader", content_type_header), ("acceptHeader", accept_header)):
            if not (value.isascii() and value.isprintable()):
                raise OptionError(f"{name} must be printable ASCII, as headers of requests are, not {shown(value)}")
        self._endpoint = endpoint
        self._timeouts_seconds = (connect_timeout / 1000, request_timeout / 1000)
        self._headers = {"Content-Type": content_type_header, "Accept": accept_header}
        self._backoff = _Rule(backoff or {}, default_backoff)
        self._rollback = _Rule(rollback or {}, default_rollback)
        self._counts = _Rule(increment_metrics or {}, default_increment_metrics)
        self._most_requests = max_requests
        self._limit = RequestLimit(max_requests)
        self._threads = CallThreads(0, "")
        self._client: httpx.Client | None = None

    def open(self, channel: Channel, written: WrittenEvents | None = None) -> None:
        """Create the client; see `Sink.open`."""
        import httpx

        super().open(channel, written)
        connect, request = self._timeouts_seconds
        self._threads = CallThreads(self._most_requests - 1, f"{self.name}-post")
        self._client = httpx.Client(timeout=httpx.Timeout(request, connect=connect), headers=self._headers)
        self.counters.connection_created_count += 1

    def process(self) -> Status:
        """Post an event, or several at once; see `Sink.process`."""
        with self.begun_take(self._limit.now) as (transaction, table):
            if table is None:
                transaction.rollback()
                return Status.BACKOFF
            taken = self._without_written(table, transaction)
            answers = self._post_all(taken)
            again = [answer for answer in answers if self._comes_again(answer)]
            over = [(a.event_id, a.event_id) for a in answers if a not in again and not self._is_dead(a.status)]
            self.written.add(over)  # first: whatever is refused from here on, they are not posted again
            self._bury_dead(taken, answers)
            if not again:
                with self.asking_channel():
                    transaction.commit()
                self.written.remove(ranges_of(table.column(ID_COLUMN)))
                self.exit.passed(taken.batch)
                self.trouble = ""
            else:
                transaction.rollback()
                self._say_again(again)
        said = [a.status for a in answers if a.status and not self._is_dead(a.status)]
        return Status.BACKOFF if any(map(self._backoff.holds, said)) else Status.READY

    def _post_all(self, taken: Taken) -> list[_Answer]:
        """Post events, at once, and return the answers; an empty body is not posted."""
        pairs = zip(taken.batch.column("body").to_pylist(), taken.ids.to_pylist(), strict=True)
        events = [(body, event_id) for body, event_id in pairs if body]
        answers: list[_Answer] = []
        if events:
            answers = self._threads.at_once([partial(self._post, *event) for event in events])
            self._limit.finished(len(answers), sum(a.status in _TOO_MUCH for a in answers))
        for answer in answers:
            self.counters.connection_failed_count += not answer.status
            self.counters.event_drain_success_count += bool(answer.status) and self._counts.holds(answer.status)
        return answers

    def _comes_again(self, answer: _Answer) -> bool:
        return not answer.status or (self._rollback.holds(answer.status) and not self._is_dead(answer.status))

    def _bury_dead(self, taken: Taken, answers: list[_Answer]) -> None:
        numbers = taken.ids.to_pylist()
        for answer in answers:
            if answer.status and self._is_dead(answer.status):
                row = numbers.index(answer.event_id)
                reason = f"{self._endpoint} answered {answer.status}"
                self.bury(taken.batch.slice(row, 1), taken.ids.slice(row, 1), reason)

    def _say_again(self, again: list[_Answer]) -> None:
        """Say that events are sent again.

        Raises:
            StorageError: the server did not answer, or the sink is in a group.
        """
        self.counters.event_write_fail += len(again)
        for answer in again:
            if answer.error is not None:
                raise StorageError(
                    f"{self._endpoint} does not answer ({answer.error}); the event is sent again"
                ) from answer.error
        status = again[0].status
        if self.in_group:
            raise StorageError(f"{self._endpoint} answered {status}; another sink of the group takes over")
        self.name_trouble(f"{self._endpoint} answered {status}, and the event is sent again; see rollback.{status}")

    def _is_dead(self, status: int) -> bool:
        """Whether the event is a dead letter: it would be sent again, and the server would refuse it again."""
        return self.dead_letter is not None and status in _WRONG_EVENT and self._rollback.holds_by_default(status)

    def _post(self, body: bytes, event_id: int) -> _Answer:
        """Post a body; called by several threads."""
        import httpx

        assert self._client is not None
        headers = {"Spillable-Event-Id": f"{self.channel.uuid}/{event_id}"}
        try:
            return _Answer(event_id, self._client.post(self._endpoint, content=body, headers=headers).status_code)
        except httpx.HTTPError as e:
            return _Answer(event_id, 0, e)

    def write(self, taken: Taken) -> None:
        """Not used: `process` posts events one by one."""
        raise TypeError("the http sink posts events one by one")

    def close(self) -> None:
        """Close the client; see `Sink.close`."""
        self._threads.close()
        if self._client is not None:
            self._client.close()
            self._client = None
            self.counters.connection_closed_count += 1


class _Rule:
    """A truth value for each status: that of the status itself, else of its class, else the default."""

    def __init__(self, by_status: Mapping[str, bool], default: bool) -> None:
        self._by_status = {code.upper(): value for code, value in by_status.items()}
        self._default = default

    def holds(self, status: int) -> bool:
        found = self._said(status)
        return self._default if found is None else found

    def holds_by_default(self, status: int) -> bool:
        return self._default and self._said(status) is None

    def _said(self, status: int) -> bool | None:
        return self._by_status.get(str(status), self._by_status.get(f"{status // 100}XX"))
