"""The loss of a memory tier is reported: the warning names the events."""

from __future__ import annotations

import warnings

import pytest

from spillable_stream.engine.local.memory_loss_report import report_memory_loss
from spillable_stream.errors import MemoryLossWarning
from spillable_stream.state.memory_loss_rules import MemoryLoss


def test_lost_and_doubtful_events_are_named() -> None:
    with pytest.warns(MemoryLossWarning, match=r"of /c is gone: 3 events are lost, 2 to 4; .* among 9 to 12") as caught:
        report_memory_loss("/c", MemoryLoss(12, lost=[(2, 4)], doubtful=[(9, 12)]))
    (warning,) = caught
    assert isinstance(warning.message, MemoryLossWarning)
    assert (warning.message.lost, warning.message.doubtful) == (((2, 4),), ((9, 12),))


def test_lost_events_that_every_group_had_taken_are_told_apart() -> None:
    with pytest.warns(
        MemoryLossWarning, match="9 events are lost, 2 to 10 .of them every group had taken 3, .* 2 to 4"
    ):
        report_memory_loss("/c", MemoryLoss(12, lost=[(2, 10)], taken=[(2, 4)]))


def test_doubt_alone_is_reported_and_nothing_is_where_nothing_can_be_lost() -> None:
    with pytest.warns(MemoryLossWarning, match="no event is known to be lost; .* among 9 to 12"):
        report_memory_loss("/c", MemoryLoss(12, doubtful=[(9, 12)]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report_memory_loss("/c", MemoryLoss(12))
