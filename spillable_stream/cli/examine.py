"""The verbs that examine: ``verify``, ``repair`` and ``check-store``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spillable_stream.channel.figures import size_text
from spillable_stream.cli.app import HEALTHY, UNHEALTHY, UNKNOWN, AsJson, confirm, cut_short, fail, print_object
from spillable_stream.cli.arguments import ChannelPath, Yes, refuse_empty
from spillable_stream.cli.shown_progress import shown_progress
from spillable_stream.counted import counted
from spillable_stream.errors import CorruptionError, SpillableError
from spillable_stream.objects.location import Location
from spillable_stream.objects.self_test import FULL_RACES, StoreVerdict
from spillable_stream.objects.self_test import check_store as check_objects
from spillable_stream.state.ranges import listed

if TYPE_CHECKING:
    from spillable_stream.integrity.findings import Finding, Report

__all__ = ["check_store", "repair", "verify"]

_SHOWN_FINDINGS = 50

_URI = Annotated[
    str,
    typer.Argument(
        metavar="URI",
        callback=refuse_empty("an address in a store"),
        help="Where a channel would be: s3://, az:// or gs://bucket/path.",
    ),
]
_Claim = Annotated[
    list[str] | None,
    typer.Option(
        "--claim",
        metavar="DIR",
        callback=refuse_empty("a directory of the channel"),
        help="Give the channel this directory of its own as it is, with no owner.json or an older one. Repeatable.",
    ),
]
_RACES = Annotated[int, typer.Option("--races", min=1, help="For how many objects eight writers race.")]


def verify(path: ChannelPath, as_json: AsJson = False) -> None:
    """Read a whole channel, in use or not, and report what is wrong, and where. Change nothing.

    Example: `spillable verify /data/orders`

    Exit status: 0 healthy, 1 something is wrong, 2 it can't be told.
    """
    report = _verified(path, as_json)
    if as_json:
        print_object(report.as_dict() | {"path": path})
    else:
        _print(path, report, "repair would" if not report.unrepairable else "")
    raise typer.Exit(HEALTHY if report.healthy else UNHEALTHY)


def repair(path: ChannelPath, yes: Yes = False, claim: _Claim = None, as_json: AsJson = False) -> None:
    """Make a damaged channel whole again. Copies of everything it changes go to PATH/quarantine.

    A healthy channel is not touched. Nobody may have the channel open; in an object store nothing can tell that. If
    events can't be saved, it says so, and asks first. The disk of a directory without an owner.json, or with one of an
    older or another state of the channel, may not be mounted: nothing is repaired until it is, or until --claim names
    the directory as one to continue with, without what was on that disk. One of backupCheckpointDir is left alone, and
    the rest repaired. --yes names none.

    Example: `spillable repair /data/orders`

    Exit status: 0 healthy now, 1 it can't be repaired, 2 it was not tried.
    """
    from spillable_stream.integrity.claimed_directories import require_claimable
    from spillable_stream.integrity.repair import repair as repair_channel

    if not yes:
        with _reporting(path, as_json, "nothing was changed"):
            require_claimable(path, claim or ())
        found = _verified(path, as_json)
        if claim or not found.unrepairable:
            _confirm_loss(path, found)
    with (
        _reporting(path, as_json, "run it again: a repair that was interrupted starts over"),
        shown_progress("repair") as progress,
    ):
        report = repair_channel(path, claim=claim or (), progress=progress)
    if as_json:
        print_object(report.as_dict() | {"path": path})
    elif report.quarantine is None:
        _print(path, report, "")
    else:
        _print(path, report, "repair did")
        typer.echo(f"{path}: repaired; what was damaged is in {_as_given(path, report, report.quarantine)}")


def check_store(uri: _URI, races: _RACES = FULL_RACES, as_json: AsJson = False) -> None:
    """Test whether a channel is safe in an object store: race for new objects there, then delete them.

    Example: `spillable check-store s3://bucket/orders`

    Exit status: 0 safe as far as the test can tell, 1 not safe, 2 it can't be told.
    """
    from spillable_stream.objects.open_store import open_store

    try:
        verdict = check_objects(open_store(Location.parse(uri)), races=races)
    except (SpillableError, ImportError, OSError) as e:
        fail(uri, e, as_json, UNKNOWN)
    if as_json:
        print_object(asdict(verdict) | {"sound": verdict.sound})
    else:
        _print_verdict(verdict)
    raise typer.Exit(HEALTHY if verdict.sound else UNHEALTHY)


def _print_verdict(verdict: StoreVerdict) -> None:
    for fault in verdict.faults:
        typer.echo(f"unsafe: {fault}")
    tried = f"{verdict.threads} writers raced for each of {verdict.races:,} objects, and at most {verdict.winners} won"
    typer.echo(f"{verdict.root}: {'safe for a channel' if verdict.sound else 'not safe for a channel'} ({tried})")


def _confirm_loss(path: str, report: Report) -> None:
    """Ask before a repair that gives up events."""
    loss = report.loss
    given_up = [
        *([f"{events}, which can't be read"] if (events := loss.events_text()) else []),
        *([f"the kept events {listed(loss.kept)}, which no group needs"] if loss.kept else []),
        *([f"the IDs {listed(loss.doubtful)}, which may have been in use"] if loss.doubtful else []),
    ]
    if given_up:
        confirm(path, f"A repair of {path} gives up {'; and '.join(given_up)}. Repair it?", yes=False)


def _verified(path: str, as_json: bool) -> Report:
    """Return the report of a verify, or say why there is none and exit."""
    from spillable_stream.integrity.verify import verify as verify_channel

    with _reporting(path, as_json, "nothing was changed"), shown_progress("verify") as progress:
        return verify_channel(path, progress=progress)


@contextmanager
def _reporting(path: str, as_json: bool, interrupted: str) -> Iterator[None]:
    """Say why there is no report, and exit.

    Args:
        path: the channel.
        as_json: whether the result is JSON.
        interrupted: what to say after a signal.
    """
    try:
        yield
    except KeyboardInterrupt as e:
        raise cut_short(e, interrupted, path, as_json=as_json) from None
    except (SpillableError, ImportError, OSError) as e:
        fail(path, e, as_json, UNHEALTHY if isinstance(e, CorruptionError) else UNKNOWN)


def _as_given(path: str, report: Report, file: object) -> object:
    """Return a file or directory of a channel below the path that was given for it; one elsewhere as it is."""
    if isinstance(report.path, Path) and isinstance(file, Path) and file.is_relative_to(report.path):
        return Path(path, file.relative_to(report.path))
    return file


def _print(path: str, report: Report, who: str) -> None:
    """Print a report for people.

    Args:
        path: the channel, as it was given.
        report: the report.
        who: the words before what is given up: "repair would" or "repair did"; empty to leave it out.
    """
    for finding in report.findings[:_SHOWN_FINDINGS]:
        typer.echo(_line(finding, _as_given(path, report, finding.path)))
    if len(report.findings) > _SHOWN_FINDINGS:
        typer.echo(f"… and {counted(len(report.findings) - _SHOWN_FINDINGS, 'more finding')}; --json has all")
    loss = report.loss
    if who and not report.healthy:
        events = loss.events_text()
        typer.echo(f"{who} lose {events}" if events else f"{who} not lose any event")
        if loss.kept:
            typer.echo(f"{who} also lose {listed(loss.kept)} of the events that are kept: no group needs them")
        if loss.doubtful:
            typer.echo(f"{who} pass over the IDs {listed(loss.doubtful)}: nobody can tell whether they were in use")
        for group, ranges in loss.repeated.items():
            typer.echo(f"{who} give the group {group!r} events that it may have taken: among {listed(ranges)}")
        for group, ranges in loss.skipped.items():
            text = f"{who} not give the group {group!r} again what a seek may have moved it back to"
            typer.echo(f"{text}: among {listed(ranges)}")
        if loss.partial:
            which = counted(len(loss.partial), "transaction")
            typer.echo(f"{who} keep a part of {which}: {listed([(tx, tx) for tx in loss.partial])}")
        if loss.redelivered:
            which = counted(loss.redelivered, "delayed event")
            typer.echo(f"{who} deliver {which} that may have been delivered before")
    if report.unrepairable:
        typer.echo(f"repair would change nothing: {report.unrepairable}")
    state = "healthy" if report.healthy else "was damaged" if report.quarantine else "damaged"
    checked = f"{counted(report.files, 'file')}, {counted(report.frames, 'frame')}, {size_text(report.read_bytes)}"
    typer.echo(f"{path}: {state} ({checked} read)")


def _line(finding: Finding, file: object) -> str:
    where = str(file)
    if finding.offset is not None:
        where += f", offset {finding.offset}" + (f", {counted(finding.size, 'byte')}" if finding.size else "")
    said = [f"{finding.severity.value}: {where}: {finding.text}"]
    if finding.events:
        said.append(f"events {listed(finding.events)}")
    if finding.transactions:
        said.append(f"transactions {', '.join(map(str, finding.transactions[:10]))}")
    return "; ".join(said)
