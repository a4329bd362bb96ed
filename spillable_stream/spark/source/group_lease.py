"""A source's lease of its channel and its group, in Spark's long-lived worker.

Nothing in Spark stops this worker where its query never started, since another source of it could not: it lives as
long as the session. So the group is owned from where the query asks for a batch. A group that the options name is owned
only as long as somebody asks, until the batch is planned: others may want it. A group that the query created for itself
is kept at once. Nobody else may read as it, and it would be dropped where the query's trigger is long. Spark ends the
worker of every source that it has asked for a batch, so the query's next worker gets it::

              channel()             consumer()            keep()
    closed ────────────────▶ open ─────────────▶ owned ────────────▶ kept
       ▲                       │                   │                   │
       └───────────────────────┴───────────────────┘                   │
       ▲   no call for `IDLE_SECONDS`: the thread closes it            │
       └───────────────────────────────────────────────────────────────┘
           close()

A handle that the thread closed holds nothing any more: others may own the group, and one of them is the last to close
the channel. The next call opens it again, and finds what the first one would: the positions are the channel's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from spillable_stream.channel.channel import Channel
from spillable_stream.channel.consumer import Consumer
from spillable_stream.errors import ChannelClosedError, SpillableError, StorageError
from spillable_stream.log_records import Seldom, fields, log_of
from spillable_stream.own_thread import start_thread
from spillable_stream.spark.source.worker_end import at_end, not_at_end

__all__ = ["IDLE_SECONDS", "GroupLease"]

IDLE_SECONDS = 60.0

_log = log_of(__name__)


class GroupLease:
    """A channel that is open, and a group that is owned, from call to call.

    Args:
        open_channel: opens the channel.
        own_group: makes the channel's handle the owner of the group.
        before_close: called before the group is given up.
    """

    def __init__(
        self,
        open_channel: Callable[[], Channel],
        own_group: Callable[[Channel], Consumer],
        before_close: Callable[[], None] = lambda: None,
    ) -> None:
        self._open_channel = open_channel
        self._own_group = own_group
        self._before_close = before_close
        self._channel: Channel | None = None
        self._consumer: Consumer | None = None
        self._kept = False
        self._at_end = 0  # of the channel that is open
        self._turn = threading.RLock()  # of Spark's call, or of the thread that closes what no call uses
        self._called_at = 0.0
        self._unwatched: threading.Event | None = None  # ends the thread; None while there is none
        self._warning = Seldom()  # of a thread that can't be

    @contextmanager
    def call(self) -> Iterator[None]:
        """Keep what is open during a call of Spark's, and for `IDLE_SECONDS` after it."""
        with self._turn:
            try:
                yield
            finally:
                self._called_at = time.monotonic()
                self._watch()

    def channel(self) -> Channel:
        """Return the channel, open; raises what opening it does.

        Where the process can have no thread that closes it, the log says so, and the next call tries again.
        """
        with self._turn:
            if self._channel is None:
                self._channel = self._open_channel()
                self._at_end = at_end(self.close)
                self._called_at = time.monotonic()
                self._watch()
            return self._channel

    def _watch(self) -> None:
        """Let a thread close what no call uses, unless there is one, or the channel is closed, or kept."""
        if self._channel is None or self._kept or self._unwatched is not None:
            return
        ended = threading.Event()
        try:
            start_thread(
                threading.Thread(target=self._close_when_idle, args=(ended,), name="spillable idle source", daemon=True)
            )
        except StorageError as e:
            if self._warning.is_due():
                _log.warning(
                    "nobody closes the channel %s if Spark asks for nothing more: %s", self._channel.path, e,
                    extra=fields(self._channel.path),
                )  # fmt: skip
        else:
            self._unwatched = ended

    def _watch_no_more(self) -> None:
        if self._unwatched is not None:
            self._unwatched.set()
            self._unwatched = None

    def consumer(self) -> Consumer:
        """Return the group's consumer; raises what owning it does."""
        with self._turn:
            if self._consumer is None:
                self._consumer = self._own_group(self.channel())
            return self._consumer

    def owner(self) -> str | None:
        """Return what the group's lock file says of this owner (`Consumer.owner`); None while it owns nothing."""
        with self._turn:
            return None if self._consumer is None else self._consumer.owner

    def keep(self) -> None:
        """Hold the group until `close`, whether somebody asks or not: a batch is under way, or it is the query's."""
        with self._turn:
            self._kept = True
            self._watch_no_more()

    def give_up(self) -> None:
        """Give the group up, and leave the channel open until `close`, which may take long.

        Raises what `Consumer.close` does.
        """
        with self._turn:
            if self._consumer is not None:
                self._before_close()
                consumer, self._consumer = self._consumer, None
                consumer.close()

    def close(self) -> None:
        """Close the channel, and so give the group up; raises what `Channel.close` does."""
        with self._turn:
            self._watch_no_more()
            if self._consumer is not None:
                self._before_close()
            self._kept = False
            channel, self._channel, self._consumer = self._channel, None, None
            if channel is not None:
                not_at_end(self._at_end)
                channel.close()

    def _close_when_idle(self, ended: threading.Event) -> None:
        """Close what is open when no call came for long enough; a call under way, or one that comes first, keeps it."""
        while not ended.wait(max(0.0, self._idle_at() - time.monotonic())):
            with self._turn:
                if ended.is_set():
                    return
                if time.monotonic() >= self._idle_at():
                    self._close_unasked()

    def _close_unasked(self) -> None:
        """Close the channel, where there is no call that could raise what this does; it is closed for all that."""
        path = "" if self._channel is None else self._channel.path
        try:
            self.close()
        except ChannelClosedError:
            pass  # it was removed meanwhile
        except SpillableError as e:
            _log.warning(
                "a source closed the channel %s, for which Spark has not asked for %g s: %s", path, IDLE_SECONDS, e,
                extra=fields(path, seconds=IDLE_SECONDS),
            )  # fmt: skip

    def _idle_at(self) -> float:
        return self._called_at + IDLE_SECONDS
