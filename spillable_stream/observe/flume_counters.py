"""The counters of channels as Flume's HTTP monitoring shows them: one JSON object, all values strings."""

from __future__ import annotations

from collections.abc import Sequence

from spillable_stream.observe.observation import Observation

__all__ = ["flume_counters"]


def flume_counters(observations: Sequence[Observation], since: float) -> dict[str, dict[str, str]]:
    """Return ``CHANNEL.name`` for each channel that can be looked at, with its counters.

    The name is the last part of the path; the whole path where two channels have the same. Of a channel that others
    write, the counts of puts and takes are those of everybody: what was ever put, and what was taken since the first
    look.

    Args:
        observations: the channels.
        since: when the first look was, in seconds since 1970.
    """
    names = [seen.path.rstrip("/").rpartition("/")[2] for seen in observations]
    return {
        f"CHANNEL.{name if names.count(name) == 1 else seen.path}": _counters(seen, since)
        for name, seen in zip(names, observations, strict=True)
        if seen.stats is not None
    }


def _counters(seen: Observation, since: float) -> dict[str, str]:
    assert seen.stats is not None
    values = seen.stats.flume_counters()
    if not seen.own:
        puts, takes = float(seen.stats.last_id), float(sum(seen.taken.values()))
        values |= {"EventPutAttemptCount": puts, "EventPutSuccessCount": puts}
        values |= {"EventTakeAttemptCount": takes, "EventTakeSuccessCount": takes}
    shown = {name: _number(value) for name, value in values.items()}
    return {"Type": "CHANNEL", "StartTime": str(int(since * 1000)), "StopTime": "0", **shown}


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and not isinstance(value, float) else f"{value:.15g}"
