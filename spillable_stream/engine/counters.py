"""What one handle counts while it is open, under Flume's names (``ChannelCounter``, ``FileChannelCounter``)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Counters"]


@dataclass(slots=True)
class Counters:
    """Counts of one handle, since it was opened.

    Args:
        event_put_attempt_count: events of put transactions that were to be committed.
        event_put_success_count: events that were committed.
        event_put_error_count: commits of puts that failed.
        event_take_attempt_count: events that were asked for and found, or that one take did not find.
        event_take_success_count: events whose takes were committed.
        event_take_error_count: takes that could not be read or committed.
        checkpoint_write_error_count: checkpoints that could not be made.
        group_commits: how many appends there were; each is one sync on disk, none in memory.
        grouped_commits: how many transactions they were of.
        disk_syncs: how many appends to the disk tier.
        disk_bytes: how many bytes these were.
    """

    event_put_attempt_count: int = 0
    event_put_success_count: int = 0
    event_put_error_count: int = 0
    event_take_attempt_count: int = 0
    event_take_success_count: int = 0
    event_take_error_count: int = 0
    checkpoint_write_error_count: int = 0
    group_commits: int = 0
    grouped_commits: int = 0
    disk_syncs: int = 0
    disk_bytes: int = 0
