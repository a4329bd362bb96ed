"""Which events are gone that no finding explains."""

from __future__ import annotations

from spillable_stream.integrity.findings import Findings, Severity
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.ranges import Range, RangeSet

__all__ = ["UNKNOWN_IDS", "kept_and_gone", "unexplained"]

UNKNOWN_IDS = 1 << 32
"""More than any channel used after the last ID that is known."""


def kept_and_gone(state: ChannelState, lost: list[Range], findings: Findings) -> list[Range]:
    """Return the events that are gone though no group needs them: one that comes, or goes back, would.

    Args:
        state: the state, with the events that can be read.
        lost: the events that a group needs and that are gone.
        findings: what was found.
    """
    # Those that were taken from memory ahead of others are not there either: only damage makes others suspect.
    if state.memory.generation and not any(f.severity is Severity.DAMAGE for f in findings.all()):
        return []
    known = state.gone().union(lost)
    return [r for gap in state.blocks.gaps(state.first_kept, state.last_id) for r in known.gaps(*gap)]


def unexplained(lost: list[Range], findings: Findings) -> list[Range]:
    """Return the lost events that no finding names."""
    known = RangeSet(r for f in findings.all() for r in f.events)
    return [gap for first, last in lost for gap in known.gaps(first, last)]
