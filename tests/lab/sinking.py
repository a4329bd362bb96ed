"""A program that writes as Spark's sink does, into a channel that keeps what was taken: what the recipes crash.

Tasks stage, and a driver commits what they said, gives it up, or commits it again; tasks that nobody waits for any more
stage late, or are killed. Beside a query there are batch writes. A query is named after its program, and a batch of it
is its transaction of this number in the ledger.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow as pa

from spillable_stream import Channel, Event
from spillable_stream.channel.event_columns import batch_from_events
from spillable_stream.engine.port import SinkBatch
from spillable_stream.errors import CommitOutcomeUnknownError, SpillableError
from spillable_stream.spark.sink.channel_commit import ChannelCommit, OpenCommit
from spillable_stream.spark.sink.task_stage import Staged, staging
from tests.lab.keeping import Keeping
from tests.lab.keeping_check import Kept, kept
from tests.lab.ledger import body, parse_body

__all__ = ["QUERY", "Sinking", "Sunk", "is_stored_again", "sunk"]

QUERY = "-query"
"""What the names of queries end with."""

_INLINE_BYTES = 1 << 20


class Sunk(NamedTuple):
    """What a channel holds, and what it says of its queries.

    Args:
        kept: what it holds.
        batches: the last batch of each query, and of each application.
    """

    kept: Kept
    batches: dict[str, int]


def sunk(channel: Channel) -> Sunk:
    """Return what an open channel holds; nothing is taken."""
    with channel.engine().snapshot() as state:
        batches = dict(state.sinks)
    return Sunk(kept(channel), batches)


class Sinking(Keeping):
    """Writes batches of a query, and others, and takes, keeps and goes back. The arguments are `Program`'s."""

    _batch = 0
    _stored = 0

    def steps(self) -> Iterator[Callable[[], None]]:
        """Yield the steps, in order; each is done when it is called."""
        yield self.open
        for _ in range(self._rounds):
            steps = [self.write_batch] * 4 + [self.write_job] * 2 + [self.write_again, self.give_up_batch]
            steps += [self.lose_tasks, self.stage_late, self.stage_late_meanwhile]
            steps += [self.put_small, self.take_some, self.take_as_rewinders, self.drain]
            steps += [self.prepare_a_take, self.seek_back, self.seek_back, self.expire, self.expire_all, self.look]
            steps += [self.checkpoint] * 3 + [self.roll, self.reopen, self.do_not_keep]
            if self._options["memory_capacity"]:
                steps += [self.flush, self.move]
            self._rng.shuffle(steps)
            yield from steps
        yield from (self.lose_tasks, self.write_batch, self.drain, self.expire_all, self.checkpoint)
        yield from (self.write_job, self.write_again, self.drain, self.expire_all, self.checkpoint, self.close)

    # ── writes ──────────────────────────────────────────────────────────────────────────────────

    @property
    def _query(self) -> str:
        return f"{self._producer}{QUERY}"

    def write_batch(self) -> None:
        """Write the query's next batch."""
        self._batch += 1
        batch = SinkBatch(self._query, self._batch)
        self._write(_Write(self._commit_to(), self._query, self._batch, *batch), batch)
        self._stored = self._batch

    def write_job(self) -> None:
        """Write what no query writes, with and without a number of the application's."""
        self._number += 1
        batch = SinkBatch(f"txn:{self._producer}", self._number) if self._rng.random() < 0.5 else None
        job = f"batch-{uuid.uuid4().hex}"
        self._write(_Write(self._commit_to(), job, 0, self._producer, self._number), batch)

    def _write(self, write: _Write, batch: SinkBatch | None) -> None:
        channel, count = self._open_channel(), self._rng.randint(2, 8)
        messages = self._stage(write, count)
        self._ledger.write("put", write.name, write.number, count)
        try:
            write.publish(channel, messages, batch)
        except CommitOutcomeUnknownError:
            raise
        except SpillableError:
            self._ledger.write("not", write.name, write.number)
            with contextlib.suppress(SpillableError):
                _discard(channel, messages)
            raise
        said = {i: parse_body(data) for i, data in kept(channel).bodies.items()}
        first_id = min(i for i, of in said.items() if of[:2] == (write.name, write.number))
        self._ledger.write("ack", write.name, write.number, first_id)

    def _commit_to(self) -> ChannelCommit:
        return _commit_to(self._open_channel(), str(self._path))

    def _stage(self, write: _Write, count: int) -> list[Staged]:
        """Stage the events of a write in a few tasks, one of which at least has a file."""
        cuts = sorted(self._rng.sample(range(1, count), self._rng.randint(0, min(2, count - 1))))
        messages = []
        for first, end in zip([0, *cuts], [*cuts, count], strict=True):
            padding = self._rng.choice([10, 700, 2000])
            limit_bytes = 0 if not first or self._rng.random() < 0.6 else _INLINE_BYTES
            messages += write.stage(write.rows(range(first, end), count, padding), limit_bytes)
        return messages

    # ── what comes to nothing ───────────────────────────────────────────────────────────────────

    def _in_vain(self, batch: int) -> _Write:
        """Return a write of a batch of the query whose events nobody may ever see."""
        return _Write(self._commit_to(), self._query, batch, "in-vain", batch)

    def write_again(self) -> None:
        """Write the query's last batch again, which stores nothing."""
        if self._channel_state().sinks.get(self._query, -1) < (self._stored or 1):
            return  # there is none, or it went with the memory tier
        channel, write = self._open_channel(), self._in_vain(self._stored)
        write.publish(channel, self._stage(write, 4), SinkBatch(self._query, self._stored))

    def give_up_batch(self) -> None:
        """Stage the query's next batch, of which a task fails."""
        _discard(self._open_channel(), self._stage(self._in_vain(self._batch + 1), 5))

    def lose_tasks(self) -> None:
        """Stage the query's next batch in tasks that are killed behind it, or in the middle."""
        write = self._in_vain(self._batch + 1)
        self._stage(write, 3)
        write.commit.stage.begin(write.owner, write.batch).close()

    def stage_late(self) -> None:
        """Stage the query's last batch in tasks that nobody waits for any more."""
        if self._stored:
            self._stage(self._in_vain(self._stored), 3)

    def stage_late_meanwhile(self) -> None:
        """Create a checkpoint while such a task stages."""
        if self._stored:
            write = self._in_vain(self._stored)
            with staging([write.commit.stage], lambda _: 0, write.owner, write.batch) as task:
                task.add(0, write.rows(range(1), 2, 100))
                self.checkpoint()
                task.add(0, write.rows(range(1, 2), 2, 100))
                task.finish()


class _Write(NamedTuple):
    """One write.

    Args:
        commit: how its tasks stage, and its driver commits.
        owner: whose the staged files are.
        batch: the owner's number for it.
        name: whose the events are, in the ledger.
        number: their transaction there.
    """

    commit: ChannelCommit
    owner: str
    batch: int
    name: str
    number: int

    def rows(self, indices: range, count: int, padding: int) -> pa.RecordBatch:
        """Return some of its events."""
        return batch_from_events([Event(body(self.name, self.number, i, count, padding)) for i in indices])

    def stage(self, rows: pa.RecordBatch, limit_bytes: int) -> list[Staged]:
        """Stage what one task has, in a file if it is more than the limit."""
        with staging([self.commit.stage], lambda _: limit_bytes, self.owner, self.batch) as task:
            task.add(0, rows)
            return task.finish()

    def publish(self, channel: Channel, messages: list[Staged], batch: SinkBatch | None) -> None:
        """Do what the driver's commit does, through a handle that is open."""
        OpenCommit(self.commit, channel.port(), messages, self.batch, []).publish(batch)


def _commit_to(channel: Channel, path: str) -> ChannelCommit:
    return ChannelCommit(path, channel.port().plan_stage(), 0.0)


def _discard(channel: Channel, messages: list[Staged]) -> None:
    """Do what the driver does of a write that failed."""
    channel.port().discard([name for message in messages for name in message.staged_names()])


def is_stored_again(channel: Channel, name: str, batch: int) -> bool:
    """Commit the last batch of a query or an application again, and tell whether the channel stores it."""
    before = channel.engine().follow().next_id
    owner = name if name.endswith(QUERY) else "batch-again"
    write = _Write(_commit_to(channel, str(channel.path)), owner, batch, "in-vain", batch)
    write.publish(channel, write.stage(write.rows(range(2), 2, 100), 0), SinkBatch(name, batch))
    return channel.engine().follow().next_id != before
