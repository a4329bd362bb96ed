"""`verify` of a channel in an object store."""

from __future__ import annotations

import pyarrow as pa

from spillable_stream.errors import ChannelBusyError, CorruptionError, SpillableError
from spillable_stream.format.packing import MALFORMED
from spillable_stream.integrity.findings import Finding, Report, Severity
from spillable_stream.integrity.object_inspection import ObjectInspection, inspect_objects
from spillable_stream.objects.location import Location
from spillable_stream.objects.open_store import open_store
from spillable_stream.objects.read_ahead import BehindError
from spillable_stream.objects.store import ObjectMissingError, Store
from spillable_stream.progress import UNTOLD, Meter

__all__ = ["examine_objects", "report_of_objects", "store_at", "verify_objects"]

_MOST_LOOKS = 10


def verify_objects(location: Location, meter: Meter) -> Report:
    """Read everything in a channel, and return what is wrong where; `spillable_stream.integrity.verify` explains it.

    Args:
        location: where the channel is.
        meter: counts the bytes that are read.
    """
    return report_of_objects(location, examine_objects(store_at(location), meter))


def store_at(location: Location) -> Store:
    """Return the store of a channel; raises what `open_store` raises."""
    return open_store(location)


def examine_objects(store: Store, meter: Meter = UNTOLD) -> ObjectInspection:
    """Inspect a channel, again while something seems wrong: what is found twice in a row is so.

    An object that is missing may have been deleted since the state was read that names it. The next look begins with a
    newer state, which does not name it then. Damage may have come on the way: it is read again.

    Args:
        store: where the channel is.
        meter: counts the bytes that are read.

    Raises:
        ChannelBusyError: it changes faster than it can be read.
        CorruptionError: it is so damaged that nothing says what it is.
        NotAChannelError: there is no channel.
        StoreError: the store refused or failed.
        UnsupportedFormatError: a newer version wrote it.
    """
    before: list[Finding] | None = None
    for _ in range(_MOST_LOOKS):
        try:
            inspection = _inspected(store, meter)
        except (BehindError, ObjectMissingError):  # deleted between two requests of this look
            before = None
            continue
        wrong = [f for f in inspection.findings.all() if f.severity is not Severity.NOTE]
        if not wrong or wrong == before:
            return inspection
        before = wrong
    raise ChannelBusyError(f"{store.root} changes faster than it can be read; try again when less is put and taken")


def _inspected(store: Store, meter: Meter) -> ObjectInspection:
    try:
        return inspect_objects(store, meter)
    except (BehindError, SpillableError):
        raise
    except (*MALFORMED, pa.ArrowException, OverflowError, RecursionError) as e:
        # A frame whose checksums are right and whose contents nobody wrote.
        raise CorruptionError(
            f"the channel can't be examined, nor repaired ({type(e).__name__}: {e}): restore it from a backup",
            store.root,
        ) from e


def report_of_objects(location: Location, inspection: ObjectInspection, quarantine: str | None = None) -> Report:
    """Return the report of an inspection."""
    return Report(
        location,
        inspection.inventory.channel,
        inspection.findings.all(),
        inspection.loss,
        inspection.objects,
        inspection.frames,
        inspection.read_bytes,
        inspection.unrepairable,
        quarantine,
    )
