"""A program that keeps what was taken, goes back to it and lets it go, step by step: what the recipes crash.

Two groups take, one of them goes back now and then, a third one comes and goes as a stream's own does.
The ledger says what is about to be done to whom, and that it was; `keeping_check` knows what must be
true then. A line that no ``ack`` and no ``not`` follows is in doubt::

    put NAME 7 3              as in every ledger, and so is its answer: ack NAME 7 12
    take GROUP 12:NAME:7:0:3 …    a group is about to commit the takes of these events
    seek GROUP 11             it is about to go to the event 12
    expire 30                 the events up to this one are about to leave
    look 20 30                what is too much is about to leave: up to one of these, or nothing; ack 20
    move                      what is kept is about to be moved out of memory; ack 25: all up to there is on disk
    keep 1                    taken events are about to be kept from now on; 0: no longer
    group GROUP 11 1          it is about to be created, to begin with the event 12; 1: by a stream
    drop GROUP                it is about to be dropped
    flush                     what is in memory is about to be moved to disk
    lost 31 40                the channel says so
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from spillable_stream import Channel
from spillable_stream.channel.taken_events import events_from_batch
from spillable_stream.engine.automatic_groups import AutomaticGroups
from spillable_stream.engine.local.upkeep import Upkeep
from spillable_stream.engine.requests import Control
from spillable_stream.errors import CommitOutcomeUnknownError, SpillableError
from spillable_stream.format.frame import FrameType
from spillable_stream.format.record import GroupRecord
from spillable_stream.state.channel_state import ChannelState
from tests.lab.contents import CONSUMERS
from tests.lab.workload import Program, said

__all__ = ["REWINDERS", "STREAM", "Keeping", "let_go", "set_retention", "upkeep_by_hand"]

REWINDERS = "rewinders"
STREAM = "stream-1"  # created by a stream for itself
_TTL_SECONDS = 1.0  # of a stream's group; the steps say how much time passes
_RETENTION_BYTES = 1 << 30  # so that nothing leaves but what the steps let go


def upkeep_by_hand() -> AbstractContextManager[object]:
    """Let no thread look after a channel: a recipe must do the same in the same order each time."""
    return mock.patch.object(Upkeep, "ensure", lambda self: None)


class Keeping(Program):
    """Does steps on one channel that keeps what was taken, but for a while in each round."""

    def steps(self) -> Iterator[Callable[[], None]]:
        """Yield the steps, in order; each is done when it is called."""
        yield self.open
        for _ in range(self._rounds):
            steps = [self.put_small] * 3 + [self.take_some] * 3 + [self.take_as_rewinders] * 3
            steps += [self.put_many, self.put_staged, self.prepare_a_take, self.abandon_a_take]
            steps += [self.seek_back] * 2 + [self.seek_with_a_take_in_flight, self.seek_to_the_end]
            steps += [self.expire, self.expire_untaken, self.look, self.drop_stream]
            steps += [self.take_as_stream] * 2 + [self.leave_stream]
            steps += [self.checkpoint] * 2 + [self.roll] * 2 + [self.reopen, self.do_not_keep]
            if self._options["memory_capacity"]:
                steps += [self.flush, self.move]
            self._rng.shuffle(steps)
            yield from steps
        yield from (self.seek_back, self.checkpoint, self.roll, self.put_many, self.drain)
        if self._options["memory_capacity"]:
            yield self.move
        yield from (self.expire_all, self.put_small, self.checkpoint, self.close)

    def open(self) -> None:
        """Open the channel, which creates it if it is missing, with its groups; taken events are kept from now on."""
        self.channel = Channel(self._path, fs=self._fs, auto_group_ttl=_TTL_SECONDS, **self._options)
        self.note_losses()
        if not self._channel_state().options.keeps:
            self._keep(_RETENTION_BYTES)
        for group in (CONSUMERS, REWINDERS):
            self._own(group)

    def note_losses(self) -> None:
        """Write down which events the channel says are lost."""
        for first, last in self._channel_state().lost:
            self._ledger.write("lost", first, last)

    def _channel_state(self) -> ChannelState:
        return self._open_channel().engine().follow()

    def _commit(self, words: tuple[object, ...], commit: Callable[[], object]) -> None:
        """Do what is written down before, and write down how it ended."""
        self._ledger.write(*words)
        try:
            answer = commit()
        except CommitOutcomeUnknownError:
            raise
        except SpillableError:
            self._ledger.write("not")
            raise
        self._ledger.write("ack", *([answer] if isinstance(answer, int) else []))

    def _own(self, group: str, automatic: bool = False) -> Any:
        """Return a group's consumer, which is created with the first kept event as its first if it is missing."""
        if group not in (state := self._channel_state()).groups:
            made: GroupRecord = {"group": group, "position": state.beginning() - 1}
            if automatic:
                made["auto"] = True
            engine = self._open_channel().engine()
            words = ("group", group, made["position"], int(automatic))
            self._commit(words, lambda: engine.commit(Control(FrameType.GROUP, made)))
        return self._open_channel().consumer(group)

    def _take(self, group: str, limit: int) -> int:
        """Take one transaction as a group and return how many events it had."""
        self._own(group)
        tx = self._open_channel().take_transaction(group)
        tx.begin()
        events = tx.take_many(limit)
        if not events:
            tx.rollback()
            return 0
        self._commit(("take", group, *map(said, events)), tx.commit)
        return len(events)

    # ── takes ───────────────────────────────────────────────────────────────────────────────

    def take_some(self) -> None:
        """Take a few events."""
        self._take(CONSUMERS, self._rng.randint(1, 10))

    def take_as_rewinders(self) -> None:
        """Take a few events, some of them again."""
        self._take(REWINDERS, self._rng.randint(1, 25))

    def take_as_stream(self) -> None:
        """Take a few events as a group that a stream has created for itself."""
        self._own(STREAM, automatic=True)
        self._take(STREAM, self._rng.randint(1, 10))

    def drop_stream(self) -> None:
        """Drop the group that a stream has created for itself."""
        if STREAM in self._channel_state().groups:
            self._commit(("drop", STREAM), lambda: self._open_channel().drop_group(STREAM))

    def leave_stream(self) -> None:
        """Let nobody read as the group that a stream has created for itself, until that goes."""
        channel = self._open_channel()
        if STREAM not in self._channel_state().groups:
            return
        channel.consumer(STREAM).close()
        del channel._open.owned.consumers[STREAM]
        engine = channel.engine()
        groups = AutomaticGroups(engine.log, engine.follower, engine.appender, engine.owners)
        self._ledger.write("drop", STREAM)
        for elapsed_ms in (0, 600, 600):
            groups.look(elapsed_ms)  # a failure is logged
        self._ledger.write("not" if STREAM in self._channel_state().groups else "ack")

    def prepare_a_take(self) -> None:
        """Write down a take before it is committed, as Spark's source does with a micro-batch."""
        consumer = self._own(CONSUMERS)
        if ranges := consumer.claim(4):
            events = [event for read in consumer.read(ranges) for event in events_from_batch(read)]
            prepared = consumer.prepare(ranges)
            self.checkpoint()  # which must not forget it

            def commit() -> None:
                consumer.commit(ranges, prepared)

            self._commit(("take", CONSUMERS, *map(said, events)), commit)

    def drain(self) -> None:
        """Take all that there is, as every group."""
        for group in list(self._channel_state().groups):
            self._own(group)
            while self._take(group, 1000):
                pass

    # ── going back ──────────────────────────────────────────────────────────────────────────

    def _seek(self, position: int) -> None:
        consumer = self._own(REWINDERS)
        self._commit(("seek", REWINDERS, position), lambda: consumer.seek(position))

    def seek_back(self) -> None:
        """Go back to some event that is there, the first one often."""
        state = self._channel_state()
        first, last = state.beginning(), state.last_id
        self._seek(self._rng.choice([first - 1, self._rng.randint(first - 1, last)]))

    def seek_with_a_take_in_flight(self) -> None:
        """Go back while a take is written down, which is given back."""
        consumer = self._own(REWINDERS)
        if ranges := consumer.claim(4):
            consumer.prepare(ranges)
        self.seek_back()

    def seek_to_the_end(self) -> None:
        """Pass over all that there is."""
        if self._rng.random() < 0.3:
            self._seek(self._channel_state().last_id)

    # ── what leaves ─────────────────────────────────────────────────────────────────────────

    def expire(self) -> None:
        """Let some of what every group has taken go."""
        state = self._channel_state()
        self._expire(self._rng.randint(state.first_kept - 1, state.needed_from() - 1))

    def expire_untaken(self) -> None:
        """Let a few events go that some group has yet to take."""
        self.put_small()
        state = self._channel_state()
        self._expire(min(state.needed_from() + self._rng.randint(0, 2), state.last_id))

    def expire_all(self) -> None:
        """Let everything go that every group has taken, which is all."""
        self._expire(self._channel_state().needed_from() - 1)

    def _expire(self, through: int) -> None:
        if through >= self._channel_state().first_kept:
            self._commit(("expire", through), lambda: let_go(self._open_channel(), through))

    def look(self) -> None:
        """Let go what is too much, whole files of it."""
        engine = self._open_channel().engine()
        state = self._channel_state()
        lasts = [b.last_id for b in state.blocks if b.last_id < min(state.floor, state.needed_from())]

        def let_go() -> int:
            engine.retention.let_go_for_space(self._rng.randint(1, 8000))
            return engine.state.first_kept - 1  # as it is: to look again may fail, and they have left

        self._commit(("look", *lasts), let_go)
        engine.checkpointing.give_back_within_a_call(0)

    def move(self) -> None:
        """Put a little to memory, take all that there is, and move it to disk, where it is kept."""
        self.drain()
        self.put_small()
        self.drain()
        engine = self._open_channel().engine()

        def move() -> int:
            engine.moving.move_taken()
            memory = self._channel_state().blocks.memory
            return min((b.first_id for b in memory), default=self._channel_state().next_id) - 1

        self._channel_state()
        self._commit(("move",), move)

    def do_not_keep(self) -> None:
        """Keep nothing for a while: what every group has taken goes."""
        self._keep(0)
        for _ in range(2):
            self.take_some()
            self.take_as_rewinders()
            self.put_small()
        self._keep(_RETENTION_BYTES)

    def _keep(self, size_bytes: int) -> None:
        self._commit(("keep", int(size_bytes > 0)), lambda: set_retention(self._open_channel(), size_bytes))

    # ── the rest ────────────────────────────────────────────────────────────────────────────

    def flush(self) -> None:
        """Move what is in memory to disk."""
        channel = self._open_channel()

        def flush() -> None:
            channel.flush()

        self._commit(("flush",), flush)

    def close(self) -> None:
        """Close the channel, which moves what is in memory to disk."""
        channel, self.channel = self._open_channel(), None
        self._commit(("flush",), channel.close)


def let_go(channel: Channel, through: int) -> None:
    """Let every event up to one go."""
    channel.engine().commit(Control(FrameType.RETENTION, {"through": through}))


def set_retention(channel: Channel, size_bytes: int) -> None:
    """Keep so much of what was taken, which may be less than the options allow."""
    channel.engine().commit(Control(FrameType.OPTIONS, {"retention_bytes": size_bytes}))
