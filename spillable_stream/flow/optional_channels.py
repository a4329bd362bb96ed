"""Which channels of an agent are optional: it runs without them."""

from __future__ import annotations

from spillable_stream.flow.configuration.builder import build
from spillable_stream.flow.configuration.model import AgentConfig
from spillable_stream.flow.selectors import Selector

__all__ = ["optional_channels"]


def optional_channels(config: AgentConfig) -> set[str]:
    """Return the channels that each source which names them is never required to put into, nor anybody's dead letters.

    Raises:
        OptionError: a selector can't be built.
    """
    required = {source.dead_letter for source in config.sources} | {sink.dead_letter for sink in config.sinks}
    optional: set[str] = set()
    for source in config.sources:
        selector: Selector = build(source.selector)
        selector.bind(source.channels)
        of_source = selector.never_required()
        optional |= of_source
        required |= {*source.channels} - of_source
    return optional - required
