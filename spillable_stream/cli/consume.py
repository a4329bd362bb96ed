"""The verbs that read: ``take`` and ``tail``."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spillable_stream.channel.place import PLACES, parse_place
from spillable_stream.cli.app import ending, until_signal
from spillable_stream.cli.arguments import ChannelPath, decoded, refuse_empty, time_span
from spillable_stream.cli.output import mark_output, say, status_of_output, sync_output, untaken_output, write_lines
from spillable_stream.counted import counted
from spillable_stream.errors import CommitOutcomeUnknownError, OptionError, SpillableError
from spillable_stream.state.ranges import count_of, events_in

if TYPE_CHECKING:
    import pyarrow as pa

    from spillable_stream.channel.channel import Channel

__all__ = ["tail", "take"]

_AT_ONCE = 1000  # events of one transaction: what a broken pipe returns to the queue
_KEPT_BYTES = 16 << 20  # of the last events; more of them are read a second time instead
_POLL_SECONDS = 0.2
_FAR_POLL_SECONDS = 1.0

_Group = Annotated[str, typer.Option("--group", "-g", callback=decoded, help="The group that takes.")]
_Max = Annotated[int | None, typer.Option("-n", "--max", min=1, help="The most events; all that are there by default.")]
_Wait = Annotated[
    float,
    typer.Option(
        "--wait", metavar="TIME", parser=time_span(), help="How long to wait for the next event, as 90 or 2h."
    ),
]
_JsonLines = Annotated[bool, typer.Option("--json", help="Print whole events, with IDs and headers, as JSON lines.")]
_Count = Annotated[
    int | None, typer.Option("-n", "--lines", min=0, help="How many of the last events to print; 10 by default.")
]
_Follow = Annotated[bool, typer.Option("-f", "--follow", help="Print events as they come, until Ctrl-C.")]
_From = Annotated[str | None, typer.Option("--from", metavar="PLACE", help=f"Where to begin instead: {PLACES}.")]
_Delayed = Annotated[
    str | None,
    typer.Option(
        "--delayed",
        metavar="FILE",
        callback=refuse_empty("a file"),
        help="Print the delayed events that no commit names, of a file or copy.",
    ),
]


def take(
    path: ChannelPath,
    group: _Group = "default",
    max_events: _Max = None,
    wait: _Wait = 0.0,
    json_lines: _JsonLines = False,
) -> None:
    """Take events and print them, a body a line (of a typed channel, a JSON object a line).

    A commit comes when up to 1,000 are printed; into a file, when that is synced. If the reader of a pipe ends, or a
    disk is full, those that were not handed over are back in the queue, and a message says what a file has of them.

    Example: `spillable take /data/orders --group audit --max 100`

    Exit status: 0 done, also if nothing was there; 1 it failed; 2 no such channel; 74 the output can't be written; 141
    nobody reads it any more.
    """
    from spillable_stream.channel.channel import Channel

    taken, stands, untaken = 0, "nothing was taken", ""
    saying = ending(path, interrupted=lambda: stands, failed=lambda: untaken)
    with saying, Channel(path, create=False) as channel:
        taking = _Taking(channel, group, json_lines)
        try:
            while max_events is None or taken < max_events:
                limit = _AT_ONCE if max_events is None else min(_AT_ONCE, max_events - taken)
                count = taking.take(min(limit, channel.options["transaction_capacity"]), wait)
                if not count:
                    break
                taken += count
        except KeyboardInterrupt:
            stands = taking.stands()
            raise
        except SpillableError as e:
            untaken = untaken_output(is_known=not isinstance(e, CommitOutcomeUnknownError))
            raise
        stands = f"{counted(taken, 'event')} taken"


class _Taking:
    """Takes a group's events, prints them, and commits them once they are handed over.

    Args:
        channel: the channel.
        group: the group's name.
        as_json: whether to print whole events.
    """

    def __init__(self, channel: Channel, group: str, as_json: bool) -> None:
        self._channel, self._group, self._as_json = channel, group, as_json
        self._taken_before = 0  # the commit of what was printed last
        self._is_committing = False

    def take(self, limit: int, wait_seconds: float) -> int:
        """Take so many events at most, and return how many."""
        from spillable_stream.cli.event_text import event_line
        from spillable_stream.cli.map_text import rows_with_plain_maps

        channel, events = self._channel, list[Any]()
        try:
            with channel.take_transaction(self._group) as tx:
                events = tx.take_many(limit, wait_seconds)
                group = channel.engine().state.groups.get(self._group)
                self._taken_before = 0 if group is None else group.taken_count()
                rows = rows_with_plain_maps(events, channel.schema) if channel.typed else events
                write_lines(event_line(event, as_json=self._as_json) for event in rows)
                sync_output()
                self._is_committing = True
        except OSError:
            back = f"the last {counted(len(events), 'event', 'are')} back in the queue"
            status = status_of_output(back + untaken_output())
            if status is None:
                raise
            raise typer.Exit(status) from None
        mark_output()
        self._is_committing = False
        return len(events)

    def stands(self) -> str:
        """Return where the group is, and what a file has that is not taken: a commit that Ctrl-C ends may be done."""
        from spillable_stream.objects.location import Location

        try:
            with self._channel.port().snapshot() as state:
                found = state.groups.get(self._group)
        except SpillableError as e:
            return f"the position of the group {self._group!r} is not known: {e}{untaken_output(is_known=False)}"
        if found is None:
            return "nothing was taken" + untaken_output()
        stands = f"the group {self._group!r} takes the event {found.position + 1} next"
        if self._is_committing and found.taken_count() > self._taken_before:
            return stands
        may_come = self._is_committing and isinstance(self._channel.path, Location)  # a store may do it still
        return stands + untaken_output(is_known=not may_come)


def tail(
    path: ChannelPath,
    count: _Count = None,
    follow: _Follow = False,
    start: _From = None,
    delayed: _Delayed = None,
    json_lines: _JsonLines = False,
) -> None:
    """Print the last events, a body a line, and take nothing.

    With `--delayed`, print those of a file of delayed events, or of its copy in quarantine, that no commit names, as
    `spillable verify` and `repair` say of it: all of them, with `--json` also when they are due.

    Example: `spillable tail /data/orders -n 20 -f`

    Example: `spillable tail /data/orders --from "15m ago" --json`

    Exit status: 0 done; 1 it failed; 2 no such channel.
    """
    from spillable_stream.channel.channel import Channel

    with ending(path, interrupted=lambda: "nothing was taken"):
        if delayed is not None and (follow or start is not None or count is not None):
            raise OptionError("--delayed prints all events of its file: leave out -n, --from and --follow")
        with until_signal() if follow else nullcontext(), Channel(path, create=False, readonly=True) as channel:
            if delayed is None:
                _Tail(channel, json_lines).run(10 if count is None else count, start, follow)
            else:
                _print_delayed(channel, delayed, json_lines)


def _print_delayed(channel: Channel, file: str, as_json: bool) -> None:
    """Print the delayed events of a file that no commit names."""
    from spillable_stream.cli.event_text import delayed_lines
    from spillable_stream.integrity.unnamed_delays import unnamed_delays
    from spillable_stream.objects.location import Location
    from spillable_stream.objects.open_store import open_store

    engine, path = channel.engine(), channel.path
    store = open_store(path) if isinstance(path, Location) else None
    for dues, batch in unnamed_delays(channel.uuid, engine.follow(), engine.schemas(), file, store):
        write_lines(delayed_lines(dues, batch, typed=channel.typed, as_json=as_json))


class _Tail:
    """Prints events behind each other.

    Args:
        channel: the channel, which is only looked at.
        as_json: whether to print whole events.
    """

    def __init__(self, channel: Channel, as_json: bool) -> None:
        self._channel = channel
        self._as_json = as_json
        self._next_id = 0

    def run(self, count: int, start: str | None, follow: bool) -> None:
        """Print the last ``count`` events, or those from ``start`` on; then, if it is to follow, those that come."""
        stats = self._channel.stats()
        first_kept, self._next_id = stats.kept.first_id, stats.last_id + 1
        if start is not None:
            self._print_all(self._channel.read(parse_place(start)))
        elif count and first_kept <= stats.last_id:
            self._print_last(first_kept, stats.last_id, count)
        while follow:
            time.sleep(_FAR_POLL_SECONDS if stats.store is not None else _POLL_SECONDS)
            self._print_new()

    def _print_last(self, first_kept: int, last_id: int, count: int) -> None:
        """Print the last events: IDs have gaps where events were lost or taken ahead, so look further back for them."""
        wanted = count
        while True:
            first = max(first_kept, last_id - wanted + 1)
            batches, found, size_bytes = list["pa.RecordBatch"](), 0, 0
            for batch in self._channel.read(first, last_id):
                found, size_bytes = found + batch.num_rows, size_bytes + batch.nbytes
                if size_bytes <= _KEPT_BYTES:
                    batches.append(batch)
            if found >= count or first == first_kept:
                break
            wanted *= 4
        passed = max(0, found - count)
        for batch in batches if size_bytes <= _KEPT_BYTES else self._channel.read(first, last_id):
            left_out = min(passed, batch.num_rows)
            passed -= left_out
            self._print(batch.slice(left_out))

    def _print_new(self) -> None:
        """Print what came since, and say what left before it could be read."""
        from spillable_stream.errors import DataLossError

        stats = self._channel.stats()
        if stats.last_id < self._next_id:
            return
        if stats.kept.first_id > self._next_id:
            gone = [(self._next_id, stats.kept.first_id - 1)]
            say(f"{events_in(gone)} left the channel before {'it was' if count_of(gone) == 1 else 'they were'} printed")
            self._next_id = stats.kept.first_id
        if self._next_id > stats.last_id:
            return
        try:
            self._print_all(self._channel.read(self._next_id, stats.last_id))
        except DataLossError:  # they leave as this reads them: the next look says which
            return
        self._next_id = stats.last_id + 1

    def _print_all(self, batches: Iterable[pa.RecordBatch]) -> None:
        for batch in batches:
            self._print(batch)

    def _print(self, batch: pa.RecordBatch) -> None:
        from spillable_stream.cli.event_text import lines_of

        write_lines(lines_of(batch, typed=self._channel.typed, as_json=self._as_json))
        if batch.num_rows:
            self._next_id = max(self._next_id, batch.column(batch.num_columns - 1)[-1].as_py() + 1)
