"""Merging: the events of many small slots are copied into one object, to be read and forgotten at once.

A channel that takes a commit a second has a thousand slots in a quarter of an hour. Each costs a request to read, a
block of the state, and its place in the log as long as one of its events is needed. So what is still needed after a
minute is copied::

    slot 7 ─ PUT ─┐
    slot 8 ─ PUT ─┼─▶ segments/BIRTH-merged.0.UUID ── COMMIT "merge" ──▶ the state finds the events there
    slot 9 ─ PUT ─┘

The frames keep their IDs, transactions and times. Large slots, and segments, stay where they are, also between small
slots. So a copy is small enough that whoever needs an event of it reads all of it at once, and has it at hand.

Blocks whose events every group has taken by the time of the commit are left out. If another handle has merged some of
them, nothing is committed; the object is removed like any other that no event is in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter

from spillable_stream.engine.append_plan import AppendPlan, CommitResult
from spillable_stream.engine.appender import Appender
from spillable_stream.engine.follower import Follower
from spillable_stream.engine.requests import Request
from spillable_stream.engine.store.object_log import ObjectLog
from spillable_stream.errors import DataLossError
from spillable_stream.format.commit_record import Merged, MergedRun
from spillable_stream.format.expiry import Expiry
from spillable_stream.format.file_names import seed_name
from spillable_stream.format.frame import HEADER_SIZE_BYTES, FrameHeader, Payload, encode_with, file_seed
from spillable_stream.objects.object_reader import ObjectReader
from spillable_stream.objects.staged_object import MERGED_OWNER, birth_of, segment_key
from spillable_stream.objects.store import uploading
from spillable_stream.state.block import BLOCK_BYTES, Block
from spillable_stream.state.channel_state import ChannelState

__all__ = ["Merge", "ObjectMerging"]

_SMALL_BYTES = 1 << 20  # of a slot
_MOST_BYTES = 7 << 20  # readers fetch 8 MiB at once
_ENOUGH_BYTES = 4 << 20
_LEAST_PAYLOAD_BYTES = 96  # of a PUT frame: Arrow's message of one row without a value
_MANY_SLOTS = 4096  # are worth a copy, if they are small
_QUIET_SECONDS = 60.0  # how old they are at least, by the time of the last append
_FILE = attrgetter("file")


@dataclass(slots=True)
class Merge(Request):
    """Find events in another object from now on.

    Args:
        merged: the object and what is in it.
        blocks: where the events were when they were copied.

    Attributes:
        done: set by the plan: whether it was written.
    """

    merged: Merged
    blocks: list[Block]
    done: bool = False

    def may_repeat(self) -> bool:
        """Tell that it may: the plan looks where the events are."""
        return True

    def size_bytes(self) -> int:
        """Return an upper bound of its size in the log, in bytes."""
        return 512 + 80 * len(self.merged.runs)

    def plan(self, plan: AppendPlan) -> CommitResult:
        """Write it if the events that are left are where they were, and a collector can't have removed the object."""
        state, (name, runs), birth = plan.state, self.merged, birth_of(self.merged.name)
        left = [block for block in self.blocks if block.last_id >= state.first_kept]
        is_there = bool(left) and _unchanged(self.blocks, state) == left
        self.done = is_there and birth is not None and birth >= state.trimmed.births
        if not self.done:
            return CommitResult()
        tx = plan.new_transaction()
        merged = Merged(name, [run for run in runs if run.first_id + run.count > state.first_kept])
        plan.commit("merge", sum([block.count for block in left]), tx, merged=merged)
        return CommitResult(tx)


class ObjectMerging:
    """Copies small slots together. For one thread at a time."""

    def __init__(self, log: ObjectLog, follower: Follower, appender: Appender) -> None:
        self._log = log
        self._follower = follower
        self._appender = appender

    def merge(self) -> bool:
        """Copy slots together if that is worth it, and tell whether the state finds events elsewhere now.

        Raises:
            CorruptionError: an event can't be read.
            DataLossError: the slot of an event is missing.
            StorageError: the store refused or failed.
        """
        with self._follower.as_known as state:
            blocks = self._worth_merging(state)
            longest_us, is_dated = (
                state.blocks.disk.longest_us(state.time_us) if blocks else 0,
                state.options.retention_ms,
            )
        if not blocks:
            return False
        try:
            merged = self._copied(blocks, longest_us, is_dated=is_dated > 0)
        except DataLossError:
            if self._are_there(blocks):
                raise
            return False
        request = Merge(merged, blocks)
        self._appender.commit_alone(request)
        return request.done

    def _worth_merging(self, state: ChannelState) -> list[Block]:
        """Return the blocks of the first small slots that are old enough, if these are many or large together."""
        found: list[Block] = []
        slots = size_bytes = 0
        for file, of_file in groupby(state.blocks.disk, _FILE):
            if not isinstance(file, int):
                continue
            blocks = list(of_file)
            if state.time_us - blocks[0].time_us < _QUIET_SECONDS * 1e6:
                break
            slot_bytes = sum(map(_most_bytes, blocks))
            if slot_bytes >= _SMALL_BYTES:
                continue
            if size_bytes + slot_bytes > _MOST_BYTES:
                break
            found += [replace(block) for block in blocks]  # they may change meanwhile
            slots, size_bytes = slots + 1, size_bytes + slot_bytes
        return found if slots >= _MANY_SLOTS or (size_bytes >= _ENOUGH_BYTES and slots > 1) else []

    def _are_there(self, blocks: list[Block]) -> bool:
        """Tell whether all events are where they were, as the newest state says."""
        return _unchanged(blocks, self._follower.follow()) == blocks

    def _copied(self, blocks: list[Block], longest_us: int, *, is_dated: bool) -> Merged:
        """Copy the events of blocks into one object, and return what is where in it."""
        log = self._log
        key = segment_key(log.tail.number, MERGED_OWNER, 0)
        seed = file_seed(log.channel, seed_name(key))
        runs: list[MergedRun] = []
        offset = 0
        with uploading(log.store, key) as upload:
            for header, payload in self._frames(blocks):
                buffers: list[Payload] = encode_with(header, payload, seed)
                runs = _with(runs, header, offset, longest_us, is_dated=is_dated)
                for buffer in buffers:
                    upload.write(buffer)
                    offset += len(buffer)
        return Merged(key, runs)

    def _frames(self, blocks: list[Block]) -> Iterator[tuple[FrameHeader, Payload]]:
        extents = [block.extent() for block in blocks]
        reader = ObjectReader(self._log.store, self._log.channel, self._follower.schemas().__getitem__, self._log.cache)
        reader.expect(extents)
        for extent in extents:
            yield from reader.frames(extent)


def _most_bytes(block: Block) -> int:
    """Return how many bytes a block's frames have at most; it does not say how many frames hold its events."""
    frames = min(block.count, block.payload_bytes // _LEAST_PAYLOAD_BYTES)
    return block.payload_bytes + HEADER_SIZE_BYTES * frames


def _unchanged(blocks: list[Block], state: ChannelState) -> list[Block]:
    """Return those of some blocks that are as they were."""
    now = {block.first_id: block for block in state.blocks.disk.between(blocks[0].first_id, blocks[-1].last_id)}
    return [block for block in blocks if now.get(block.first_id) == block]


def _with(
    runs: list[MergedRun], header: FrameHeader, offset: int, longest_us: int, *, is_dated: bool
) -> list[MergedRun]:
    """Return the runs with the events of one more frame, in the last run if that is not too large or too long."""
    first_id, until_us = header.write_order_id, header.time_us if is_dated else 0
    expiry = Expiry.after(header.ttl_us, header.time_us)
    last = runs[-1] if runs else None
    if (
        last is not None
        and last.first_id + last.count == first_id
        and offset - last.offset < BLOCK_BYTES
        and header.time_us - last.time_us <= longest_us
    ):
        count, size_bytes = last.count + header.count, last.payload_bytes + header.length
        first_us, last_us = last.expiry.joined(expiry)
        runs[-1] = last._replace(
            count=count,
            payload_bytes=size_bytes,
            until_us=until_us,
            first_expiry_us=first_us,
            last_expiry_us=last_us,
        )
    else:
        runs.append(MergedRun(first_id, header.count, offset, header.length, header.time_us, until_us, *expiry))
    return runs
