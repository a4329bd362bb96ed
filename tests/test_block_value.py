from __future__ import annotations

import itertools
from contextvars import ContextVar

from spillable_stream.block_value import block_value
from tests.support.interrupts import Interrupts

_number: ContextVar[int] = ContextVar("number", default=0)


def test_a_value_counts_in_its_block_and_the_one_before_behind_it() -> None:
    with block_value(_number, 1):
        with block_value(_number, 2):
            assert _number.get() == 2
        assert _number.get() == 1
    assert _number.get() == 0


def test_an_interrupt_anywhere_leaves_the_value_before() -> None:
    def use() -> None:
        with block_value(_number, 1):
            assert _number.get() == 1

    for number in itertools.count(1):
        interrupts = Interrupts(number, "block_value.py")
        interrupts.run(use)
        assert _number.get() == 0, number
        if not interrupts.hit:
            break
    assert number > 4
