"""The numbers under which batches are committed: a refusal leaves no gap for long."""

from __future__ import annotations

from spillable_stream.format.numbered_batch import BY_PRODUCER, Numbers
from spillable_stream.producer.numbering import Numbering


def numbers(first: int, last: int) -> Numbers:
    return Numbers(first, last, BY_PRODUCER)


def test_batches_under_way_have_a_number_each() -> None:
    numbering = Numbering(7)
    assert [numbering.take() for _ in range(3)] == [numbers(n, n) for n in (8, 9, 10)]


def test_a_batch_uses_up_the_numbers_that_nobody_will_have_any_more() -> None:
    numbering = Numbering(0)
    first, second = numbering.take(), numbering.take()
    numbering.free(first, stored=False)
    assert numbering.take() == numbers(3, 3), "the second may be stored yet"
    numbering.free(second, stored=True)
    numbering.free(numbers(3, 3), stored=False)
    assert numbering.take() == numbers(1, 4)


def test_a_number_is_as_high_as_it_has_to_be() -> None:
    assert Numbering(0).take(5) == numbers(1, 5)
