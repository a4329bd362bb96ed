"""The flow around channels: sources, interceptors, selectors, channels, sink processors and sinks, after Apache Flume.

Python objects and Flume's own configuration files are two doors to the same rooms. Install
``spillable-stream[flow]``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spillable_stream.flow import testing
    from spillable_stream.flow.graph import Graph
    from spillable_stream.flow.interceptors.base import EventInterceptor, Interceptor, InterceptorChain
    from spillable_stream.flow.interceptors.headers import Host, RemoveHeader, Static, Timestamp, Uuid
    from spillable_stream.flow.interceptors.regex_extractor import RegexExtractor
    from spillable_stream.flow.interceptors.regex_filter import RegexFilter
    from spillable_stream.flow.interceptors.search_replace import SearchReplace
    from spillable_stream.flow.loading import load
    from spillable_stream.flow.processor import ChannelProcessor
    from spillable_stream.flow.selectors import LoadBalancing, Multiplexing, Replicating, Selector

__all__ = [
    "ChannelProcessor",
    "EventInterceptor",
    "Graph",
    "Host",
    "Interceptor",
    "InterceptorChain",
    "LoadBalancing",
    "Multiplexing",
    "RegexExtractor",
    "RegexFilter",
    "RemoveHeader",
    "Replicating",
    "SearchReplace",
    "Selector",
    "Static",
    "Timestamp",
    "Uuid",
    "load",
    "testing",
]

# Imported when they are first used, sorted by name.
_MODULES = {
    "ChannelProcessor": "processor",
    "EventInterceptor": "interceptors.base",
    "Graph": "graph",
    "Host": "interceptors.headers",
    "Interceptor": "interceptors.base",
    "InterceptorChain": "interceptors.base",
    "LoadBalancing": "selectors",
    "Multiplexing": "selectors",
    "RegexExtractor": "interceptors.regex_extractor",
    "RegexFilter": "interceptors.regex_filter",
    "RemoveHeader": "interceptors.headers",
    "Replicating": "selectors",
    "SearchReplace": "interceptors.search_replace",
    "Selector": "selectors",
    "Static": "interceptors.headers",
    "Timestamp": "interceptors.headers",
    "Uuid": "interceptors.headers",
    "load": "loading",
}


def __getattr__(name: str) -> Any:
    if name == "testing":
        return import_module(f"{__name__}.testing")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
