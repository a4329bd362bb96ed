"""What a class of a flow may fail with."""

from __future__ import annotations

import sys

import pytest

from spillable_stream.flow.failures import FAILURES


def test_a_class_that_exits_has_failed_and_an_interrupt_is_nobodys_failure() -> None:
    with pytest.raises(FAILURES):
        sys.exit(1)
    with pytest.raises(FAILURES):
        raise OSError("the disk failed")
    assert not issubclass(KeyboardInterrupt, FAILURES)
