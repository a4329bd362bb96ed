"""Every type of interceptor, selector, sink processor and configuration filter, with its properties and defaults."""

from __future__ import annotations

from spillable_stream.flow.configuration.options import (
    ComponentType,
    Kind,
    Leniency,
    Property,
    boolean,
    integer,
    milliseconds,
    one_of,
    text,
    word_list,
)

__all__ = ["CONFIG_FILTERS", "INTERCEPTORS", "PROCESSORS", "SELECTORS", "SERIALIZERS"]

_REGEX = "a regular expression"
_CHANNELS = "names of the source's channels, separated by white space"


def _java(name: str) -> tuple[str, ...]:
    return (f"org.apache.flume.interceptor.{name}$Builder", f"org.apache.flume.interceptor.{name}")


def _interceptor(name: str) -> str:
    return f"spillable_stream.flow.interceptors.{name}"


def _preserve(default: bool) -> Property:
    return Property("preserveExisting", boolean, default, "Whether an existing header is kept.")


INTERCEPTORS = (
    ComponentType(
        Kind.INTERCEPTOR,
        "timestamp",
        _java("TimestampInterceptor"),
        _interceptor("headers:Timestamp"),
        (Property("headerName", text, "timestamp", "The header that gets the time, in ms."), _preserve(False)),
    ),
    ComponentType(
        Kind.INTERCEPTOR,
        "host",
        _java("HostInterceptor"),
        _interceptor("headers:Host"),
        (
            Property("hostHeader", text, "host", "The header that gets the host."),
            Property("useIP", boolean, True, "Whether it is the address, and not the name."),
            _preserve(False),
        ),
    ),
    ComponentType(
        Kind.INTERCEPTOR,
        "static",
        _java("StaticInterceptor"),
        _interceptor("headers:Static"),
        (
            Property("key", text, "key", "The header's name."),
            Property("value", text, "value", "Its value."),
            _preserve(True),
        ),
    ),
    ComponentType(
        Kind.INTERCEPTOR,
        "remove_header",
        _java("RemoveHeaderInterceptor"),
        _interceptor("headers:RemoveHeader"),
        (
            Property("withName", text, None, "A header to remove."),
            Property("fromList", text, None, "Headers to remove."),
            Property("fromListSeparator", text, r"\s*,\s*", "The pattern between them.", _REGEX),
            Property("matching", text, None, "Which headers to remove, by their whole names.", _REGEX),
        ),
    ),
    ComponentType(
        Kind.INTERCEPTOR,
        "uuid",
        (
            "org.apache.flume.sink.solr.morphline.UUIDInterceptor$Builder",
            "org.apache.flume.sink.solr.morphline.UUIDInterceptor",
        ),
        _interceptor("headers:Uuid"),
        (
            Property("headerName", text, "id", "The header that gets the UUID."),
            _preserve(True),
            Property("prefix", text, "", "Text before it."),
        ),
    ),
    ComponentType(
        Kind.INTERCEPTOR,
        "search_replace",
        _java("SearchAndReplaceInterceptor"),
        _interceptor("search_replace:SearchReplace"),
        (
            Property("searchPattern", text, None, "The text in the body that is replaced.", _REGEX, required=True),
            Property("replaceString", text, "", "What replaces it; `$1` is the first group."),
            Property("charset", text, "UTF-8", "The character set of the body.", "a character set"),
        ),
    ),
    ComponentType(
        Kind.INTERCEPTOR,
        "regex_filter",
        _java("RegexFilteringInterceptor"),
        _interceptor("regex_filter:RegexFilter"),
        (
            Property("regex", text, ".*", "The pattern that is looked for in the body.", _REGEX),
            Property("excludeEvents", boolean, False, "Whether events where it is found are dropped, and not the "
                     "others."),
        ),
    ),
    ComponentType(
        Kind.INTERCEPTOR,
        "regex_extractor",
        _java("RegexExtractorInterceptor"),
        _interceptor("regex_extractor:RegexExtractor"),
        (
            Property("regex", text, None, "The pattern that is looked for; its groups become headers.", _REGEX,
                     required=True),
            Property("serializers", word_list, None, "The names of the groups' serializers, in order.", "names",
                     required=True, keyword="listed_serializers"),
            Property("serializers.*.*", text, None, "A property of a serializer: `serializers.S.name` is the header."),
        ),
    ),
    ComponentType(
        Kind.INTERCEPTOR,
        "morphline",
        (
            "org.apache.flume.sink.solr.morphline.MorphlineInterceptor$Builder",
            "org.apache.flume.sink.solr.morphline.MorphlineInterceptor",
        ),
        instead="morphlines are not supported; write an interceptor of your own in Python",
    ),
)  # fmt: skip

_SERIALIZER = "org.apache.flume.interceptor.RegexExtractorInterceptor"
_HEADER = Property("name", text, None, "The header.", required=True)

SERIALIZERS = (
    ComponentType(
        Kind.SERIALIZER,
        "DEFAULT",
        (f"{_SERIALIZER}PassThroughSerializer",),
        _interceptor("regex_extractor:PassThrough"),
        (_HEADER,),
    ),
    ComponentType(
        Kind.SERIALIZER,
        "millis",
        (f"{_SERIALIZER}MillisSerializer",),
        _interceptor("regex_extractor:Millis"),
        (_HEADER, Property("pattern", text, None, "The pattern of the time, as Joda-Time has it.", required=True)),
    ),
)

SELECTORS = (
    ComponentType(
        Kind.SELECTOR,
        "replicating",
        ("org.apache.flume.channel.ReplicatingChannelSelector",),
        "spillable_stream.flow.selectors:Replicating",
        (Property("optional", word_list, (), "The channels that may miss events.", _CHANNELS),),
    ),
    ComponentType(
        Kind.SELECTOR,
        "multiplexing",
        ("org.apache.flume.channel.MultiplexingChannelSelector",),
        "spillable_stream.flow.selectors:Multiplexing",
        (
            Property("header", text, "flume.selector.header", "The header whose value decides."),
            Property("mapping.*", word_list, {}, "The channels for a value.", _CHANNELS, required=True),
            Property("default", word_list, (), "The channels for every other value; without one such events are "
                     "dropped.", _CHANNELS),
            Property("optional.*", word_list, {}, "More channels for a value, which may miss events.", _CHANNELS),
        ),
    ),
    ComponentType(
        Kind.SELECTOR,
        "load_balancing",
        ("org.apache.flume.channel.LoadBalancingChannelSelector",),
        "spillable_stream.flow.selectors:LoadBalancing",
        (
            Property("policy", one_of("round_robin", "random"), "round_robin", "Which channel the next event goes to."),
        ),
    ),
)  # fmt: skip

PROCESSORS = (
    ComponentType(
        Kind.PROCESSOR,
        "default",
        ("org.apache.flume.sink.DefaultSinkProcessor",),
        "spillable_stream.flow.sink_processors:Default",
    ),
    ComponentType(
        Kind.PROCESSOR,
        "failover",
        ("org.apache.flume.sink.FailoverSinkProcessor",),
        "spillable_stream.flow.sink_processors:Failover",
        (
            Property("priority.*", integer(-(2**31)), {}, "A sink's priority; higher first.", "an integer"),
            Property("maxpenalty", milliseconds(0), 30_000, "The longest time out of a sink that failed, in "
                     "milliseconds.", lenient=Leniency.ANY),
        ),
    ),
    ComponentType(
        Kind.PROCESSOR,
        "load_balance",
        ("org.apache.flume.sink.LoadBalancingSinkProcessor",),
        "spillable_stream.flow.sink_processors:LoadBalance",
        (
            Property("selector", text, "round_robin", "Which sink is asked first.", "round_robin, random or a class"),
            Property("selector.maxTimeOut", milliseconds(0), 30_000, "The longest time out of a sink that failed, "
                     "in milliseconds."),
            Property("backoff", boolean, False, "Whether a sink that failed is left out for a time."),
        ),
    ),
)  # fmt: skip

CONFIG_FILTERS = (
    ComponentType(
        Kind.CONFIG_FILTER,
        "env",
        ("org.apache.flume.configfilter.EnvironmentVariableConfigFilter",),
    ),
    ComponentType(
        Kind.CONFIG_FILTER,
        "external",
        ("org.apache.flume.configfilter.ExternalProcessConfigFilter",),
        "",
        (
            Property("command", text, None, "The command that gets the key as its last argument.", required=True),
            Property("charset", text, "UTF-8", "The character set of its answer.", "a character set"),
        ),
    ),
    ComponentType(
        Kind.CONFIG_FILTER,
        "hadoop",
        ("org.apache.flume.configfilter.HadoopCredentialStoreConfigFilter",),
        instead="only Java reads Hadoop's credential store; use type external, with a command that prints the secret",
    ),
)  # fmt: skip
