"""What the demo prints of a channel while events go through it: a legend, headings, a line for each change."""

from __future__ import annotations

import spillable_stream as ss

_BAR = 6
_RUNS = 4


def legend(stats: ss.ChannelStats) -> str:
    """Return what the columns mean, and their headings."""
    return f"""
  put       events that the producer has put so far: a burst for each month, while Spark needs a while to start
  taken     events that Spark has taken; it reports a micro-batch as done when it begins the next one
  memory    events that wait in memory, which holds {stats.memory.event_capacity:,}: new ones go here if there is room
  disk      events that wait on disk, which holds {stats.disk.event_capacity:,}; they came when memory was full
  overflow  "on" while puts that find memory full go to disk at once; before that they wait a moment for room
  spilled   put transactions that went to disk so far
  next      where Spark finds the next events, oldest first: +20 -30 is 20 in memory, then 30 on disk

    time       put     taken   memory            disk              overflow  spilled   next"""


def line(seconds: float, stats: ss.ChannelStats) -> str:
    """Return one line of the table."""
    taken = stats.last_id - stats.channel_size
    overflow = "on" if stats.overflow_active else "off"
    return (
        f"  {seconds:4.1f} s  {stats.last_id:>8,}  {taken:>8,}   {_fill(stats.memory)}   {_fill(stats.disk)}"
        f"   {overflow:<8}  {stats.spilled_transactions:>7}   {_next(stats.drain_order)}"
    )


def bar(events: int, of: int) -> str:
    """Return a bar, such as ``####..``; one event is enough for one ``#``."""
    return f"{'#' * -(-_BAR * events // of):.<{_BAR}}"


def _fill(tier: ss.TierStats) -> str:
    """Return a bar and a number, such as ``####..  25,000``."""
    return f"{bar(tier.events, tier.event_capacity)} {tier.events:>8,}"


def _next(runs: list[int]) -> str:
    """Return the drain order, of a long one the first runs."""
    if not runs:
        return "(empty)"
    more = f" ... and {len(runs) - _RUNS} more" if len(runs) > _RUNS else ""
    return " ".join(f"{run:+,}" for run in runs[:_RUNS]) + more
