"""What all sinks share: a name, counters, a channel, and how a take ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

import pyarrow as pa

from spillable_stream.channel.channel import Channel
from spillable_stream.channel.event import ID_COLUMN
from spillable_stream.channel.take_transaction import TakeTransaction
from spillable_stream.errors import SpillableError
from spillable_stream.flow.checked_arguments import Count, checked
from spillable_stream.flow.counters import SinkCounters
from spillable_stream.flow.late_channel import ChannelAwayError, asking, require_open
from spillable_stream.flow.sinks.letter_box import LetterBox
from spillable_stream.flow.sinks.written import WrittenEvents, ranges_of
from spillable_stream.flow.sources.base import Status
from spillable_stream.flow.tap_point import TapPoint
from spillable_stream.log_records import Seldom, log_of
from spillable_stream.state.ranges import Range, events_in

__all__ = ["BatchSink", "Sink", "Taken"]

_log = log_of("spillable_stream.flow")


class Taken:
    """What one take transaction gave, without the events that are written already.

    Args:
        batch: the events, in the channel's columns.
        ids: their write-order IDs.
        transaction: the open transaction.
    """

    __slots__ = ("batch", "ids", "transaction")

    def __init__(self, batch: pa.RecordBatch, ids: pa.Array, transaction: TakeTransaction) -> None:
        self.batch: pa.RecordBatch = batch
        self.ids: pa.Array = ids
        self.transaction: TakeTransaction = transaction

    @property
    def ranges(self) -> list[Range]:
        """The IDs as ranges."""
        return ranges_of(self.ids)


class Sink:
    """Takes events from a channel, and writes them somewhere.

    A reload builds one while that before it still runs, so the constructor opens nothing.

    Args:
        channel: the name of the channel, for `Agent`.

    Attributes:
        name: its name, which messages and counters say; an agent's sink is ``AGENT.SINK``.
        channel_name: the channel's name.
        consumer_group: the group of the channel as which it takes; all sinks of a channel are one group.
        counters: what it counts.
        in_group: whether it is in a sink group, where a failure must be raised, so that another sink takes over.
        keeps_note: whether a note of its own says what it has written: no other sink of its channel may start before
            that is read, when the sink is opened.
        dead_letter: the channel for events that can never be written; None for none.
        found_nothing: whether the last round found the channel empty.
        refusal: why it could not be opened after others of its group; "" if it could, or if its channel is away.
        written: the events of its channel that are written, or dead letters, and not committed.
        system: the options of the command line (``-D``).
        exit: where events can be seen that were written.
        trouble: the event that can't be written and is tried again and again, in words; empty if there is none.
    """

    keeps_note: bool = False

    @checked
    def __init__(self, channel: str = "") -> None:
        self.name: str = type(self).__name__
        self.channel_name: str = channel
        self.consumer_group: str = "default"
        self.counters: SinkCounters = SinkCounters()
        self.in_group: bool = False
        self.dead_letter: Channel | None = None
        self.found_nothing: bool = False
        self.refusal: str = ""
        self.trouble: str = ""
        self.written: WrittenEvents = WrittenEvents()
        self.system: Mapping[str, str] = {}
        self.exit: TapPoint = TapPoint()
        self.now: Callable[[], float] = time.time
        self._channel: Channel | None = None
        self._letters: LetterBox | None = None
        self._warning = Seldom()

    @property
    def channel(self) -> Channel:
        """The open channel.

        Raises:
            ChannelAwayError: the sink is not open yet: of a group, it is opened when its channel is there.
            SpillableError: it could not be opened then.
        """
        if self._channel is None:
            if self.refusal:
                raise SpillableError(f"it can't be opened: {self.refusal}")
            raise ChannelAwayError(f"{self.name} is not open yet, as its channel {self.channel_name} was away")
        return self._channel

    def refuse(self, why: str) -> None:
        """Let the sink be asked in vain, since it is not open while others of its group work.

        Args:
            why: why `open` failed; "" if it only waits for its channel, or for another sink of that.
        """
        self._channel, self.refusal = None, why

    def open(self, channel: Channel, written: WrittenEvents | None = None) -> None:
        """Open what the sink writes to.

        Args:
            channel: where it takes from.
            written: the events that this sink, or another one of the channel, has written and not committed.

        Raises:
            ChannelAwayError: the channel is optional, and not open yet or away.
            GroupOwnedError: sinks of another agent take from the channel.
        """
        require_open(channel)
        self._channel, self.refusal = channel, ""
        if self.keeps_note:  # the note, and the files that it names, are those of the group's owner
            with self.asking_channel():
                channel.consumer(self.consumer_group)
        self.written = written if written is not None else WrittenEvents()
        self._letters = None
        if self.dead_letter is not None:
            self._letters = self._letter_box(self.dead_letter)

    def succeed(self, before: Sink) -> None:
        """Learn what the sink of the same name knew that ran before this one, which `open` must know.

        Args:
            before: that sink.
        """

    def process(self) -> Status:
        """Take a batch, write it, commit the take, and say whether there may be more.

        What is asked of the channel is asked within `asking_channel`.

        Raises:
            SpillableError: it could not be written; the events are back in the channel.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Close what `open` opened; every event is written and committed, or back in the channel."""

    def held_events(self) -> int:
        """Return how many events it has taken and does not commit before its open files are closed."""
        return 0

    def due_seconds(self) -> float:
        """Return in how many seconds `process` has something to do though no event comes."""
        return float("inf")

    def wait(self, seconds: float) -> bool:
        """Wait for events, for some seconds at most, and tell whether there are any."""
        with self.asking_channel(), self.take_transaction() as transaction:
            found = transaction.take_batch(1, timeout_seconds=seconds)
            transaction.rollback()
        return found is not None

    @contextmanager
    def asking_channel(self) -> Iterator[None]:
        """Tell what the channel refuses within the block from what the sink's target does.

        Raises:
            ChannelAwayError: the channel is optional, and away.
        """
        try:
            with asking(self.channel):
                yield
        except SpillableError:
            self.counters.channel_read_fail += 1
            raise

    def take_transaction(self) -> TakeTransaction:
        """Return a new take transaction of the sink's group."""
        return self.channel.take_transaction(self.consumer_group)

    @contextmanager
    def begun_take(self, most_events: int) -> Iterator[tuple[TakeTransaction, pa.Table | None]]:
        """Take some events, None if there are none; what is not committed in the block comes again.

        Args:
            most_events: how many, at most.

        Raises what `asking_channel` raises.
        """
        with ExitStack() as stack:
            with self.asking_channel():
                transaction = stack.enter_context(self.take_transaction())
                table = transaction.take_batch(most_events)
            self.found_nothing = table is None
            self.counters.took(0 if table is None else table.num_rows, most_events)
            yield transaction, table

    def name_trouble(self, text: str) -> None:
        """Say once a minute that an event can't be written, and keep it for the health of the agent."""
        self.trouble = text
        if self._warning.is_due():
            _log.of(self.name).error("%s", text)

    def bury(self, batch: pa.RecordBatch, ids: pa.Array, reason: str) -> bool:
        """Put events that can never be written into the dead-letter channel, once though they come again, or name them.

        Returns:
            Whether they are there; if not, there is no such channel, and they stay in this one.
        """
        if self.dead_letter is None:
            what = events_in(ranges_of(ids))
            hint = "or give the sink a deadLetter channel for such events"
            self.name_trouble(f"{what} can't be written, and the batch is tried again: {reason}; {hint}")
            return False
        self._letters = self._letters or self._letter_box(self.dead_letter)
        self._letters.put(batch, ids, reason, int(self.now() * 1000))
        return True

    def _letter_box(self, dead_letter: Channel) -> LetterBox:
        return LetterBox(dead_letter, self.name, self.channel, self.consumer_group, self.written)


class BatchSink(Sink):
    """A sink that writes each take as a whole before it commits it.

    Args:
        batch_size: how many events a take has at most.
        channel: see `Sink`.
    """

    @checked
    def __init__(self, batch_size: Count, channel: str = "") -> None:
        super().__init__(channel)
        self.batch_size = batch_size

    def process(self) -> Status:
        """Take and write a batch; see `Sink.process`."""
        with self.taking() as taken:
            if taken is None:
                self.idle()
                return Status.BACKOFF
            if len(taken.ids):
                self.write(taken)
            self.counters.event_drain_success_count += taken.transaction.count
            self.trouble = ""
        return Status.READY

    @contextmanager
    def taking(self) -> Iterator[Taken | None]:
        """Take a batch, and commit it when the block ends; None where there is no event."""
        with self.begun_take(self.batch_size) as (transaction, table):
            if table is None:
                yield None
                transaction.rollback()
                return
            taken = self._without_written(table, transaction)
            try:
                yield taken
            except Exception:
                self.counters.event_write_fail += 1
                raise
            with self.asking_channel():
                transaction.commit()
            if self.written:
                self.written.remove(ranges_of(table.column(ID_COLUMN)))
            self.exit.passed(taken.batch)

    def _without_written(self, table: pa.Table, transaction: TakeTransaction) -> Taken:
        ids = table.column(ID_COLUMN)
        if self.written:
            keep = self.written.missing(ids)
            if keep is not None:
                table = table.filter(keep)
        batches = table.combine_chunks().to_batches()
        whole = batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)
        index = whole.schema.get_field_index(ID_COLUMN)
        ids, batch = whole.column(index), whole.remove_column(index)
        return Taken(batch, ids, transaction)

    def write(self, taken: Taken) -> None:
        """Write a batch durably; it is committed when this returns.

        Raises:
            SpillableError: it could not be written.
        """
        raise NotImplementedError

    def idle(self) -> None:
        """Do what is due though there is no event."""
