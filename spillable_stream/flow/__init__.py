"""The flow around channels: sources, interceptors, selectors, channels, sink processors and sinks, after Apache Flume.

Python objects and Flume's own configuration files are two doors to the same rooms. Install
``spillable-stream[flow]``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spillable_stream.flow.agent import Agent
    from spillable_stream.flow.event_times import EventTimes
    from spillable_stream.flow.graph import Graph
    from spillable_stream.flow.interceptors.base import EventInterceptor, Interceptor, InterceptorChain
    from spillable_stream.flow.interceptors.headers import Host, RemoveHeader, Static, Timestamp, Uuid
    from spillable_stream.flow.interceptors.regex_extractor import RegexExtractor
    from spillable_stream.flow.interceptors.regex_filter import RegexFilter
    from spillable_stream.flow.interceptors.search_replace import SearchReplace
    from spillable_stream.flow.loading import load
    from spillable_stream.flow.monitoring import Monitoring
    from spillable_stream.flow.patterns.regex import JavaPattern
    from spillable_stream.flow.processor import ChannelProcessor
    from spillable_stream.flow.selectors import LoadBalancing, Multiplexing, Replicating, Selector
    from spillable_stream.flow.sink_processors import Failover, LoadBalance, SinkProcessor
    from spillable_stream.flow.sinks.base import BatchSink, Sink
    from spillable_stream.flow.sinks.channel import ChannelSink
    from spillable_stream.flow.sinks.file_roll import FileRoll
    from spillable_stream.flow.sinks.hdfs import Hdfs
    from spillable_stream.flow.sinks.http import HttpSink
    from spillable_stream.flow.sinks.logger import Logger
    from spillable_stream.flow.sinks.null import Null
    from spillable_stream.flow.sinks.parquet import Parquet
    from spillable_stream.flow.sources.base import EventSource, PolledSource
    from spillable_stream.flow.sources.exec import Exec
    from spillable_stream.flow.sources.http import Http
    from spillable_stream.flow.sources.netcat import Netcat
    from spillable_stream.flow.sources.netcat_udp import NetcatUdp
    from spillable_stream.flow.sources.seq import Seq
    from spillable_stream.flow.sources.spooldir import SpoolDir
    from spillable_stream.flow.sources.stress import Stress
    from spillable_stream.flow.sources.syslog import MultiportSyslogTcp, SyslogTcp, SyslogUdp
    from spillable_stream.flow.sources.taildir import TailDir
    from spillable_stream.flow.wiring import SinkGroup, Source

__all__ = [
    "Agent",
    "BatchSink",
    "ChannelProcessor",
    "ChannelSink",
    "EventInterceptor",
    "EventSource",
    "EventTimes",
    "Exec",
    "Failover",
    "FileRoll",
    "Graph",
    "Hdfs",
    "Host",
    "Http",
    "HttpSink",
    "Interceptor",
    "InterceptorChain",
    "JavaPattern",
    "LoadBalance",
    "LoadBalancing",
    "Logger",
    "Monitoring",
    "Multiplexing",
    "MultiportSyslogTcp",
    "Netcat",
    "NetcatUdp",
    "Null",
    "Parquet",
    "PolledSource",
    "RegexExtractor",
    "RegexFilter",
    "RemoveHeader",
    "Replicating",
    "SearchReplace",
    "Selector",
    "Seq",
    "Sink",
    "SinkGroup",
    "SinkProcessor",
    "Source",
    "SpoolDir",
    "Static",
    "Stress",
    "SyslogTcp",
    "SyslogUdp",
    "TailDir",
    "Timestamp",
    "Uuid",
    "load",
]

try:
    import numpy  # noqa: F401  (here, for all modules of the flow)
except ModuleNotFoundError as _missing:
    raise ImportError("the flow needs numpy: pip install 'spillable-stream[flow]'") from _missing

# Imported when they are first used, sorted by name.
_MODULES = {
    "Agent": "agent",
    "BatchSink": "sinks.base",
    "ChannelProcessor": "processor",
    "ChannelSink": "sinks.channel",
    "EventInterceptor": "interceptors.base",
    "EventSource": "sources.base",
    "EventTimes": "event_times",
    "Exec": "sources.exec",
    "Failover": "sink_processors",
    "FileRoll": "sinks.file_roll",
    "Graph": "graph",
    "Hdfs": "sinks.hdfs",
    "Host": "interceptors.headers",
    "Http": "sources.http",
    "HttpSink": "sinks.http",
    "Interceptor": "interceptors.base",
    "InterceptorChain": "interceptors.base",
    "JavaPattern": "patterns.regex",
    "LoadBalance": "sink_processors",
    "LoadBalancing": "selectors",
    "Logger": "sinks.logger",
    "Monitoring": "monitoring",
    "Multiplexing": "selectors",
    "MultiportSyslogTcp": "sources.syslog",
    "Netcat": "sources.netcat",
    "NetcatUdp": "sources.netcat_udp",
    "Null": "sinks.null",
    "Parquet": "sinks.parquet",
    "PolledSource": "sources.base",
    "RegexExtractor": "interceptors.regex_extractor",
    "RegexFilter": "interceptors.regex_filter",
    "RemoveHeader": "interceptors.headers",
    "Replicating": "selectors",
    "SearchReplace": "interceptors.search_replace",
    "Selector": "selectors",
    "Seq": "sources.seq",
    "Sink": "sinks.base",
    "SinkGroup": "wiring",
    "SinkProcessor": "sink_processors",
    "Source": "wiring",
    "SpoolDir": "sources.spooldir",
    "Static": "interceptors.headers",
    "Stress": "sources.stress",
    "SyslogTcp": "sources.syslog",
    "SyslogUdp": "sources.syslog",
    "TailDir": "sources.taildir",
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
