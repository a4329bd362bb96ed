"""Every type of sink that Flume has, with its properties and defaults."""

from __future__ import annotations

from dataclasses import replace

from spillable_stream.flow.configuration.options import (
    MOST_LONG,
    ComponentType,
    Kind,
    Leniency,
    Property,
    boolean,
    integer,
    milliseconds,
    one_of,
    seconds,
    size,
    text,
)

__all__ = ["SINKS", "SPARK_SINK"]


def _sinks(name: str) -> str:
    return f"spillable_stream.flow.sinks.{name}"


LOGGER = ComponentType(
    Kind.SINK,
    "logger",
    ("org.apache.flume.sink.LoggerSink",),
    _sinks("logger:Logger"),
    (Property("maxBytesToLog", size(0), 16, "How many bytes of a body are logged.", lenient=Leniency.ANY),),
)

NULL = ComponentType(
    Kind.SINK,
    "null",
    ("org.apache.flume.sink.NullSink",),
    _sinks("null:Null"),
    (
        Property("batchSize", integer(1), 100, "The most events of a take."),
        Property("logEveryNEvents", integer(1), 10_000, "After how many events it logs their number."),
    ),
    batch_property="batchSize",
)

FILE_ROLL = ComponentType(
    Kind.SINK,
    "file_roll",
    ("org.apache.flume.sink.RollingFileSink",),
    _sinks("file_roll:FileRoll"),
    (
        Property("sink.directory", text, None, "The directory of the files.", "a directory", required=True),
        Property("sink.rollInterval", seconds(0), 30, "After how many seconds a new file begins; 0 for never."),
        Property("sink.serializer", text, "TEXT", "How an event is written.", "TEXT, HEADER_AND_TEXT or a class"),
        Property("sink.serializer.appendNewline", boolean, True, "Whether a line end follows each body."),
        Property("sink.batchSize", integer(1), 100, "The most events of a take."),
        Property("sink.pathManager", text, "DEFAULT", "How files are named: `DEFAULT` by the start of the agent and a "
                 "number, `ROLLTIME` by the time at which the file began.", "DEFAULT or ROLLTIME"),
        Property("sink.pathManager.prefix", text, "", "What the names begin with."),
        Property("sink.pathManager.extension", text, "", "The extension of the names."),
    ),
    prefix="sink.",
    batch_property="sink.batchSize",
    durable=True,
)  # fmt: skip

_CODECS = ("gzip", "bzip2", "snappy", "lz4", "zstd", "deflate")
_SAME_CODECS = {"default": "deflate", "zstandard": "zstd"}


def codec(value: str) -> str:
    """Return a codec by its name, or by that of Hadoop's class, in full or not.

    Raises:
        ValueError: it is none of those that are there.
    """
    name = value.rpartition(".")[2].lower().removesuffix("codec")
    return one_of(*_CODECS)(_SAME_CODECS.get(name, name))


_BUCKETS = (
    Property("hdfs.path", text, None, "The directory, with escapes such as `%Y` and `%{header}`.", "a path",
             required=True),
    Property("hdfs.filePrefix", text, "FlumeData", "What the names of the files begin with."),
    Property("hdfs.fileSuffix", text, "", "What they end with; by default the codec's extension."),
    Property("hdfs.inUsePrefix", text, "", "What the name of a file begins with while it is written."),
    Property("hdfs.inUseSuffix", text, ".tmp", "What the name of a file ends with while it is written."),
    Property("hdfs.emptyInUseSuffix", boolean, False, "Whether it has no such suffix. A file that counts when it is "
             "closed is hidden then while it is written."),
    Property("hdfs.rollInterval", seconds(0, MOST_LONG), 30, "After how many seconds a new file begins; 0 for never."),
    Property("hdfs.rollSize", size(0, MOST_LONG), 1024, "After how many bytes of bodies a new file begins; 0 for "
             "never."),
    Property("hdfs.rollCount", integer(0, MOST_LONG), 10, "After how many events a new file begins; 0 for never."),
    Property("hdfs.idleTimeout", seconds(0), 0, "After how many seconds without an event a file is closed; 0 for "
             "never."),
    Property("hdfs.batchSize", integer(1, MOST_LONG), 100, "The most events of a take."),
    Property("hdfs.round", boolean, False, "Whether the time in the path is rounded down."),
    Property("hdfs.roundValue", integer(1), 1, "To a multiple of how many units."),
    Property("hdfs.roundUnit", one_of("second", "minute", "hour"), "second", "The unit."),
    Property("hdfs.timeZone", text, None, "The time zone of the path; by default the host's.", "a time zone"),
    Property("hdfs.useLocalTimeStamp", boolean, False, "Whether the time is that of the sink, and not the header "
             "`timestamp`."),
    Property("hdfs.maxOpenFiles", integer(1), 5000, "The most files that are open; the one that was written first is "
             "closed."),
    Property("hdfs.closeTries", integer(0), 0, "How often the renaming of a file is tried; 0 for no limit."),
    Property("hdfs.retryInterval", seconds(0, MOST_LONG), 180, "The wait between two such tries, in seconds."),
)  # fmt: skip

_HADOOP = {
    "hdfs.callTimeout": "calls have the time that the file system gives them",
    "hdfs.threadsPoolSize": "a sink writes its files in one thread",
    "hdfs.rollTimerPoolSize": "files are rolled by the sink's own thread",
    "hdfs.minBlockReplicas": "the file system decides about replicas",
    "hdfs.txnEventMax": "Flume took it away: it is `hdfs.batchSize`",
    "hdfs.maxBlockReplicas": "Flume has no such property",
    "hdfs.kerberosPrincipal": "log in with kinit before the agent starts",
    "hdfs.kerberosKeytab": "log in with kinit before the agent starts",
    "hdfs.proxyUser": "the agent writes as the user that it runs as",
    "hdfs.fsType": "the scheme of `hdfs.path` says it",
}

HDFS = ComponentType(
    Kind.SINK,
    "hdfs",
    ("org.apache.flume.sink.hdfs.HDFSEventSink",),
    _sinks("hdfs:Hdfs"),
    (
        *_BUCKETS,
        Property("hdfs.fileType", one_of("SequenceFile", "DataStream", "CompressedStream"), "SequenceFile",
                 "The format of the files."),
        Property("hdfs.codeC", codec, None, "How a CompressedStream or a SequenceFile is compressed.",
                 ", ".join(_CODECS), keyword="codec"),
        Property("hdfs.writeFormat", one_of("Writable", "Text"), "Writable", "The values of a SequenceFile."),
        Property("serializer", text, "TEXT", "How an event is written in a DataStream or CompressedStream.",
                 "TEXT, HEADER_AND_TEXT or a class"),
        Property("serializer.*", text, None, "A property of the serializer: `serializer.appendNewline`.",
                 keyword="serializer_properties"),
    ),
    prefix="hdfs.",
    unused=_HADOOP,
    batch_property="hdfs.batchSize",
    durable=True,
)  # fmt: skip

_PARQUET_ROLLS = {"hdfs.rollInterval": 300, "hdfs.rollSize": 128 << 20, "hdfs.rollCount": 0}  # Flume has no such sink

PARQUET = ComponentType(
    Kind.SINK,
    "parquet",
    (),
    _sinks("parquet:Parquet"),
    (
        *(
            replace(p, default=_PARQUET_ROLLS.get(p.name, p.default))
            for p in _BUCKETS
            if p.name not in ("hdfs.inUsePrefix", "hdfs.emptyInUseSuffix")
        ),
        Property("compression", one_of("none", "snappy", "gzip", "zstd", "lz4", "brotli"), "zstd",
                 "How the columns are compressed."),
        Property("rowGroupEvents", integer(1), 100_000, "The most events of a row group."),
    ),
    prefix="hdfs.",
    batch_property="hdfs.batchSize",
    durable=True,
)  # fmt: skip


def _status_codes(name: str, default: object, doc: str) -> Property:
    return Property(f"{name}.*", boolean, default, f"{doc}: `{name}.CODE`, where CODE is `404` or `4XX`.")


HTTP = ComponentType(
    Kind.SINK,
    "http",
    ("org.apache.flume.sink.http.HttpSink",),
    _sinks("http:HttpSink"),
    (
        Property("endpoint", text, None, "The address that each event is posted to.", "an http: or https: address",
                 required=True),
        Property("connectTimeout", milliseconds(1), 5000, "How long a connection may take, in milliseconds."),
        Property("requestTimeout", milliseconds(1), 5000, "How long an answer may take, in milliseconds."),
        Property("contentTypeHeader", text, "text/plain", "The requests' Content-Type."),
        Property("acceptHeader", text, "text/plain", "The requests' Accept."),
        Property("defaultBackoff", boolean, True, "Whether it waits after an answer without a setting of its own."),
        Property("defaultRollback", boolean, True, "Whether the event is sent again after such an answer."),
        Property("defaultIncrementMetrics", boolean, False, "Whether such an answer counts as a success."),
        _status_codes("backoff", None, "The same for some answers"),
        _status_codes("rollback", None, "The same for some answers"),
        _status_codes("incrementMetrics", None, "The same for some answers"),
        Property("maxRequests", integer(1, 256), 1, "How many requests may be in flight at once: as many as the server "
                 "answers well. More than 1 gives up the order of the events. Not one of Flume's.", "from 1 to 256"),
    ),
)  # fmt: skip

CHANNEL = ComponentType(
    Kind.SINK,
    "channel",
    (),
    _sinks("channel:ChannelSink"),
    (
        Property(
            "path",
            text,
            None,
            "The channel that events go to: its directory, or its address in a store.",
            "a path",
            required=True,
        ),
        Property("batchSize", integer(1), 10_000, "The most events of a take."),
    ),
    batch_property="batchSize",
    durable=True,
)

SPARK_SINK = ComponentType(
    Kind.SINK,
    "spark",
    ("org.apache.spark.streaming.flume.sink.SparkSink",),
    "",
    unused={
        name: "nothing listens: a Spark query reads the channel itself, with `format(\"spillable\")`"
        for name in ("hostname", "port", "threads", "timeout", "backoffInterval")
    },
)  # fmt: skip

_LATER = "it is not supported yet; "
_QUERY = 'give the channel no sink, read it with Spark\'s `format("spillable")`, and write with '


def _unsupported(alias: str, instead: str, *java_names: str) -> ComponentType:
    return ComponentType(Kind.SINK, alias, java_names, instead=instead)


SINKS = (
    LOGGER,
    NULL,
    FILE_ROLL,
    HDFS,
    PARQUET,
    HTTP,
    CHANNEL,
    SPARK_SINK,
    _unsupported(
        "kafka",
        _LATER + _QUERY + "Spark's format `kafka`, or write a sink of your own in Python",
        "org.apache.flume.sink.kafka.KafkaSink",
        "com.thilinamb.flume.sink.KafkaSink",
        "com.flumekafka.sink.KafkaSink",
    ),
    _unsupported(
        "avro",
        _LATER + "between two agents of this package use a sink of type `channel`, to a channel in an object store, "
        "or a sink of type `http` to a source of type `http`",
        "org.apache.flume.sink.AvroSink",
    ),
    _unsupported(
        "thrift",
        "Thrift is not supported; use a sink of type `http`, or of type `channel`",
        "org.apache.flume.sink.ThriftSink",
    ),
    _unsupported(
        "elasticsearch",
        _QUERY + "the connector of Elasticsearch, or write a sink of your own in Python",
        "org.apache.flume.sink.elasticsearch.ElasticSearchSink",
    ),
    _unsupported(
        "hbase",
        _QUERY + "the connector of HBase, or write a sink of your own in Python",
        "org.apache.flume.sink.hbase.HBaseSink",
    ),
    _unsupported(
        "hbase2",
        _QUERY + "the connector of HBase, or write a sink of your own in Python",
        "org.apache.flume.sink.hbase2.HBase2Sink",
    ),
    _unsupported(
        "asynchbase",
        _QUERY + "the connector of HBase, or write a sink of your own in Python",
        "org.apache.flume.sink.hbase.AsyncHBaseSink",
    ),
    _unsupported(
        "hive",
        _QUERY + "`saveAsTable`, or use a sink of type `parquet` below the table's directory",
        "org.apache.flume.sink.hive.HiveSink",
    ),
    _unsupported("dataset", "use a sink of type `parquet`", "org.apache.flume.sink.kite.DatasetSink"),
    _unsupported(
        "kudu",
        _QUERY + "the connector of Kudu",
        "org.apache.kudu.flume.sink.KuduSink",
        "org.kududb.flume.sink.KuduSink",
    ),
    _unsupported(
        "morphline_solr",
        _QUERY + "the connector of Solr, or write a sink of your own in Python",
        "org.apache.flume.sink.solr.morphline.MorphlineSolrSink",
    ),
    _unsupported("irc", "write a sink of your own in Python", "org.apache.flume.sink.irc.IRCSink"),
)
