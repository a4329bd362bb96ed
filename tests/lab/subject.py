"""What a recipe crashes: a program, how to read what it left, and how to tell whether that is right."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar

from spillable_stream import Channel, Event
from spillable_stream.engine.requests import Control
from spillable_stream.format.frame import FrameType
from spillable_stream.integrity.verify import verify
from spillable_stream.storage.filesystem import FileSystem
from tests.lab.contents import CONSUMERS, contents
from tests.lab.delaying import Delaying, all_delivered
from tests.lab.keeping import STREAM, Keeping, let_go, set_retention
from tests.lab.keeping_check import History, Kept, kept
from tests.lab.ledger import Found, Ledger, Outcome, all_events, check
from tests.lab.sinking import QUERY, Sinking, Sunk, is_stored_again, sunk
from tests.lab.workload import CONFIGURATIONS, Program

__all__ = ["DELAYING", "KEEPING", "SINKING", "SPREAD", "Subject", "Verdict", "subject"]

F = TypeVar("F")
KEEPING = "keeping, "
"""What the names of configurations begin with whose program keeps what was taken."""

DELAYING = "delaying, "
"""What the names of configurations begin with in whose program events wait."""

SINKING = "sinking, "
"""What the names of configurations begin with whose program writes as Spark's sink does, and keeps what was taken."""

SPREAD = "spread, "
"""What the names of configurations begin with, before the others, whose program has two data directories."""


class Verdict(Protocol[F]):
    """What the ledgers say of a channel."""

    def wrong(self, found: F) -> list[str]:
        """Return what is wrong with what a channel holds; nothing if every promise was kept."""

    def goes_on(self, channel: Channel, found: F) -> Iterator[str]:
        """Put, take everything, let everything go, and say what is not as it should be."""


class Subject(Protocol[F]):
    """A program, and who judges what it left."""

    options: dict[str, Any]
    """The channel's."""

    def program(
        self, path: Path, ledger: Ledger, rounds: int, seed: int, fs: FileSystem | None = None, **options: Any
    ) -> Program:
        """Return the program; the arguments are `Program`'s."""

    def contents(self, channel: Channel) -> F:
        """Return what an open channel holds; nothing is taken."""

    def verdict(self, ledgers: Iterable[Iterable[str]]) -> Verdict[F]:
        """Return who judges by the lines of some ledgers, given in the order in which their programs ran."""


def subject(configuration: str) -> Subject[Any]:
    """Return what a configuration stands for: one of `CONFIGURATIONS`, also after one of the others here."""
    if configuration.startswith(SPREAD):
        return _SpreadSubject(subject(configuration.removeprefix(SPREAD)))
    if configuration.startswith(KEEPING):
        return _KeepingSubject(configuration.removeprefix(KEEPING))
    if configuration.startswith(SINKING):
        return _SinkingSubject(configuration.removeprefix(SINKING))
    if configuration.startswith(DELAYING):
        return _DelayingSubject(configuration.removeprefix(DELAYING))
    return _PlainSubject(configuration)


class _PlainSubject:
    def __init__(self, configuration: str) -> None:
        self.options: dict[str, Any] = CONFIGURATIONS[configuration]
        self._configuration = configuration

    def program(
        self, path: Path, ledger: Ledger, rounds: int, seed: int, fs: FileSystem | None = None, **options: Any
    ) -> Program:
        return Program(path, ledger, self._configuration, rounds, seed, fs, **options)

    def contents(self, channel: Channel) -> Found:
        return contents(channel)

    def verdict(self, ledgers: Iterable[Iterable[str]]) -> Verdict[Found]:
        return _PlainVerdict(Outcome.of(ledgers))


class _PlainVerdict:
    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome

    def wrong(self, found: Found) -> list[str]:
        return check(self._outcome, found)

    def goes_on(self, channel: Channel, found: Found) -> Iterator[str]:
        doubtful, outcome = [last for _, last in found.doubtful], self._outcome
        used = max([*found.bodies, *outcome.seen, *outcome.acknowledged.values(), *doubtful], default=0)
        new_id = _put(channel)
        if new_id <= used:
            yield f"the ID {new_id} was given again; {used} had been"
        held = len(found.remaining) + found.expired + 1
        if channel.stats().channel_size != held:
            yield f"the channel says that it holds {channel.stats().channel_size} of {held} events"
        yield from _wrong_take(channel, CONSUMERS, [*found.remaining, new_id])


class _DelayingSubject(_PlainSubject):
    def program(
        self, path: Path, ledger: Ledger, rounds: int, seed: int, fs: FileSystem | None = None, **options: Any
    ) -> Program:
        return Delaying(path, ledger, self._configuration, rounds, seed, fs, **options)

    def contents(self, channel: Channel) -> Found:
        return all_delivered(channel)


class _KeepingSubject(_PlainSubject):
    def program(
        self, path: Path, ledger: Ledger, rounds: int, seed: int, fs: FileSystem | None = None, **options: Any
    ) -> Program:
        return Keeping(path, ledger, self._configuration, rounds, seed, fs, **options)

    def contents(self, channel: Channel) -> Any:
        return kept(channel)

    def verdict(self, ledgers: Iterable[Iterable[str]]) -> Verdict[Any]:
        return _KeepingVerdict(History(ledgers, durable=not self.options["memory_capacity"]))


class _SpreadSubject:
    """A subject whose data files take turns in two directories, which move with the channel."""

    def __init__(self, spread: Subject[Any]) -> None:
        self._spread = spread
        self.options: dict[str, Any] = spread.options

    def program(
        self, path: Path, ledger: Ledger, rounds: int, seed: int, fs: FileSystem | None = None, **options: Any
    ) -> Program:
        data_dirs = [path / "data", path / "more"]
        return self._spread.program(path, ledger, rounds, seed, fs, data_dirs=data_dirs, **options)

    def contents(self, channel: Channel) -> Any:
        return self._spread.contents(channel)

    def verdict(self, ledgers: Iterable[Iterable[str]]) -> Verdict[Any]:
        return self._spread.verdict(ledgers)


class _KeepingVerdict:
    def __init__(self, history: History) -> None:
        self._history = history

    def wrong(self, found: Kept) -> list[str]:
        return self._history.wrong(found)

    def goes_on(self, channel: Channel, found: Kept) -> Iterator[str]:
        doubtful = [last for _, last in found.doubtful]
        used = max([self._history.last_id(), *found.bodies, *doubtful], default=0)
        new_id = _put(channel)
        if new_id <= used:
            yield f"the ID {new_id} was given again; {used} had been"
        for name, group in found.groups.items():
            untaken = [i for i in found.bodies if not group.has(i)]
            yield from _wrong_take(channel, name, [*untaken, new_id])
            if found.keeps:
                channel.consumer(name).seek(found.first - 1)
                yield from _wrong_take(channel, name, [*found.bodies, new_id])
        if STREAM in found.groups:
            channel.drop_group(STREAM)
        let_go(channel, new_id)
        if left := kept(channel).bodies:
            yield f"{sorted(left)} are there, though all expired"
        set_retention(channel, 0)


class _SinkingSubject(_PlainSubject):
    def program(
        self, path: Path, ledger: Ledger, rounds: int, seed: int, fs: FileSystem | None = None, **options: Any
    ) -> Program:
        return Sinking(path, ledger, self._configuration, rounds, seed, fs, **options)

    def contents(self, channel: Channel) -> Any:
        return sunk(channel)

    def verdict(self, ledgers: Iterable[Iterable[str]]) -> Verdict[Any]:
        return _SinkingVerdict([list(lines) for lines in ledgers], durable=not self.options["memory_capacity"])


class _SinkingVerdict:
    """Judges as `_KeepingVerdict` does; and a batch must be remembered if, and only if, it was stored."""

    def __init__(self, ledgers: list[list[str]], *, durable: bool) -> None:
        self._history = History(ledgers, durable=durable)
        self._kept = _KeepingVerdict(self._history)
        last = next((line for lines in reversed(ledgers) for line in reversed(lines)), "")
        self._is_put_in_doubt = last.startswith("put ")  # nothing of it can have left

    def wrong(self, found: Sunk) -> list[str]:
        return [*self._kept.wrong(found.kept), *self._wrong_batches(found)]

    def _wrong_batches(self, found: Sunk) -> Iterator[str]:
        if found.kept.lost or found.kept.doubtful:
            return
        outcome = self._history.outcome
        events, _ = all_events(outcome, found.kept.bodies)
        stored = {*outcome.acknowledged, *(said[:2] for said in events.values())}
        for query in {name for name, _ in outcome.started if name.endswith(QUERY)}:
            last = max((number for name, number in stored if name == query), default=-1)
            known = found.batches.get(query, -1)
            if known < last or (known > last and self._is_put_in_doubt):
                yield f"the batch {known} of {query} is remembered, and {last} is there"

    def goes_on(self, channel: Channel, found: Sunk) -> Iterator[str]:
        if not (report := verify(channel.path)).healthy:
            yield f"verify says {report}"
        for name, batch in found.batches.items():
            if is_stored_again(channel, name, batch):
                yield f"the batch {batch} of {name} is stored again"
        yield from self._kept.goes_on(channel, found.kept)
        channel.engine().commit(Control(FrameType.OPTIONS, {"staging_ttl": 0}))  # what was staged for later batches


def _put(channel: Channel) -> int:
    with channel.put_transaction() as tx:
        tx.put(Event(b"after the crash"))
    return tx.committed.first_id


def _wrong_take(channel: Channel, group: str, expected: list[int]) -> Iterator[str]:
    """Take everything, and say whether it is something else."""
    with channel.take_transaction(group) as tx:
        taken = [event.write_order_id for event in tx.take_many(1 << 20)]
    if taken != expected:
        yield f"{group}: {taken} were taken instead of {expected}"
