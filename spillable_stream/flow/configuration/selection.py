"""A source's selector: which of its channels an event goes to."""

from __future__ import annotations

from spillable_stream.flow.configuration.components import Classes, Refusal
from spillable_stream.flow.configuration.findings import Findings
from spillable_stream.flow.configuration.model import ComponentConfig
from spillable_stream.flow.configuration.nested import configure_whole
from spillable_stream.flow.configuration.options import Kind, word_list
from spillable_stream.flow.configuration.registry import nearest
from spillable_stream.flow.configuration.tree import RawComponent

__all__ = ["configure_selector"]

_NAME_CHANNELS = ("optional", "default", "mapping.", "optional.")


def configure_selector(
    source: RawComponent, channels: list[str], findings: Findings, classes: Classes
) -> ComponentConfig:
    """Return the selector of a source, whose channels are all the source's.

    Args:
        source: the source.
        channels: the names of its channels that run.
        findings: gets what is wrong.
        classes: finds classes, and tries components.

    Raises:
        Refusal: the selector can't work, so the source does not run.
    """
    raw = source.below("selector", Kind.SELECTOR, "selector")
    selector = configure_whole(raw, findings, classes, default_type="replicating")
    if selector.type not in ("replicating", "multiplexing"):
        return selector
    running = set(channels)
    for key, entry in raw.entries.items():
        if key not in _NAME_CHANNELS[:2] and not key.startswith(_NAME_CHANNELS[2:]):
            continue
        for name in word_list(entry.value):
            if name not in running:
                meant = nearest(name, channels)
                hint = f": did you mean {meant}?" if meant else f": they are {' '.join(channels)}"
                text = f"{key} names {name}, which is not a channel of its source that runs{hint}"
                raise Refusal(findings.add("selector-channel", entry, raw.path, text))
    if selector.type == "multiplexing" and not selector.keywords.get("default"):
        text = "events whose header has another value go nowhere, and count as accepted: write selector.default = …"
        findings.add("no-default", raw.first, raw.path, text)
    return selector
