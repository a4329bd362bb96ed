"""What must be true of a channel that keeps what was taken, after whatever crashed the program that used it.

The ledger of `tests.lab.keeping` is of one program at a time, so it tells exactly what the channel is: a
`World`. Every line without an answer makes two of each world, one where it was done and one where it was
not. What the channel holds must be one of them in all respects: whose take or seek was done, what is
kept, what expired, and who was told of it. The puts are checked as in every ledger.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from spillable_stream import Channel
from tests.lab.ledger import Outcome, Range, Said, all_events, check_puts, known_ids, parse_body

__all__ = ["Group", "History", "Kept", "World", "kept", "wrong_kept"]

_MOST_WORLDS = 4096


class Taken(NamedTuple):
    """What a channel says of a group.

    Args:
        position: every event up to this ID was taken.
        ahead: the ranges after it that were.
        expired: the ranges of which it is told that they left before it took them.
    """

    position: int
    ahead: list[Range]
    expired: list[Range]

    def has(self, event_id: int) -> bool:
        """Tell whether the group has taken an event."""
        return event_id <= self.position or _is_in(event_id, self.ahead)


class Kept(NamedTuple):
    """What a channel holds.

    Args:
        bodies: every event that can be read: ID to body.
        first: where the events that are kept begin.
        floor: where those begin that count as stored.
        keeps: whether it keeps what is taken from now on.
        groups: its groups.
        lost: the IDs of events that it says are lost.
        doubtful: IDs of which it says that events may have had them.
    """

    bodies: dict[int, bytes]
    first: int
    floor: int
    keeps: bool
    groups: dict[str, Taken]
    lost: list[Range]
    doubtful: list[Range]

    def is_gone(self, event_id: int) -> bool:
        """Tell whether an event is reported lost, or need not be there."""
        return _is_in(event_id, self.lost) or _is_in(event_id, self.doubtful)


def kept(channel: Channel) -> Kept:
    """Return what an open channel holds; nothing is taken."""
    engine = channel.engine()
    with engine.snapshot() as state:
        extents = state.blocks.extents(state.first_kept, state.last_id)
        groups = {n: Taken(g.position, list(g.ahead), list(g.removed)) for n, g in state.groups.items()}
        first, floor, keeps = state.first_kept, state.floor, state.options.keeps
        lost, doubtful = list(state.lost), list(state.doubtful)
    reader = engine.reader()
    bodies: dict[int, bytes] = {}
    for extent in extents:
        for read in reader.read(extent):
            found = read.batch.column("body").to_pylist()
            bodies.update((read.first_id + i, body) for i, body in enumerate(found))
    return Kept(bodies, first, floor, keeps, groups, lost, doubtful)


def wrong_kept(found: Kept) -> list[str]:
    """Return what is wrong with what a channel keeps, whatever was done to it: from the first event on all can be read.

    It must have kept whatever was taken, ever since.
    """
    wrong: list[str] = []
    for event_id, data in found.bodies.items():
        try:
            parse_body(data)
        except ValueError as e:
            wrong.append(f"event {event_id} has {e}")
    expected = found.first
    for event_id in found.bodies if found.keeps else ():
        if missing := [i for i in range(expected, min(event_id, expected + 1000)) if not found.is_gone(i)]:
            wrong.append(f"{missing} are kept, and can't be read")
        expected = event_id + 1
    return wrong


@dataclass
class Group:
    """A group, as the ledger has it.

    Args:
        position: it has taken, or never got, every event up to this ID.
        taken: the events after it that it took.
        expired: those of which it must be told that they left before it took them.
    """

    position: int
    taken: set[int] = field(default_factory=set)
    expired: set[int] = field(default_factory=set)

    def has(self, event_id: int) -> bool:
        """Tell whether it has taken an event."""
        return event_id <= self.position or event_id in self.taken


@dataclass
class World:
    """What the channel is, if what is in doubt was done, or was not.

    Args:
        durable: whether a put is on disk at once.
        keeps: whether taken events are kept.
        floor: every group has had, at some time, all events before this one.
        through: all events up to this one have left by age or size.
        known: the events that were put.
        held: the events that must be there.
        on_disk: those of them that are on disk for sure.
        groups: the groups.
    """

    durable: bool
    keeps: bool = False
    floor: int = 1
    through: int = 0
    known: set[int] = field(default_factory=set)
    held: set[int] = field(default_factory=set)
    on_disk: set[int] = field(default_factory=set)
    groups: dict[str, Group] = field(default_factory=dict)

    def put(self, ids: Iterable[int]) -> None:
        """Note that events were put."""
        self.known.update(ids)
        self.held.update(ids)
        if self.durable:
            self.on_disk.update(ids)

    def lose(self, first: int, last: int) -> None:
        """Note that the channel says that events are lost."""
        self.held = {i for i in self.held if not first <= i <= last}

    def do(self, words: Sequence[str], answer: str = "") -> bool:
        """Do what a line of the ledger says, and tell whether that can have been done here."""
        match words:
            case ["take", name, *events]:
                if not self._take(name, [int(event.split(":")[0]) for event in events]):
                    return False
            case ["seek", name, position]:
                if name not in self.groups:
                    return False
                self.groups[name] = Group(int(position))
            case ["expire", through]:
                self._expire(int(through))
            case ["look", *lasts]:
                if answer not in lasts and int(answer) != self.through and self._keeps_before(int(answer)):
                    return False
                self._expire(int(answer))
            case ["move"]:
                self.on_disk |= {i for i in self.held if i <= int(answer)}
            case ["keep", wanted]:
                self.keeps = wanted == "1"
            case ["group", name, position, _]:
                if name in self.groups:
                    return False
                self.groups[name] = Group(int(position))
            case ["drop", name]:
                if self.groups.pop(name, None) is None:
                    return False
            case ["flush"]:
                self.on_disk |= self.held
            case _:
                raise ValueError(f"not a line of a ledger: {' '.join(words)!r}")
        self._settle()
        return True

    def _keeps_before(self, last_id: int) -> bool:
        return any(i <= last_id for i in self.held)

    def _take(self, name: str, ids: list[int]) -> bool:
        group = self.groups.get(name)
        if group is None or any(group.has(i) or i <= self.through for i in ids):
            return False
        group.taken.update(ids)
        group.expired = {i for i in group.expired if i > max(ids)}
        return True

    def _expire(self, through: int) -> None:
        gone = {i for i in self.held if i <= through}
        for group in self.groups.values():
            group.expired |= {i for i in gone if not group.has(i)}
            group.position = max(group.position, through)
        self.held -= gone
        self.through = max(self.through, through)

    def _settle(self) -> None:
        """Raise the floor past what every group has taken, and let it go unless it is kept."""
        if not self.groups:
            return
        untaken = {i for i in self.held if not all(g.has(i) for g in self.groups.values())}
        self.floor = max(self.floor, min(untaken, default=max(self.held, default=0) + 1))
        if not self.keeps:
            self.held = untaken

    def wrong(self, found: Kept) -> list[str]:
        """Return in what a channel is not this world."""
        wrong: list[str] = []
        if found.keeps != self.keeps:
            wrong.append(f"it keeps what is taken: {found.keeps}")
        if found.groups.keys() != self.groups.keys():
            return [*wrong, f"its groups are {sorted(found.groups)}, not {sorted(self.groups)}"]
        missing = sorted(i for i in self.held if i not in found.bodies and not found.is_gone(i))
        if missing:
            wrong.append(f"{missing} must be there, for they are kept, or some group has yet to take them")
        if again := sorted(i for i in found.bodies if i <= self.through):
            wrong.append(f"{again} expired, and are there")
        if found.first <= self.through:
            wrong.append(f"what is kept begins at {found.first}, though all up to {self.through} expired")
        if any(found.floor <= i < self.floor and not found.is_gone(i) for i in self.known):
            wrong.append(f"what counts as stored begins at {found.floor}; it began at {self.floor} before")
        if lost := sorted(i for i in self.on_disk & self.held if _is_in(i, found.lost)):
            wrong.append(f"{lost} were on disk, and are reported lost")
        for name, group in self.groups.items():
            wrong += [f"{name}: {what}" for what in _wrong_group(group, found.groups[name], found)]
        return wrong


def _wrong_group(group: Group, said: Taken, found: Kept) -> list[str]:
    wrong: list[str] = []
    if back := sorted(i for i in found.bodies if group.has(i) and not said.has(i)):
        wrong.append(f"{back} were taken, or passed over, and came back")
    if never := sorted(i for i in found.bodies if not group.has(i) and said.has(i)):
        wrong.append(f"{never} count as taken, and were not")
    if untold := sorted(i for i in group.expired if not _is_in(i, said.expired) and not found.is_gone(i)):
        wrong.append(f"{untold} left before they were taken, and it is not told so")
    return wrong


class History:
    """What the ledgers of one program after the other say together.

    Args:
        ledgers: their lines, in the order in which the programs ran.
        durable: whether a put is on disk at once.
    """

    def __init__(self, ledgers: Iterable[Iterable[str]], *, durable: bool) -> None:
        self.worlds: list[World] = [World(durable)]
        self.outcome: Outcome = Outcome()
        self.impossible: str = ""
        self._asked: list[str] | None = None
        for lines in ledgers:
            for line in lines:
                self._hear(line.split())
            self._fork()

    def _hear(self, words: list[str]) -> None:
        match words:
            case ["put", name, number, count]:
                self._fork()
                self.outcome.started[name, int(number)] = int(count)
            case ["ack", name, number, first]:
                key, first_id = (name, int(number)), int(first)
                self.outcome.acknowledged[key] = first_id
                for world in self.worlds:
                    world.put(range(first_id, first_id + self.outcome.started[key]))
            case ["not", name, number]:
                self.outcome.refused.add((name, int(number)))
            case ["ack", *answer]:
                asked, self._asked = self._asked, None
                assert asked is not None, "nothing was asked"
                self._keep_possible([w for w in self.worlds if w.do(asked, *answer)], asked)
            case ["not"]:
                self._asked = None
            case ["lost", first, last]:
                self._fork()
                for world in self.worlds:
                    world.lose(int(first), int(last))
            case _:
                self._fork()
                self._asked = words
                if words[0] == "take":
                    self._see(words[2:])

    def _see(self, events: list[str]) -> None:
        for event in events:
            event_id, producer, transaction, index, count = event.split(":")
            self.outcome.seen[int(event_id)] = Said(producer, int(transaction), int(index), int(count))

    def _fork(self) -> None:
        """Let what is in doubt be done in one copy of each world, and not in the other."""
        asked, self._asked = self._asked, None
        if asked is None or asked == ["move"]:
            return
        for answer in asked[1:] if asked[0] == "look" else [""]:
            others = copy.deepcopy(self.worlds)
            self.worlds += [world for world in others if world.do(asked, answer)]
        assert len(self.worlds) <= _MOST_WORLDS, "too much is in doubt"

    def _keep_possible(self, worlds: list[World], asked: list[str]) -> None:
        if not worlds:
            self.impossible = self.impossible or f"{' '.join(asked)[:200]!r} was done, which can't be"
        else:
            self.worlds = worlds

    def last_id(self) -> int:
        """Return the last ID that an event is known to have."""
        started, acknowledged = self.outcome.started, self.outcome.acknowledged
        return max([*self.outcome.seen, *(f + started[key] - 1 for key, f in acknowledged.items())], default=0)

    def settle(self, found: Kept) -> None:
        """Forget the worlds that a channel is not, unless it is none of them."""
        self.worlds = [world for world in self.worlds if not world.wrong(found)] or self.worlds

    def wrong(self, found: Kept) -> list[str]:
        """Return what is wrong with a channel, in words; nothing if every promise was kept."""
        if self.impossible:
            return [self.impossible]
        events, wrong = all_events(self.outcome, found.bodies)
        wrong += check_puts(self.outcome, events, self._need_not_be_there(events, found))
        each = [world.wrong(found) for world in self.worlds]
        return wrong + min(each, key=len)

    def _need_not_be_there(self, events: dict[int, Said], found: Kept) -> set[int]:
        """Return the IDs of events that have left in some world, or are reported."""
        needed = set().union(*(world.held for world in self.worlds))
        through = max(world.through for world in self.worlds)
        acknowledged = set().union(*(world.known for world in self.worlds))
        left = {i for i in known_ids(self.outcome, events) if i <= through or found.is_gone(i)}
        return left | (acknowledged - needed)


def _is_in(event_id: int, ranges: Iterable[Range]) -> bool:
    return any(first <= event_id <= last for first, last in ranges)
