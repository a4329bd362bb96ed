"""Checks that the events are where the state says, and finds those that can be read."""

from __future__ import annotations

from collections import defaultdict
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from spillable_stream.format.batch import decode_schema
from spillable_stream.format.file_names import seed_name
from spillable_stream.format.frame import FrameHeader, FrameType, file_seed
from spillable_stream.integrity.findings import Finding, Findings, Severity
from spillable_stream.integrity.inventory import Inventory
from spillable_stream.integrity.log_file import opened
from spillable_stream.integrity.partial_transactions import PartialTransactions
from spillable_stream.integrity.tolerant_replay import fits
from spillable_stream.log.frames import Damage, LocatedFrame, Readable, walk
from spillable_stream.log.layout import Layout
from spillable_stream.progress import UNTOLD, Meter
from spillable_stream.state.block import Block
from spillable_stream.state.blocks import Blocks
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.ranges import Range
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["EventCheck", "EventFiles", "FilesOfDisk", "has_misfit"]

_KEPT = "that are kept; no group needs them"


@dataclass(slots=True)
class _Hole:
    """Damage inside a block. The next whole frame tells which events it destroyed.

    Args:
        offset: where the damage starts in the file.
        size: its size in bytes.
        first_id: the first event in it.
        transaction_id: the transaction that it is in; 0 if nothing says it.
    """

    offset: int
    size: int
    first_id: int
    transaction_id: int


class EventFiles(Protocol):
    """The files that events are in: of a disk, or the objects of a store.

    Attributes:
        channel: the channel's UUID.
    """

    channel: str

    def path(self, file: int | str) -> Path:
        """Return the path of a file, given what a block says of it."""

    def exists(self, file: int | str) -> bool:
        """Tell whether a file is there."""

    def opened(self, file: int | str) -> AbstractContextManager[Readable]:
        """Open a file for reading only."""

    def end(self, file: int | str) -> int | None:
        """Return up to where a file counts; None for its size."""


class FilesOfDisk:
    """The log files and segments of a channel on a disk. It implements `EventFiles`.

    Args:
        fs: the file system.
        inventory: which files count, and up to where.
    """

    def __init__(self, fs: FileSystem, inventory: Inventory) -> None:
        self.channel: str = inventory.layout.channel
        self._fs = fs
        self._layout: Layout = inventory.layout
        counted = [*inventory.disk[inventory.root() :], *inventory.memory]  # for other files only their blocks count
        self._ends: dict[int | str, int] = {f.file_id: f.end for f in counted}

    def path(self, file: int | str) -> Path:
        """Return the path of a file."""
        return self._layout.file(file)

    def exists(self, file: int | str) -> bool:
        """Tell whether a file is there."""
        return self._fs.exists(self.path(file))

    def opened(self, file: int | str) -> AbstractContextManager[Readable]:
        """Open a file for reading only."""
        return opened(self._fs, self.path(file))

    def end(self, file: int | str) -> int | None:
        """Return up to where a file counts; None for its size."""
        return self._ends.get(file)


class EventCheck:
    """Reads the events of a state's blocks, and finds out which of them are damaged.

    Args:
        files: the files that the events are in.
        findings: collects the damage.
        sound: log files that were walked completely and are undamaged; they are not read again.
        meter: counts the bytes that are read.

    Attributes:
        frames: how many whole frames were read.
        read_bytes: the size of these frames.
        partial: the transactions with damaged frames, and with whole ones.
    """

    frames: int
    read_bytes: int

    def __init__(self, files: EventFiles, findings: Findings, sound: set[int | str], meter: Meter = UNTOLD) -> None:
        self.frames = self.read_bytes = 0
        self._files = files
        self._findings = findings
        self._sound = sound
        self._meter = meter
        self.partial: PartialTransactions = PartialTransactions()
        self._read: set[int | str] = set()
        self._schemas: list[pa.Schema] = []
        self._needed_from = 0

    @property
    def files(self) -> int:
        """How many files were read."""
        return len(self._read)

    def readable(self, state: ChannelState) -> Blocks:
        """Return blocks of the events that can be read, without damage inside. Damage is added to the findings."""
        self._schemas = [decode_schema(s) for s in state.schemas]
        self._needed_from = state.needed_from()
        found: list[Block] = []
        missing: dict[Path, list[Range]] = defaultdict(list)
        for block in state.blocks:
            path = self._files.path(block.file)
            if block.file in self._sound:
                found.append(block)
            elif not self._files.exists(block.file):
                missing[path].append((block.first_id, block.last_id))
            else:
                found += self._readable(block, path)
        for path, events in missing.items():
            which = f" {_KEPT}" if self._is_kept(events[-1][1]) else ""
            self._findings.damage(path, f"{path.name} is missing, and with it events{which}", events=events)
        return Blocks(_once(sorted(found, key=lambda b: b.first_id)))

    def _readable(self, block: Block, path: Path) -> list[Block]:
        """Return the undamaged parts of a block."""
        self._read.add(block.file)
        seed = file_seed(self._files.channel, seed_name(block.file))
        found: list[Block] = []
        hole: _Hole | None = None
        expected, unbroken = block.first_id, False
        with self._files.opened(block.file) as file:
            size, counted = file.size(), self._files.end(block.file)
            for item in walk(file, seed, block.offset, size if counted is None else min(size, counted)):
                header = item.header
                first = header.write_order_id + block.base_id if header and header.type == FrameType.PUT else 0
                if header is not None and first > block.last_id:
                    break
                good = self._is_good(item)
                transaction_id = block.transaction_id or (header.transaction_id if header else 0)
                if transaction_id and (not good or (header is not None and header.type == FrameType.PUT)):
                    self.partial.add_frame(transaction_id, good)
                elif header is None:
                    self.partial.add_hole()
                if not good:
                    unbroken = False
                    hole = hole or _Hole(item.offset, item.end - item.offset, expected, transaction_id)
                if header is None or header.type != FrameType.PUT or first + header.count <= expected:
                    continue
                if hole is not None:
                    through = first - 1 if good else first + header.count - 1
                    self._add_damage(path, hole, through, block)
                    hole = None
                elif first > expected:
                    gap = _Hole(item.offset, 0, expected, block.transaction_id)
                    self._add_damage(path, gap, first - 1, block, "the frames before this one are missing")
                    unbroken = False
                if first < block.first_id or first + header.count - 1 > block.last_id:
                    unbroken = False  # others have some of its IDs: it comes as a whole, or not at all
                elif good and unbroken:
                    found[-1].count += header.count
                    found[-1].payload_bytes += header.length
                elif good:
                    found.append(_part(block, item.offset, first, header))
                    unbroken = True
                expected = first + header.count
                if expected > block.last_id:
                    break
        if expected <= block.last_id:
            end = hole or _Hole(size, 0, expected, block.transaction_id)
            self._add_damage(path, end, block.last_id, block, "" if hole else "the file ends before its last event")
        return found

    def _is_good(self, item: LocatedFrame | Damage) -> bool:
        if isinstance(item, Damage):
            return False
        self.frames += 1
        size_bytes = item.end - item.offset
        self.read_bytes += size_bytes
        self._meter.add(size_bytes)
        return item.header.type != FrameType.PUT or fits(item.header, item.payload or b"", self._schemas)

    def _add_damage(self, path: Path, hole: _Hole, through: int, block: Block, text: str = "") -> None:
        events = ((hole.first_id, through),) if through >= hole.first_id else ()
        transactions = (hole.transaction_id,) if hole.transaction_id else ()
        which = _KEPT if self._is_kept(through) else "that are still needed"
        text = text or f"a frame is damaged among events {which}"
        self._findings.add(Finding(Severity.DAMAGE, path, text, hole.offset, hole.size, events, transactions))

    def _is_kept(self, last_id: int) -> bool:
        """Tell whether events up to ``last_id`` are only kept."""
        return last_id < self._needed_from


def has_misfit(source: Readable, seed: int, schemas: list[pa.Schema]) -> bool:
    """Tell whether the events of some whole frame of a file are of none of these schemas.

    Args:
        source: the file's bytes: a segment's or a side file's.
        seed: what its checksums start from.
        schemas: the schemas.
    """
    puts = (f for f in walk(source, seed, 0, source.size()) if isinstance(f, LocatedFrame))
    return any(not fits(f.header, f.payload or b"", schemas) for f in puts if f.header.type == FrameType.PUT)


def _once(blocks: list[Block]) -> list[Block]:
    """Return blocks, sorted by first ID, without those that overlap an earlier one: misplaced copies of frames."""
    kept: list[Block] = []
    for block in blocks:
        if not kept or block.first_id > kept[-1].last_id:
            kept.append(block)
    return kept


def _part(block: Block, offset: int, first_id: int, header: FrameHeader) -> Block:
    """Return a block for the first frame of an undamaged part of a block."""
    time_us = block.time_us if block.transaction_id else header.time_us
    return replace(
        block, first_id=first_id, count=header.count, offset=offset, payload_bytes=header.length, time_us=time_us
    )
