"""Which slots a state was built from, by what no other slot has: a token.

The number of a slot does not say which one it is. Where a bucket is put back to an older version, and the log
continues, other slots have the numbers of those that are gone. What a host keeps of slots outlives that, so it is named
by these.
"""

from __future__ import annotations

__all__ = ["Chain"]

_MOST_TOKENS = 1 << 16


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
        if len(self._tokens) > _MOST_TOKENS:  # who reads meanwhile finds a slot's own token, or one that stands for it
            oldest = list(self._tokens)[: _MOST_TOKENS // 2]
            self._base = oldest[-1], self._tokens[oldest[-1]]
            for each in oldest:
                del self._tokens[each]

    def token_of(self, number: int) -> bytes | None:
        """Return the token of a slot; None if it is not known."""
        base, token = self._base
        return token if number == base else self._tokens.get(number)

    def identity_of(self, number: int) -> str | None:
        """Return what no other slot of this number has; None for a slot that is not known."""
        token = self._tokens.get(number)
        if token is not None:
            return token.hex()
        base, token = self._base
        return f"{base} {token.hex()}" if number <= base else None
