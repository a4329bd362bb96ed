"""The verb ``export``: writes events to a file, and takes nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spillable_stream.arguments import require_resolvable
from spillable_stream.channel.place import PLACES, parse_end, parse_place
from spillable_stream.cli.app import AsJson, confirm, ending, print_object
from spillable_stream.cli.arguments import ChannelPath, Yes, refuse_empty
from spillable_stream.cli.csv_rows import COMMA, csv_delimiter, delimiter_of
from spillable_stream.cli.export_file import Export
from spillable_stream.cli.export_plan import ExportFormat, ExportPlan, export_format
from spillable_stream.cli.output import say
from spillable_stream.cli.shown_progress import shown_progress
from spillable_stream.counted import counted
from spillable_stream.errors import OptionError
from spillable_stream.log.nesting import require_outside
from spillable_stream.storage.filesystem import FileSystem

if TYPE_CHECKING:
    from spillable_stream.channel.channel import Channel

__all__ = ["export"]

_Out = Annotated[
    str,
    typer.Argument(
        metavar="OUT", callback=refuse_empty("a file"), help="The file: OUT.parquet, .arrow, .jsonl, .csv or .tsv."
    ),
]
_Format = Annotated[
    ExportFormat | None, typer.Option("--format", help="The format; by default what the name ends with.")
]
_Delimiter = Annotated[
    str | None,
    typer.Option("--delimiter", metavar="CHARACTER", help="The character between values of CSV, as ';' or tab."),
]
_From = Annotated[str, typer.Option("--from", metavar="PLACE", help=f"The first event: {PLACES}.")]
_To = Annotated[
    str | None, typer.Option("--to", metavar="PLACE", help="The last ID, or a time; up to the end by default.")
]


def export(
    path: ChannelPath,
    out: _Out,
    start: _From = "earliest",
    end: _To = None,
    kind: _Format = None,
    delimiter: _Delimiter = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Write the events that are in a channel now to a file, with their IDs in the column write_order_id; take nothing.

    The file has its name when it is whole. An export that was interrupted continues where it was when it is run again;
    until then what is done is in OUT.partial.

    Example: `spillable export /data/orders orders.parquet --from 2026-01-31`

    Exit status: 0 the file is whole; 1 it is not, and the same command continues; 2 no such channel, place or format.
    """
    from spillable_stream.channel.channel import Channel

    exports: list[Export] = []
    with ending(path, as_json, lambda: _stands(exports)):
        if out == "-":
            raise OptionError("an export is continued where it was, so it needs a file: give its path, not -")
        if os.path.exists(out) and not os.path.isfile(out):
            raise OptionError(f"{out} is not a file, and an export would replace it: give the path of a file")
        require_resolvable("the file", out)
        if why := FileSystem().why_impossible(Path(out)):
            raise OptionError(f"no file can be at {out}: {why}; give another path")
        kind = kind or export_format(out)
        delimiter = csv_delimiter(delimiter, is_csv=kind is ExportFormat.CSV) or delimiter_of(out) or COMMA
        with Channel(path, create=False, readonly=True) as channel:
            require_outside(FileSystem(), Path(out), out)
            work = Export(channel, Path(out), _plan(channel, start, end, kind, delimiter))
            if work.replaces:
                confirm(path, f"{out} exists. Replace it?", yes)
            exports.append(work)
            if work.done_id >= work.plan.first_id and not as_json:
                say(f"continuing after the event {work.done_id} of {work.plan.first_id} to {work.plan.last_id}")
            with shown_progress("export") as progress:
                count = work.run(progress, any_file=yes)
        if as_json:
            first, last = work.plan.first_id, work.plan.last_id
            print_object({"path": path, "file": out, "events": count, "firstId": first, "lastId": last})
        else:
            typer.echo(f"{out}: {counted(count, 'event')}")


def _stands(exports: list[Export]) -> str:
    if not exports:
        return "nothing was written"
    if exports[0].is_whole:
        return "the file is whole"
    plan, done = exports[0].plan, exports[0].kept_id()
    if done < plan.first_id:
        return "no event is done; the same command begins again"
    return f"the events up to {done} of {plan.first_id} to {plan.last_id} are done; the same command continues"


def _plan(channel: Channel, start: str, end: str | None, kind: ExportFormat, delimiter: str) -> ExportPlan:
    """Settle which events are exported."""
    from spillable_stream.channel.event import ID_COLUMN

    first_id, last_id = channel.range_of(parse_place(start), None if end is None else parse_end(end))
    return ExportPlan(
        channel.uuid, first_id, last_id, str(kind), [*channel.schema.names, ID_COLUMN], delimiter, start, end
    )
