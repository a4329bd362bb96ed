"""What the writing process says of itself, kept off the file system whose power is cut, and the verdict.

The writer appends a line at a time, each one ``write``, before and after whatever it does::

    put 7 3         transaction 7 is about to put 3 bodies
    stored 7 19     it was acknowledged; the first body's ID is 19, 0 in products without IDs
    take 2          the 2 oldest bodies are about to be taken
    taken 6:0 6:1   that was acknowledged: bodies 0 and 1 of transaction 6
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields

__all__ = ["Ledger", "Verdict", "bodies", "judge"]

Key = tuple[int, int]

# Mostly small, some as large as a page, and some so large that a product may store them elsewhere.
_SIZES = (20, 100, 100, 100, 500, 500, 4_097, 40_000)


def bodies(seed: str, number: int) -> list[bytes]:
    """Return the bodies of a transaction: text that says which they are, and that nobody else would write."""
    rng = random.Random(f"{seed} {number}")
    return [
        b"%d:%d %s" % (number, index, rng.randbytes(rng.choice(_SIZES) // 2).hex().encode())
        for index in range(rng.randint(1, 4))
    ]


@dataclass
class Ledger:
    """The lines, read.

    Args:
        counts: how many bodies the transactions have whose put has begun.
        stored: the ID of the first body of each that was certainly acknowledged before the cut.
        taken: bodies whose take certainly was.
        in_doubt: bodies whose take was not, but may have been done anyway.
    """

    counts: dict[int, int] = field(default_factory=dict)
    stored: dict[int, int] = field(default_factory=dict)
    taken: set[Key] = field(default_factory=set)
    in_doubt: set[Key] = field(default_factory=set)

    @classmethod
    def parse(cls, text: bytes, certain: int) -> Ledger:
        """Return what the text says.

        Args:
            text: the whole ledger.
            certain: how long it was just before the cut: what was acknowledged later proves nothing.
        """
        ledger, position, waiting = cls(), 0, 0
        for line in text.splitlines(keepends=True):
            position += len(line)
            match line.decode().split():
                case ["put", number, count]:
                    ledger.counts[int(number)] = int(count)
                case ["stored", number, first_id] if position <= certain:
                    ledger.stored[int(number)] = int(first_id)
                case ["take", count]:
                    waiting = int(count)
                case ["taken", *keys]:
                    taken = {_key(key) for key in keys}
                    (ledger.taken if position <= certain else ledger.in_doubt).update(taken)
                    waiting = 0
        ledger.in_doubt.update(ledger._oldest(waiting))
        return ledger

    def _oldest(self, count: int) -> list[Key]:
        """Return the oldest bodies that nobody took."""
        return [key for key in self.begun() if key not in self.taken | self.in_doubt][:count]

    def begun(self) -> list[Key]:
        """Return the bodies whose put has begun, in its order."""
        return [(number, index) for number, count in self.counts.items() for index in range(count)]


def _key(text: str) -> Key:
    number, index = text.split(":")
    return int(number), int(index)


@dataclass(frozen=True)
class Verdict:
    """What became of the bodies of one cut, or of several.

    Args:
        cuts: how many cuts.
        unreadable: after how many of them the product did not open, or failed while it was read.
        acknowledged: bodies whose put was acknowledged.
        lost: those of them that are gone though nobody took them.
        reported: those of the lost that the product itself names as lost.
        altered: what is there that nobody put.
        duplicated: bodies that came more than once.
        taken: bodies whose take was acknowledged.
        came_back: those of them that are there again.
        errors: what was raised.
    """

    cuts: int = 1
    unreadable: int = 0
    acknowledged: int = 0
    lost: int = 0
    reported: int = 0
    altered: int = 0
    duplicated: int = 0
    taken: int = 0
    came_back: int = 0
    errors: tuple[str, ...] = ()

    @classmethod
    def total(cls, verdicts: Iterable[Verdict]) -> Verdict:
        """Return the sum."""
        found = list(verdicts)
        names = [f.name for f in fields(cls) if f.name != "errors"]
        errors = tuple(sorted({error for verdict in found for error in verdict.errors}))
        return cls(**{name: sum(getattr(verdict, name) for verdict in found) for name in names}, errors=errors)


def judge(
    ledger: Ledger,
    seed: str,
    found: Sequence[bytes],
    error: str = "",
    reported: Sequence[tuple[int, int]] = (),
) -> Verdict:
    """Return the verdict on one cut.

    Args:
        ledger: what the writer knows.
        seed: what its bodies were made of.
        found: the bodies that could be read.
        error: what reading them ended with, if it failed.
        reported: the IDs that the product names as lost, as ranges of first and last.
    """
    expected = {body: (number, index) for number in ledger.counts for index, body in enumerate(bodies(seed, number))}
    there = Counter(expected[body] for body in found if body in expected)
    acknowledged = {key: ledger.stored[key[0]] + key[1] for key in ledger.begun() if key[0] in ledger.stored}
    lost = acknowledged.keys() - there.keys() - ledger.taken - ledger.in_doubt
    return Verdict(
        unreadable=int(bool(error)),
        acknowledged=len(acknowledged),
        lost=len(lost),
        reported=sum(any(first <= acknowledged[key] <= last for first, last in reported) for key in lost),
        altered=sum(body not in expected for body in found),
        duplicated=sum(count - 1 for count in there.values()),
        taken=len(ledger.taken),
        came_back=len(ledger.taken & there.keys()),
        errors=(error,) if error else (),
    )
