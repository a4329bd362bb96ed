"""The sink ``http``: posts each event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from spillable_stream.channel.channel import Channel
from spillable_stream.channel.event import ID_COLUMN
from spillable_stream.errors import StorageError
from spillable_stream.flow.sinks.base import BatchSink, Taken
from spillable_stream.flow.sinks.written import WrittenEvents, ranges_of
from spillable_stream.flow.sources.base import Status

if TYPE_CHECKING:
    import httpx

__all__ = ["HttpSink"]

# Answers that are about the event. Others, such as 401 and 404, may be about the address or the server.
_WRONG_EVENT = {400, 406, 413, 415, 422}


class HttpSink(BatchSink):
    """Posts the body of each event to an address, one event a transaction.

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
        channel: the name of the channel, for `Agent`.

    Raises:
        ImportError: the extra ``flow`` is not installed.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        connect_timeout: int = 5000,
        request_timeout: int = 5000,
        content_type_header: str = "text/plain",
        accept_header: str = "text/plain",
        default_backoff: bool = True,
        default_rollback: bool = True,
        default_increment_metrics: bool = False,
        backoff: Mapping[str, bool] | None = None,
        rollback: Mapping[str, bool] | None = None,
        increment_metrics: Mapping[str, bool] | None = None,
        channel: str = "",
    ) -> None:
        super().__init__(1, channel)
        try:
            import httpx  # noqa: F401
        except ImportError as e:
            raise ImportError("the http sink needs httpx; install spillable-stream[flow]") from e
        self._endpoint = endpoint
        self._timeouts_seconds = (connect_timeout / 1000, request_timeout / 1000)
        self._headers = {"Content-Type": content_type_header, "Accept": accept_header}
        self._backoff = _Rule(backoff or {}, default_backoff)
        self._rollback = _Rule(rollback or {}, default_rollback)
        self._counts = _Rule(increment_metrics or {}, default_increment_metrics)
        self._client: httpx.Client | None = None

    def open(self, channel: Channel, written: WrittenEvents | None = None) -> None:
        """Make the client; see `Sink.open`."""
        import httpx

        super().open(channel, written)
        connect, request = self._timeouts_seconds
        self._client = httpx.Client(timeout=httpx.Timeout(request, connect=connect), headers=self._headers)
        self.counters.connection_created_count += 1

    def process(self) -> Status:
        """Post one event; see `Sink.process`."""
        with self.take_transaction() as transaction:
            event = transaction.take_batch(1)
            self.found_nothing: bool = event is None
            self.counters.took(0 if event is None else 1, 1)
            if event is None:
                transaction.rollback()
                return Status.BACKOFF
            body, ids = event.column("body")[0].as_py(), event.column(ID_COLUMN)
            if not body or self.written.missing(ids) is not None:
                self.written.remove(ranges_of(ids))
                return Status.READY  # there is nothing to post, or it is a dead letter
            status = self._post(body, int(ids[0].as_py()))
            if self._is_dead(status):
                batch = event.drop_columns([ID_COLUMN]).combine_chunks().to_batches()[0]
                self.bury(batch, ids.combine_chunks(), f"{self._endpoint} answered {status}")
                transaction.commit()
                self.written.remove(ranges_of(ids))
                return Status.READY
            if self._counts.holds(status):
                self.counters.event_drain_success_count += 1
            if self._rollback.holds(status):
                transaction.rollback()
                self.counters.event_write_fail += 1
                if self.in_group:
                    raise StorageError(f"{self._endpoint} answered {status}; another sink of the group takes over")
                self.name_trouble(
                    f"{self._endpoint} answered {status}, and the event is sent again; see rollback.{status}"
                )
            else:
                self.trouble = ""
            return Status.BACKOFF if self._backoff.holds(status) else Status.READY

    def _is_dead(self, status: int) -> bool:
        """Whether the event is a dead letter: it would be sent again, and the server would refuse it again."""
        return self.dead_letter is not None and status in _WRONG_EVENT and self._rollback.holds_by_default(status)

    def _post(self, body: bytes, event_id: int) -> int:
        """Post a body, and return the status of the answer.

        Raises:
            StorageError: there was no answer.
        """
        import httpx

        assert self._client is not None
        headers = {"Spillable-Event-Id": f"{self.channel.uuid}/{event_id}"}
        try:
            return self._client.post(self._endpoint, content=body, headers=headers).status_code
        except httpx.HTTPError as e:
            self.counters.connection_failed_count += 1
            raise StorageError(
                f"{self._endpoint} does not answer ({type(e).__name__}: {e}); the event is sent again"
            ) from e

    def write(self, taken: Taken) -> None:
        """Not used: `process` posts one event at a time."""
        raise TypeError("the http sink posts one event at a time")

    def close(self) -> None:
        """Close the client; see `Sink.close`."""
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
