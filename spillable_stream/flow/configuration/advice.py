"""What hardly is as it was meant: findings about components that run, and that Flume takes in silence."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping

from spillable_stream.errors import OptionError
from spillable_stream.flow.configuration.findings import Findings
from spillable_stream.flow.configuration.idle_properties import find_idle
from spillable_stream.flow.configuration.model import AgentConfig, ComponentConfig, SinkConfig, SourceConfig
from spillable_stream.flow.configuration.options import Kind
from spillable_stream.flow.configuration.registry import find_type
from spillable_stream.flow.configuration.tree import RawAgent, RawComponent
from spillable_stream.flow.patterns.java_regex import translate

__all__ = ["advise"]

_TAIL = re.compile(r"\btail\s+(?:.*\s)?(?:-\w*[fF]\w*|--follow\S*)(?:\s|$)")
_SHELL_SIGN = re.compile(r"(?:^|\s)(?:\|\|?|&&?|;|[0-9]?>>?|<)(?:\s|$)|\s2>&1|\$\(|`")
_TIME_ESCAPE = re.compile(r"%[aAbBcdDeHIjklmMpsStTyYz]")
_TIMELESS_SOURCES = {"exec", "spooldir", "taildir", "netcat", "netcatudp", "seq", "stress"}
_TIMELESS_INTERCEPTORS = {"host", "remove_header", "uuid", "search_replace", "regex_filter"}
_SECRET = re.compile(r"(?i)(password|passwd|passphrase|secret|token|access[-_.]?key|jaas)(?![-_.]?(file|path|header))")
_LIST = re.compile(
    r"channels|sinks|interceptors|filegroups|selector\.(optional|default|mapping)(\..*)?|.*\.serializers"
)
_UDP = {"netcatudp", "syslogudp"}
_ANY_ADDRESS = {"0.0.0.0", "::"}


def advise(raw: RawAgent, agent: AgentConfig, findings: Findings) -> None:
    """Add what is hardly meant.

    Args:
        raw: an agent as its files describe it.
        agent: what of it runs.
        findings: gets what is found.
    """
    for source in agent.sources:
        described = raw.components["sources"][source.name]
        _tail(described, source, findings)
        _shell(described, source, findings)
        _patterns(described, source, findings)
        find_idle(described, source, findings)
    sources_of = _sources_by_channel(agent)
    types = {channel.name: channel.type for channel in agent.channels}
    for sink in agent.sinks:
        described = raw.components["sinks"][sink.name]
        find_idle(described, sink, findings)
        _roll_defaults(described, sink, findings)
        _no_timestamp(described, sink, sources_of[sink.channel], findings)
        _http_resend(described, sink, findings)
        _memory_channel(described, sink, types[sink.channel], findings)
    _ports(raw, agent, findings)
    _position_files(raw, agent, findings)
    _channels_without_sink(raw, agent, findings)
    _channels_of_failover(raw, agent, findings)
    for components in raw.components.values():
        for component in components.values():
            _secrets(component, findings)
            _commas(component, findings)


def _sources_by_channel(agent: AgentConfig) -> Mapping[str, list[SourceConfig]]:
    found: defaultdict[str, list[SourceConfig]] = defaultdict(list)
    for source in agent.sources:
        for channel in source.channels:
            found[channel].append(source)
    return found


def _channels_of_failover(raw: RawAgent, agent: AgentConfig, findings: Findings) -> None:
    channel_of = {sink.name: sink.channel for sink in agent.sinks}
    for group in agent.sink_groups:
        channels = list(dict.fromkeys(channel_of[sink] for sink in group.sinks if sink in channel_of))
        if group.processor.type == "failover" and len(channels) > 1:
            described = raw.components["sinkgroups"][group.name]
            text = (
                f"its sinks take from {', '.join(channels)}, and one of them works while the others wait for it to "
                "fail, so the channels of these fill: let all take from one channel, or write load_balance"
            )
            findings.add("failover-channels", described.entries["sinks"], described.path, text)


def _tail(raw: RawComponent, source: SourceConfig, findings: Findings) -> None:
    command = str(source.keywords.get("command", ""))
    if source.type == "exec" and _TAIL.search(command):
        text = (
            "lines that are written while nothing reads are lost, and a restart sends others again: a source of type "
            "taildir reads the same files, and remembers how far"
        )
        findings.add("tail", raw.entries["command"], raw.path, text)


def _shell(raw: RawComponent, source: SourceConfig, findings: Findings) -> None:
    if source.type != "exec" or source.keywords.get("shell"):
        return
    if sign := _SHELL_SIGN.search(str(source.keywords["command"])):
        what = f"{sign[0].strip()} is an argument of the command"
        text = f"{what}, since no shell runs it: write {raw.path}.shell = /bin/sh -c"
        findings.add("no-shell", raw.entries["command"], raw.path, text)


def _patterns(raw: RawComponent, source: SourceConfig, findings: Findings) -> None:
    for interceptor in source.interceptors:
        name = {"regex_filter": "regex", "regex_extractor": "regex", "search_replace": "searchPattern"}.get(
            interceptor.type
        )
        entry = raw.entries.get(f"interceptors.{interceptor.name}.{name}")
        if entry is None:
            continue
        try:
            translation = translate(entry.value)
        except OptionError:  # a finding about the interceptor says so
            continue
        if translation.why_not_re2:
            which = "all bodies" if translation.re2 is None else "some bodies"
            text = f"{which} are matched one by one, which is two to three times slower: {translation.why_not_re2}"
            findings.add("regex", entry, f"{raw.path}.interceptors.{interceptor.name}", text)


def _roll_defaults(raw: RawComponent, sink: SinkConfig, findings: Findings) -> None:
    if sink.type != "hdfs":
        return
    defaults = {"hdfs.rollCount": ("roll_count", "10 events"), "hdfs.rollSize": ("roll_size", "1,024 bytes")}
    kept = {name: limit for name, (keyword, limit) in defaults.items() if keyword not in sink.keywords}
    if kept:
        text = (
            f"a new file begins after {' or '.join(kept.values())}, which is the default of {' and '.join(kept)}: "
            f"write {' and '.join(f'{name} = 0' for name in kept)} for no such limit"
        )
        findings.add("roll-defaults", raw.first, raw.path, text)


def _no_timestamp(raw: RawComponent, sink: SinkConfig, sources: list[SourceConfig], findings: Findings) -> None:
    if sink.type not in ("hdfs", "parquet") or sink.keywords.get("use_local_time_stamp"):
        return
    for name in "hdfs.path", "hdfs.filePrefix":
        used = _TIME_ESCAPE.findall(raw.get(name).replace("%%", ""))
        if used and sources and not any(map(_may_set_time, sources)):
            text = (
                f"{used[0]} is the time of the header timestamp, which no source of its channel sets: write "
                "hdfs.useLocalTimeStamp = true, or give each source an interceptor of type timestamp"
            )
            findings.add("no-timestamp", raw.entries[name], raw.path, text)
            return


def _may_set_time(source: SourceConfig) -> bool:
    """Return whether the events of a source may have the header ``timestamp``."""
    return source.type not in _TIMELESS_SOURCES or any(map(_may_set_time_header, source.interceptors))


def _may_set_time_header(interceptor: ComponentConfig) -> bool:
    keywords = interceptor.keywords
    if interceptor.type == "timestamp":
        return keywords.get("header_name", "timestamp") == "timestamp"
    if interceptor.type == "static":
        return keywords.get("key") == "timestamp"
    if interceptor.type == "regex_extractor":
        serializers = keywords["serializers"]
        assert isinstance(serializers, tuple)
        return any(serializer.keywords.get("name") == "timestamp" for serializer in serializers)
    return interceptor.type not in _TIMELESS_INTERCEPTORS


def _http_resend(raw: RawComponent, sink: SinkConfig, findings: Findings) -> None:
    if sink.type != "http" or not sink.keywords.get("default_rollback", True):
        return
    rollback = sink.keywords.get("rollback", {})
    assert isinstance(rollback, Mapping)
    if {str(code).upper(): value for code, value in rollback.items()}.get("2XX", rollback.get("200", True)):
        text = (
            "an event that the server accepts is sent again and again, since an answer 200 is rolled back by default: "
            "write rollback.2XX = false, backoff.2XX = false and incrementMetrics.2XX = true"
        )
        findings.add("http-resend", raw.first, raw.path, text)


def _memory_channel(raw: RawComponent, sink: SinkConfig, channel_type: str, findings: Findings) -> None:
    known = find_type(Kind.SINK, sink.type)
    if known is not None and known.durable and channel_type == "memory":
        text = (
            f"its files outlive the host, and the events in its channel {sink.channel} do not: with type file for the "
            "channel nothing is lost"
        )
        findings.add("memory-channel", raw.entries["channel"], raw.path, text)


def _ports(raw: RawAgent, agent: AgentConfig, findings: Findings) -> None:
    listening: dict[tuple[bool, int], dict[str, str]] = {}  # by protocol and port, the sources by address
    for source in agent.sources:
        described = raw.components["sources"][source.name]
        address = str(source.keywords.get("bind", source.keywords.get("host", "0.0.0.0")))
        ports = source.keywords.get("ports", (source.keywords.get("port", 0),))
        assert isinstance(ports, tuple)
        for port in filter(None, ports):
            others = listening.setdefault((source.type in _UDP, port), {})
            met = others if address in _ANY_ADDRESS else (address, *_ANY_ADDRESS)
            name = next((others[at] for at in met if at in others), "")
            if name:
                entry = described.entries.get("port") or described.entries["ports"]
                text = f"the source {name} listens on the port {port}, too, so one of them can't: give it another"
                findings.add("port-twice", entry, described.path, text)
            others.setdefault(address, source.name)


def _position_files(raw: RawAgent, agent: AgentConfig, findings: Findings) -> None:
    known = find_type(Kind.SOURCE, "taildir")
    assert known is not None
    source_of: dict[object, str] = {}
    for source in agent.sources:
        if source.type != known.alias:
            continue
        file = source.keywords.get("position_file", known.plain("positionFile").default)
        if (other := source_of.setdefault(file, source.name)) != source.name:
            described = raw.components["sources"][source.name]
            entry = described.entries.get("positionFile", described.first)
            text = f"the source {other} has the position file {file}, too, so it can't be started: give it another one"
            findings.add("position-file-twice", entry, described.path, text)


def _channels_without_sink(raw: RawAgent, agent: AgentConfig, findings: Findings) -> None:
    taken = {sink.channel for sink in agent.sinks}
    dead = {source.dead_letter for source in agent.sources} | {sink.dead_letter for sink in agent.sinks}
    for channel in agent.channels:
        if agent.sinks and channel.name not in taken | dead:
            described = raw.components["channels"][channel.name]
            text = "no sink takes from it, so it fills, unless a Spark query or a program reads it: add a sink"
            findings.add("no-sink", described.first, described.path, text)


def _commas(raw: RawComponent, findings: Findings) -> None:
    """Find lists of names with commas; those of the agent itself are validation's."""
    for name, entry in raw.entries.items():
        if "," in entry.value and _LIST.fullmatch(name):
            meant = " ".join(part.strip() for part in entry.value.split(",") if part.strip())
            text = f"names are separated by blanks: write {raw.path}.{name} = {meant}"
            findings.add("list-commas", entry, raw.path, text)


def _secrets(raw: RawComponent, findings: Findings) -> None:
    for name, entry in raw.entries.items():
        if _SECRET.search(name) and "${" not in entry.raw:
            text = f"{name} is in plain text: keep it out of the file, with ${{env:…}} or a config filter"
            findings.add("secret", entry, raw.path, text)
