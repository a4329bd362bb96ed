"""Every type of source that Flume has, with its properties and defaults."""

from __future__ import annotations

from spillable_stream.flow.configuration.options import (
    MOST_LONG,
    ComponentType,
    Kind,
    Property,
    RangedParser,
    boolean,
    integer,
    milliseconds,
    one_of,
    size,
    text,
    word_list,
)

__all__ = ["SOURCES"]

_port = RangedParser(integer(0, 65535), "a port, 0 to 65535; 0 for any that is free")

_POLLED = (
    Property("backoffSleepIncrement", milliseconds(0), 1000, "How fast the wait grows while there is nothing to read, "
             "in milliseconds."),
    Property("maxBackoffSleep", milliseconds(0), 5000, "The longest such wait, in milliseconds."),
)  # fmt: skip

_TLS = (
    Property("ssl", boolean, False, "Whether clients must use TLS."),
    Property("keystore", text, None, "The certificate and its key, a PEM file.", "a file"),
    Property("keystore-password", text, None, "The password of the key."),
    Property("keystore-type", one_of("PEM"), None, "The format of the keystore.",
             "PEM, into which keystores of Java's must be converted"),
)  # fmt: skip

_JAVA_TLS = {
    name: "the protocols and ciphers are those of Python's ssl module"
    for name in ("exclude-protocols", "include-protocols", "exclude-cipher-suites", "include-cipher-suites")
}

_SYSLOG = (
    Property("host", text, "0.0.0.0", "The address to listen on.", "an address"),
    Property("eventSize", size(10), 2500, "The longest event in bytes; a longer one is cut, and marked."),
    Property("keepFields", text, "none", "Which of priority, version, timestamp and hostname stay in the body: `all`, "
             "`none`, or some of them.", "all, none, or a list"),
    Property("clientIPHeader", text, None, "The header that gets the sender's address; none by default."),
    Property("clientHostnameHeader", text, None, "The header that gets the sender's host name; none by default."),
)  # fmt: skip


def _sources(name: str) -> str:
    return f"spillable_stream.flow.sources.{name}"


EXEC = ComponentType(
    Kind.SOURCE,
    "exec",
    ("org.apache.flume.source.ExecSource",),
    _sources("exec:Exec"),
    (
        Property("command", text, None, "The command; its lines are the events.", "a command", required=True),
        Property("shell", text, None, "The shell that runs it, as `/bin/sh -c`. Without it the command is split at "
                 "white space, and quotes have no meaning."),
        Property("restart", boolean, False, "Whether a command that ended is started again."),
        Property("restartThrottle", milliseconds(0), 10_000, "The wait before a restart, in milliseconds."),
        Property("logStdErr", boolean, False, "Whether what the command prints to standard error is logged."),
        Property("batchSize", integer(1), 20, "The most lines of a batch."),
        Property("batchTimeout", milliseconds(0), 3000, "How long a batch waits for more lines, in milliseconds."),
        Property("charset", text, "UTF-8", "The character set of the lines.", "a character set"),
    ),
    batch_property="batchSize",
)  # fmt: skip

SPOOLDIR = ComponentType(
    Kind.SOURCE,
    "spooldir",
    ("org.apache.flume.source.SpoolDirectorySource",),
    _sources("spooldir:SpoolDir"),
    (
        Property("spoolDir", text, None, "The directory whose files are read.", "a directory", required=True),
        Property("fileSuffix", text, ".COMPLETED", "The suffix that a file gets once it is read."),
        Property("deletePolicy", one_of("never", "immediate"), "never", "Whether a file is removed once it is read."),
        Property("fileHeader", boolean, False, "Whether events get the file's path as a header."),
        Property("fileHeaderKey", text, "file", "The name of that header."),
        Property("basenameHeader", boolean, False, "Whether events get the file's name as a header."),
        Property("basenameHeaderKey", text, "basename", "The name of that header."),
        Property("includePattern", text, "^.*$", "Which files are read, by their whole name.", "a regular expression"),
        Property("ignorePattern", text, "^$", "Which of them are not.", "a regular expression"),
        Property("trackerDir", text, ".flumespool", "Where it records what was read; relative to `spoolDir`.",
                 "a directory"),
        Property("trackingPolicy", one_of("rename", "tracker_dir"), "rename", "Whether a file is renamed once it is "
                 "read, or recorded in `trackerDir`."),
        Property("consumeOrder", one_of("oldest", "youngest", "random"), "oldest", "Which file is read next."),
        Property("pollDelay", milliseconds(0), 500, "The wait before the directory is listed again, in milliseconds."),
        Property("recursiveDirectorySearch", boolean, False, "Whether subdirectories are read too."),
        Property("maxBackoff", milliseconds(0), 4000, "The longest wait for a full channel, in milliseconds."),
        Property("batchSize", integer(1), 100, "The most events of a batch."),
        Property("inputCharset", text, "UTF-8", "The character set of the files.", "a character set"),
        Property("decodeErrorPolicy", one_of("FAIL", "REPLACE", "IGNORE"), "FAIL", "What happens to bytes that are not "
                 "in the character set."),
        Property("deserializer", text, "LINE", "How a file becomes events: a line each, or the whole file.",
                 "LINE or BlobDeserializer"),
        Property("deserializer.maxLineLength", integer(1), 2048, "Longer lines are cut into several events."),
        Property("deserializer.outputCharset", text, "UTF-8", "The character set of the bodies.", "a character set"),
        Property("deserializer.maxBlobLength", size(1), 100_000_000, "Larger files, in bytes, are cut into several "
                 "events."),
    ),
    renamed={"bufferMaxLineLength": "deserializer.maxLineLength"},
    unused={
        "bufferMaxLines": "Flume 1.4 took it away",
        "batchDurationMillis": "spooldir has no such property",
    },
    batch_property="batchSize",
    numbered=True,
)  # fmt: skip

TAILDIR = ComponentType(
    Kind.SOURCE,
    "taildir",
    ("org.apache.flume.source.taildir.TaildirSource",),
    _sources("taildir:TailDir"),
    (
        Property("filegroups", word_list, None, "The names of the groups of files.", "names", required=True,
                 keyword="listed_filegroups"),
        Property("filegroups.*", text, None, "A group's files: a directory, and a regular expression for their "
                 "names.", "a path", required=True),
        Property("positionFile", text, "~/.flume/taildir_position.json", "Where it records how far files were read.",
                 "a file"),
        Property("headers.*.*", text, None, "A header of the events of a group of files: `headers.GROUP.KEY`."),
        Property("byteOffsetHeader", boolean, False, "Whether events get their place in the file, as the header "
                 "`byteoffset`."),
        Property("skipToEnd", boolean, False, "Whether a file that is not in the position file is read from its end."),
        Property("idleTimeout", milliseconds(0), 120_000, "After how many milliseconds without a new line a file is "
                 "closed."),
        Property("writePosInterval", milliseconds(1), 3000, "How often the position file is written, in milliseconds."),
        Property("batchSize", integer(1), 100, "The most events of a batch."),
        Property("maxBatchCount", integer(1, MOST_LONG), MOST_LONG, "The most batches that a file gives in a row "
                 "while others wait."),
        Property("cachePatternMatching", boolean, True, "Whether the directory is listed only when it has changed."),
        Property("fileHeader", boolean, False, "Whether events get the file's path as a header."),
        Property("fileHeaderKey", text, "file", "The name of that header."),
        *_POLLED,
    ),
    batch_property="batchSize",
    numbered=True,
)  # fmt: skip

NETCAT = ComponentType(
    Kind.SOURCE,
    "netcat",
    ("org.apache.flume.source.NetcatSource",),
    _sources("netcat:Netcat"),
    (
        Property("bind", text, None, "The address to listen on.", "an address", required=True),
        Property("port", _port, None, "The port to listen on.", required=True),
        Property("max-line-length", integer(1), 512, "The longest line in characters, its end included."),
        Property("ack-every-event", boolean, True, "Whether each stored line is answered with `OK`."),
        Property("encoding", text, "utf-8", "The character set of the lines.", "a character set"),
    ),
)

NETCATUDP = ComponentType(
    Kind.SOURCE,
    "netcatudp",
    ("org.apache.flume.source.NetcatUdpSource",),
    _sources("netcat_udp:NetcatUdp"),
    (
        Property("bind", text, "0.0.0.0", "The address to listen on.", "an address"),
        Property("port", _port, None, "The port to listen on.", required=True),
        Property("remoteAddress", text, None, "The header that gets the sender's address; none by default."),
    ),
)

SYSLOGTCP = ComponentType(
    Kind.SOURCE,
    "syslogtcp",
    ("org.apache.flume.source.SyslogTcpSource",),
    _sources("syslog:SyslogTcp"),
    (Property("port", _port, None, "The port to listen on.", required=True), *_SYSLOG, *_TLS),
    unused=_JAVA_TLS,
)

SYSLOGUDP = ComponentType(
    Kind.SOURCE,
    "syslogudp",
    ("org.apache.flume.source.SyslogUDPSource",),
    _sources("syslog:SyslogUdp"),
    (Property("port", _port, None, "The port to listen on.", required=True), *_SYSLOG),
)


def _ports(value: str) -> tuple[int, ...]:
    ports = tuple(_port(port) for port in word_list(value))
    if len(set(ports)) < len(ports):
        raise ValueError
    return ports


MULTIPORT_SYSLOGTCP = ComponentType(
    Kind.SOURCE,
    "multiport_syslogtcp",
    ("org.apache.flume.source.MultiportSyslogTCPSource",),
    _sources("syslog:MultiportSyslogTcp"),
    (
        Property("ports", _ports, None, "The ports to listen on.", "ports, separated by white space", required=True),
        *_SYSLOG,
        Property("batchSize", integer(1), 100, "The most events of a batch."),
        Property("portHeader", text, None, "The header that gets the port; none by default."),
        Property("charset.default", text, "UTF-8", "The character set of the lines.", "a character set"),
        Property("charset.port.*", text, None, "The character set of a port's lines: `charset.port.PORT`.",
                 "a character set"),
        *_TLS,
    ),
    unused={
        **_JAVA_TLS,
        "numProcessors": "one loop reads all connections",
        "readBufferBytes": "a read takes what there is",
        "readBufferSize": "a read takes what there is",
    },
    batch_property="batchSize",
)  # fmt: skip

HTTP = ComponentType(
    Kind.SOURCE,
    "http",
    ("org.apache.flume.source.http.HTTPSource",),
    _sources("http:Http"),
    (
        Property("bind", text, "0.0.0.0", "The address to listen on.", "an address"),
        Property("port", _port, None, "The port to listen on.", required=True),
        Property("handler", text, "org.apache.flume.source.http.JSONHandler", "How a request becomes events: Flume's "
                 "JSONHandler or BLOBHandler, or a class.", "a class"),
        Property("handler.*", text, None, "A property of the handler.", keyword="handler_properties"),
        *_TLS,
    ),
    renamed={"enableSSL": "ssl", "keystorePassword": "keystore-password"},
    unused={
        **_JAVA_TLS,
        "excludeProtocols": "the protocols and ciphers are those of Python's ssl module",
        "QueuedThreadPool.*": "the server is not Jetty",
        "HttpConfiguration.*": "the server is not Jetty",
        "SslContextFactory.*": "the server is not Jetty",
        "ServerConnector.*": "the server is not Jetty",
    },
)  # fmt: skip

SEQ = ComponentType(
    Kind.SOURCE,
    "seq",
    ("org.apache.flume.source.SequenceGeneratorSource",),
    _sources("seq:Seq"),
    (
        Property("batchSize", integer(1), 1, "The events of a batch."),
        Property("totalEvents", integer(1, MOST_LONG), MOST_LONG, "How many events it creates."),
        *_POLLED,
    ),
    batch_property="batchSize",
)

STRESS = ComponentType(
    Kind.SOURCE,
    "stress",
    ("org.apache.flume.source.StressSource",),
    _sources("stress:Stress"),
    (
        Property("size", size(0), 500, "The bytes of a body."),
        Property("maxTotalEvents", integer(-1, MOST_LONG), -1, "How many events are tried; -1 for no limit.",
                 "an integer"),
        Property("maxSuccessfulEvents", integer(-1, MOST_LONG), -1, "How many events are stored; -1 for no limit.",
                 "an integer"),
        Property("maxEventsPerSecond", integer(0), 0, "The most events per second; 0 for no limit."),
        Property("batchSize", integer(1), 1, "The events of a batch."),
        *_POLLED,
    ),
    batch_property="batchSize",
)  # fmt: skip

_LATER = "it is not supported yet; "


def _unsupported(alias: str, java_name: str, instead: str, *other_names: str) -> ComponentType:
    return ComponentType(Kind.SOURCE, alias, (java_name, *other_names), instead=instead)


SOURCES = (
    EXEC,
    SPOOLDIR,
    TAILDIR,
    NETCAT,
    NETCATUDP,
    SYSLOGTCP,
    SYSLOGUDP,
    MULTIPORT_SYSLOGTCP,
    HTTP,
    SEQ,
    STRESS,
    _unsupported(
        "kafka",
        "org.apache.flume.source.kafka.KafkaSource",
        _LATER + "read the topic with Spark's format `kafka` and write it to the channel with `spillable`, or put "
        "what a consumer of your own reads into the channel with a `Producer`",
    ),
    _unsupported(
        "avro",
        "org.apache.flume.source.AvroSource",
        _LATER + "let the sender post to an `http` source, or put into the channel with a `Producer`; between two "
        "agents of this package a channel in an object store needs no sink and no source",
    ),
    _unsupported(
        "thrift",
        "org.apache.flume.source.ThriftSource",
        "Thrift is not supported; let the sender post to an `http` source, or put into the channel with a `Producer`",
    ),
    _unsupported(
        "jms",
        "org.apache.flume.source.jms.JMSSource",
        "JMS needs Java; put what a client of your broker reads into the channel with a `Producer`",
    ),
    _unsupported(
        "twitter",
        "org.apache.flume.source.twitter.TwitterSource",
        "the interface of Twitter that it used has been shut down",
        "com.cloudera.flume.source.TwitterSource",
    ),
    _unsupported(
        "scribe",
        "org.apache.flume.source.scribe.ScribeSource",
        "Scribe is no longer maintained: let the sender post to an `http` source",
    ),
    _unsupported(
        "embedded",
        "org.apache.flume.agent.embedded.EmbeddedSource",
        "put into the channel from your program with a `Producer`",
    ),
    _unsupported(
        "syslog",
        "org.apache.flume.source.SyslogSource",
        "Flume has no such source: the types are `syslogtcp`, `syslogudp` and `multiport_syslogtcp`",
    ),
    _unsupported(
        "avrolegacy",
        "org.apache.flume.source.avroLegacy.AvroLegacySource",
        "the agents of Flume OG are gone: let the sender post to an `http` source",
    ),
    _unsupported(
        "thriftlegacy",
        "org.apache.flume.source.thriftLegacy.ThriftLegacySource",
        "the agents of Flume OG are gone: let the sender post to an `http` source",
    ),
    _unsupported(
        "sql",
        "org.keedio.flume.source.SQLSource",
        "read the table with Spark's format `jdbc` and write it to the channel with `spillable`, or write a source of "
        "your own in Python",
    ),
)
