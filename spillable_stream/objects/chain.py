"""Which slots a state was built from, by what no other slot has: a token.

The number of a slot does not say which one it is. Where a bucket is put back to an older version, and the log
continues, other slots have the numbers of those that are gone. What a host keeps of slots outlives that, and so does a
read that was planned before. So the one is named by tokens, and the other one compares them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from spillable_stream.format.slot import NO_TOKEN

__all__ = ["NO_TOKENS", "Chain", "SlotTokens"]

_MOST_TOKENS = 1 << 16


class SlotTokens(NamedTuple):
    """What tells some slots from others of their numbers. Picklable.

    Args:
        base: the slot with which a state began, and its token, which stands for those before it.
        own: the tokens of slots after that, by their numbers.
    """

    base: tuple[int, bytes]
    own: Mapping[int, bytes]

    def token_of(self, number: int) -> bytes | None:
        """Return the token of a slot; None if it is not known."""
        base, token = self.base
        return token if number == base else self.own.get(number)

    def identity_of(self, number: int) -> str | None:
        """Return what no other slot of this number has; None for a slot that is not known."""
        token = self.own.get(number)
        if token is not None:
            return token.hex()
        base, token = self.base
        return f"{base} {token.hex()}" if number <= base else None


NO_TOKENS = SlotTokens((-1, NO_TOKEN), {})
"""Of no slot."""


class Chain:
    """The tokens of the slots that a handle has seen, and of the one with which it began. Thread-safe.

    A slot's token says which slots are before it: it was planned on them. So it stands for those whose own are not
    known.

    Args:
        number: the slot with which the state began: that of a checkpoint, or slot 0.
        token: its token.
    """

    def __init__(self, number: int, token: bytes) -> None:
        self._base = number, token
        self._tokens: dict[int, bytes] = {}

    def add(self, number: int, token: bytes) -> None:
        """Note a slot; they come in order."""
        self._tokens[number] = token
        if len(self._tokens) > _MOST_TOKENS:  # who reads meanwhile may not find a slot
            oldest = list(self._tokens)[: _MOST_TOKENS // 2]
            self._base = oldest[-1], self._tokens[oldest[-1]]
            for each in oldest:
                del self._tokens[each]

    def known(self) -> SlotTokens:
        """Return the tokens, as they are as long as no slot is added."""
        return SlotTokens(self._base, self._tokens)

    def of(self, numbers: Iterable[int]) -> SlotTokens:
        """Return what tells some of the slots from others of their numbers."""
        own = {number: token for number in numbers if (token := self._tokens.get(number)) is not None}
        return SlotTokens(self._base, own)

    def token_of(self, number: int) -> bytes | None:
        """Return the token of a slot; None if it is not known."""
        return self.known().token_of(number)
