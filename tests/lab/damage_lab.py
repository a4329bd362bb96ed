"""Opening what was damaged, and the verdict.

Every damage must be healed with nothing lost, or refused by a typed error that says where, at the
latest when the events are read. Only one thing may be lost: what can't be told from the last append
that a power cut tore (`Image.torn_at`), and then the log is cut exactly there.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from enum import Enum
from types import FrameType as StackFrame
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest import mock

import pyarrow as pa

from spillable_stream import (
    Channel,
    CorruptionError,
    DataLossError,
    NotAChannelError,
    SpillableError,
    UnsupportedFormatError,
)
from spillable_stream.log import head as head_module
from spillable_stream.storage.file import File
from spillable_stream.storage.filesystem import FileSystem
from tests.lab.contents import CONSUMERS, contents
from tests.lab.damage_image import Changes, Image
from tests.lab.ledger import Found, Outcome, check
from tests.lab.workload import put

__all__ = ["EVERY_HEAD", "BoundedFileSystem", "Damage", "Head", "Hung", "look", "untyped", "wrongs"]

_LONGEST_SECONDS = 100.0  # what takes as long hangs, on a busy machine too
_LARGEST_WINDOW_BYTES = 4 << 20
_PLACES = (NotAChannelError, UnsupportedFormatError, CorruptionError)


class Head(Enum):
    """What becomes of the head."""

    SAME_BOOT = "the head of this boot"
    OTHER_BOOT = "the head of an earlier boot"
    NONE = "no head"


EVERY_HEAD = tuple(Head)


class Damage(NamedTuple):
    """What becomes of some files.

    Args:
        text: what it is, for whom it is reported to.
        changes: what the files hold then.
        harmless: whether it is of what is never needed, so that nothing may be refused.
        natural: whether a power cut can do it to a tail, which must be healed then; else it may be refused.
        behind: whether it is behind the end of the log, where more will be written.
    """

    text: str
    changes: Changes
    harmless: bool = False
    natural: bool = True
    behind: bool = False


class Hung(BaseException):
    """Opening or reading took too long."""


class _BoundedFile(File):
    def __init__(self, file: File) -> None:
        super().__init__(file.path, os.dup(file.fileno()))
        file.close()

    def read_buffer(self, offset: int, size: int) -> pa.Buffer:
        if size > max(self.size(), _LARGEST_WINDOW_BYTES):
            raise AssertionError(f"a read of {size:,} bytes of {self.path}, which has {self.size():,}")
        return super().read_buffer(offset, size)


class BoundedFileSystem(FileSystem):
    """The real file system; a read of more than there is, beyond a reader's window, is an error."""

    def open(self, path: Any, **how: Any) -> File:
        return _BoundedFile(super().open(path, **how))


class Look(NamedTuple):
    """What an open and a read gave.

    Args:
        found: what the channel holds, as far as it can be read; None if it was refused.
        errors: what was refused.
        unreadable: events that are there and can't be read.
        stamps: transaction ID and time of every event.
        untyped: an exception that no user expects.
    """

    found: Found | None
    errors: list[SpillableError]
    unreadable: tuple[int, ...] = ()
    stamps: Mapping[int, tuple[int, int]] = MappingProxyType({})
    untyped: str = ""

    def bodies(self) -> Mapping[int, bytes]:
        """Return what can be read."""
        return self.found.bodies if self.found else {}

    def same(self, other: Look) -> bool:
        """Tell whether another look saw the same."""
        return (self.found, list(map(str, self.errors)), self.untyped) == (
            other.found,
            list(map(str, other.errors)),
            other.untyped,
        )


@contextlib.contextmanager
def _watched() -> Iterator[None]:
    """Interrupt what takes too long."""

    def interrupt(signal_: int, frame: StackFrame | None) -> None:
        raise Hung(f"more than {_LONGEST_SECONDS:g} s")

    handler, outer = signal.signal(signal.SIGALRM, interrupt), signal.setitimer(signal.ITIMER_REAL, _LONGEST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *outer)
        signal.signal(signal.SIGALRM, handler)


def look(image: Image) -> Look:
    """Open the channel, read all that is there, and close it."""
    try:
        with _watched(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _look(image)
    except SpillableError as e:
        return Look(None, [e])
    except (Exception, Hung) as e:
        return Look(None, [], untyped=f"{type(e).__name__}: {e}")


def _look(image: Image) -> Look:
    channel = Channel(image.path, create=False, fs=BoundedFileSystem())
    try:
        found = contents(channel, image.history)
        return Look(found, [], stamps=_stamps(channel, image.history))
    except SpillableError as e:
        return _piecewise(channel, image.history, e)
    finally:
        channel.close(checkpoint=False, flush=False)


def _stamps(channel: Channel, group: str) -> dict[int, tuple[int, int]]:
    """Return transaction ID and time of what a group has yet to take."""
    consumer = channel.consumer(group)
    ranges = consumer.claim(1 << 60)
    reads = list(consumer.read(ranges))
    consumer.release(ranges)
    return {r.first_id + i: (r.transaction_id, r.time_us) for r in reads for i in range(r.batch.num_rows)}


def _piecewise(channel: Channel, history: str, error: SpillableError) -> Look:
    """Read event by event, past what can't be read."""
    errors, unreadable, bodies = [error], [], {}
    consumer = channel.consumer(history)
    consumer.release([(1, 1 << 62)])
    ranges = consumer.claim(1 << 60)
    for event_id in (i for first, last in ranges for i in range(first, last + 1)):
        try:
            for read in consumer.read([(event_id, event_id)]):
                bodies.update({event_id: read.batch.column("body")[0].as_py()})
        except SpillableError as e:
            errors.append(e)
            unreadable.append(event_id)
    channel.consumer(CONSUMERS).release([(1, 1 << 62)])
    remaining = [i for a, b in channel.consumer(CONSUMERS).claim(1 << 60) for i in range(a, b + 1)]
    stats = channel.stats()
    return Look(Found(bodies, remaining, stats.lost, stats.doubtful), errors, tuple(unreadable))


def wrongs(
    image: Image,
    damages: Iterable[Damage],
    heads: Iterable[Head] = EVERY_HEAD,
    spread: bool = False,
    most: int = 10,
) -> list[str]:
    """Return what is wrong after each of some damages, in words.

    Args:
        image: the channel.
        damages: what to do to it.
        heads: with which heads.
        spread: whether each damage is tried with one of the heads, in turn, and not with all.
        most: stop after so many.
    """
    image.restore()
    whole = look(image)
    assert whole.found is not None and check(image.outcome, whole.found) == [], "the image itself is damaged"
    heads, wrong = tuple(heads), []
    logging.disable(logging.CRITICAL)
    try:
        for i, damage in enumerate(damages):
            for head in heads[i % len(heads) : i % len(heads) + 1] if spread else heads:
                found = _wrong(image, damage, head, whole)
                wrong += [f"{damage.text}, {head.value}: {w}" for w in found[:3]]
                if len(wrong) >= most:
                    return wrong
    finally:
        logging.disable(logging.NOTSET)
    return wrong


def untyped(image: Image, damages: Iterable[Damage], heads: Iterable[Head] = EVERY_HEAD) -> list[str]:
    """Return what is raised that no user expects, where no more is promised: after contents with right checksums."""
    heads, found = tuple(heads), []
    logging.disable(logging.CRITICAL)
    try:
        for i, damage in enumerate(damages):
            head = heads[i % len(heads)]
            seen = _look_after(image, damage, head)
            if seen.untyped:
                found.append(f"{damage.text}, {head.value}: {seen.untyped}")
    finally:
        logging.disable(logging.NOTSET)
    return found


def _look_after(image: Image, damage: Damage, head: Head) -> Look:
    image.restore({**damage.changes, "channel/head": None} if head is Head.NONE else damage.changes)
    boot = bytes(range(16)) if head is Head.OTHER_BOOT else head_module.boot_id()
    with mock.patch.object(head_module, "boot_id", lambda: boot):
        return look(image)


def _wrong(image: Image, damage: Damage, head: Head, whole: Look) -> list[str]:
    changes = {**damage.changes, "channel/head": None} if head is Head.NONE else damage.changes
    image.restore(changes)
    boot = bytes(range(16)) if head is Head.OTHER_BOOT else head_module.boot_id()
    with mock.patch.object(head_module, "boot_id", lambda: boot):
        first = look(image)
        left = _durable(image.snapshot())
        again = look(image)
        if not again.same(first):
            return [f"the second open differs: {_shown(first)}, then {_shown(again)}"]
        if _durable(image.snapshot()) != left:
            return ["the second open changes files"]
        torn = image.torn_at(changes) if head is Head.NONE else None
        expected = image.outcome
        if first.found is not None and torn is not None and check(expected, _as_if_readable(first, whole)):
            expected = image.until(torn.at)
        must_open = damage.harmless or (torn is not None and torn.only and damage.natural)
        wrong = _judged(image, first, expected, whole, must_open)
        if not wrong and first.found is not None and not first.errors:
            rebooted = head is Head.NONE or damage.behind
            wrong = _wrong_after_more(image, expected, whole, must_open, rebooted)
        return wrong


def _durable(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in files.items() if not name.endswith(("/head", ".lock", "/lock"))}


def _judged(image: Image, seen: Look, expected: Outcome, whole: Look, must_open: bool) -> list[str]:
    if seen.untyped:
        return [seen.untyped]
    wrong = [w for w in map(_wrong_error, seen.errors) if w]
    if must_open and seen.errors:
        wrong.append(f"refused, though nothing proves a loss: {seen.errors[0]}")
    if seen.found is None:
        return wrong
    same = (i for i, body in seen.bodies().items() if whole.bodies().get(i) == body)
    changed = [i for i in same if i in seen.stamps and seen.stamps[i] != whole.stamps[i]]
    wrong += [f"event {i} has another transaction or time" for i in changed[:1]]
    wrong += [f"{e} names no event" for e in seen.errors if not re.search(r"\bevents? \d+", str(e))]
    return wrong + check(expected, _as_if_readable(seen, whole))


def _as_if_readable(seen: Look, whole: Look) -> Found:
    """Return what was found, with the events that were refused in their places."""
    assert seen.found is not None
    refused = {i: whole.bodies()[i] for i in seen.unreadable if i in whole.bodies()}
    return replace(seen.found, bodies=dict(sorted((seen.found.bodies | refused).items())))


def _wrong_error(error: SpillableError) -> str:
    if not isinstance(error, _PLACES):
        return f"not an error of damage: {type(error).__name__}: {error}"
    if not isinstance(error, CorruptionError):
        return ""
    if not error.path:
        return f"without a file: {error}"
    is_data = re.search(r"/(log-|memory-|segment\.)[^/]*\Z", error.path)
    if is_data and error.offset is None and not isinstance(error, DataLossError):
        return f"without an offset: {error}"
    return ""


def _wrong_after_more(image: Image, expected: Outcome, whole: Look, must_open: bool, rebooted: bool) -> list[str]:
    """Put more, lose the head in a reboot, and look again: nothing that was healed comes back, and nothing goes."""
    lines: list[str] = []

    class _More:
        def write(self, *words: object) -> None:
            lines.append(" ".join(map(str, words)))

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            channel = Channel(image.path, create=False)
            put(channel, _More(), "later", 1, 3, 20)
            channel.close(checkpoint=False, flush=False)
            if rebooted:
                (image.path / "head").unlink()
    except Exception as e:
        return [f"at one more put: {type(e).__name__}: {e}"]
    more = Outcome.of([lines])
    started, acknowledged = expected.started | more.started, expected.acknowledged | more.acknowledged
    both = replace(expected, started=started, acknowledged=acknowledged)
    return [f"after one more put: {w}" for w in _judged(image, look(image), both, whole, must_open)]


def _shown(seen: Look) -> str:
    if seen.untyped or seen.found is None:
        return seen.untyped or f"refused ({seen.errors[0]})"
    return f"{len(seen.found.bodies)} events, {len(seen.found.remaining)} to take, {len(seen.errors)} errors"
