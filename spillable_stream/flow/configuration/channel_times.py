"""The properties of channels that say for how long events count, and when they are delivered."""

from __future__ import annotations

from spillable_stream.flow.configuration.channels import capacities
from spillable_stream.flow.configuration.components import Refusal
from spillable_stream.flow.configuration.findings import Findings
from spillable_stream.flow.configuration.model import ComponentConfig
from spillable_stream.flow.configuration.tree import RawComponent
from spillable_stream.flow.event_times import EventTimes

__all__ = ["check_times", "event_times", "time_properties"]

_DELAYS = {
    "deliver_after": "deliverAfter",
    "deliver_after_header": "deliverAfterHeader",
    "deliver_at_header": "deliverAtHeader",
}


def event_times(channel: ComponentConfig) -> EventTimes:
    """Return what a channel's properties say of the times of events that a source puts there."""
    names = ("ttl", "ttl_header", *_DELAYS)
    return EventTimes(**{name: channel.keywords[name] for name in names if name in channel.keywords})  # type: ignore[arg-type]


def time_properties(channel: ComponentConfig) -> dict[str, str]:
    """Return these properties as the file gives them."""
    names = ("ttl", "ttlHeader", *_DELAYS.values())
    return {name: channel.properties[name] for name in names if name in channel.properties}


def check_times(raw: RawComponent, channel: ComponentConfig, findings: Findings) -> None:
    """Refuse a channel that should delay events, and can't.

    Raises:
        Refusal: it should, and can't.
    """
    given = next((name for keyword, name in _DELAYS.items() if keyword in channel.keywords), None)
    if given is None:
        return
    at = raw.entries.get(given, raw.first)
    if not capacities(channel).overflow:
        text = f"{given} needs a channel with a disk tier, where events wait, so it does not run"
        raise Refusal(findings.add("bad-value", at, raw.path, f"{text}: write {raw.path}.type = file"))
