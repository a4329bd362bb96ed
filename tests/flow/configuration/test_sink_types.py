from __future__ import annotations

from spillable_stream.flow.configuration.sink_types import HDFS, PARQUET, SINKS, SPARK_SINK

DEFAULTS = {
    "logger.maxBytesToLog": 16,
    "null.batchSize": 100,
    "file_roll.sink.rollInterval": 30,
    "file_roll.sink.batchSize": 100,
    "hdfs.hdfs.filePrefix": "FlumeData",
    "hdfs.hdfs.inUseSuffix": ".tmp",
    "hdfs.hdfs.rollInterval": 30,
    "hdfs.hdfs.rollSize": 1024,
    "hdfs.hdfs.rollCount": 10,
    "hdfs.hdfs.batchSize": 100,
    "hdfs.hdfs.fileType": "SequenceFile",
    "hdfs.hdfs.maxOpenFiles": 5000,
    "http.requestTimeout": 5000,
    "http.defaultRollback": True,
}


def test_defaults_are_flumes() -> None:
    found = {f"{t.alias}.{p.name}": p.default for t in SINKS for p in t.properties}
    assert {name: found[name] for name in DEFAULTS} == DEFAULTS


def test_files_of_parquet_are_large_by_default() -> None:
    rolls = {p.name: p.default for p in PARQUET.properties if p.name.startswith("hdfs.roll")}
    assert rolls == {"hdfs.rollInterval": 300, "hdfs.rollSize": 128 << 20, "hdfs.rollCount": 0}


def test_every_sink_of_flumes_runs_or_is_known_not_to() -> None:
    supported = {"logger", "null", "file_roll", "hdfs", "parquet", "http", "channel", "spark"}
    assert {t.alias for t in SINKS if t.supported} == supported
    others = {"kafka", "avro", "thrift", "elasticsearch", "hbase", "hive", "kudu", "irc", "morphline_solr"}
    assert others <= {t.alias for t in SINKS if not t.supported}


def test_sparks_pull_sink_is_nothing_that_runs() -> None:
    assert SPARK_SINK.supported and not SPARK_SINK.implementation and not SPARK_SINK.properties


def test_words_of_hdfs_are_compared_without_case() -> None:
    assert HDFS.plain("hdfs.fileType").parse("datastream") == "DataStream"
    assert HDFS.plain("hdfs.writeFormat").parse("TEXT") == "Text"


def test_kafka_and_avro_come_later_and_say_so() -> None:
    assert {t.alias for t in SINKS if t.instead.startswith("it is not supported yet; ")} == {"kafka", "avro"}
