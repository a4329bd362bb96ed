"""What tells a slot from another one that has its number."""

from __future__ import annotations

import pytest

from spillable_stream.objects import chain as module
from spillable_stream.objects.chain import Chain, SlotTokens


def token(number: int, of: int = 0) -> bytes:
    return bytes([of, number]) * 8


def chain_of(base: int, last: int, of: int = 0) -> SlotTokens:
    chain = Chain(base, token(base, of))
    for number in range(base + 1, last + 1):
        chain.add(number, token(number, of))
    return chain.known()


def test_a_slot_that_was_seen_is_known_by_its_token_whatever_the_chain_began_with() -> None:
    assert [chain_of(3, 9).identity_of(n) for n in range(6, 10)] == [
        chain_of(5, 9).identity_of(n) for n in range(6, 10)
    ]
    assert len({chain_of(3, 9).identity_of(n) for n in range(4, 10)}) == 6


def test_an_older_slot_is_known_by_the_slot_that_the_chain_began_with() -> None:
    found = chain_of(5, 9)
    assert found.identity_of(2) == found.identity_of(5) != chain_of(6, 9).identity_of(2)


def test_a_slot_that_is_not_known_has_no_identity() -> None:
    assert chain_of(5, 9).identity_of(10) is None


def test_other_slots_of_the_same_numbers_have_other_identities() -> None:
    mine, others = chain_of(5, 9), chain_of(5, 9, of=1)
    assert not {mine.identity_of(n) for n in range(10)} & {others.identity_of(n) for n in range(10)}


def test_of_a_long_chain_the_newest_slots_are_known_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_TOKENS", 10)
    found = chain_of(0, 100)
    assert len(found.own) <= 10
    assert found.identity_of(100) == token(100).hex()
    assert found.identity_of(1) == found.identity_of(50) != chain_of(0, 100, of=1).identity_of(1)


def test_some_slots_are_told_apart_by_as_many_tokens() -> None:
    chain = Chain(3, token(3))
    for number in range(4, 10):
        chain.add(number, token(number))
    assert chain.of([2, 5, 7, 12]) == SlotTokens((3, token(3)), {5: token(5), 7: token(7)})
