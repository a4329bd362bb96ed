"""The note that goes with a batch of a tailed file into the channels, to be found again after a crash."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spillable_stream.flow.sources.numbered_source import packed_note, unpacked_note
from spillable_stream.flow.sources.position_file import FilePosition
from spillable_stream.flow.sources.tailed_file import Mark

__all__ = ["Span", "read_note", "write_note"]

_KIND = "taildir"


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes of a file that are one batch.

    Args:
        inode: the file's inode.
        start: where they begin.
        end: where they end.
        path: the file's path.
        group: the file group that it belongs to.
    """

    inode: int
    start: int
    end: int
    path: str
    group: str


def write_note(span: Span, base: int, changed: Mapping[int, FilePosition]) -> bytes:
    """Return the note of a batch.

    Args:
        span: what the batch is.
        base: the number that the position file has.
        changed: the positions after the batch that the position file does not have, by inode.
    """
    places = [(p.path, p.mark.inode, p.mark.position, p.mark.head_bytes, p.mark.head, p.mark.tail_bytes, p.mark.tail)
              for p in changed.values()]  # fmt: skip
    batch = (span.inode, span.start, span.end, span.path, span.group)
    return packed_note({"source": _KIND, "base": base, "batch": batch, "places": places})


def read_note(note: bytes) -> tuple[Span | None, dict[int, FilePosition]]:
    """Return what a batch was, and the positions after it that the position file may not have."""
    found = unpacked_note(note)
    if found.get("source") != _KIND:
        return None, {}
    places = {inode: FilePosition(path, Mark(inode, *numbers)) for path, inode, *numbers in found["places"]}
    return Span(*found["batch"]), places
