from __future__ import annotations

from importlib import import_module

import pytest

from spillable_stream.flow.configuration.options import Kind
from spillable_stream.flow.configuration.registry import find_type
from spillable_stream.flow.configuration.source_types import MULTIPORT_SYSLOGTCP, SOURCES

# Flume's defaults, as its code has them.
DEFAULTS = {
    "exec.batchSize": 20,
    "exec.batchTimeout": 3000,
    "exec.restartThrottle": 10_000,
    "spooldir.batchSize": 100,
    "spooldir.fileSuffix": ".COMPLETED",
    "spooldir.pollDelay": 500,
    "spooldir.deserializer.maxLineLength": 2048,
    "taildir.idleTimeout": 120_000,
    "taildir.writePosInterval": 3000,
    "taildir.batchSize": 100,
    "netcat.max-line-length": 512,
    "netcat.ack-every-event": True,
    "syslogudp.eventSize": 2500,
    "syslogtcp.keepFields": "none",
    "multiport_syslogtcp.batchSize": 100,
    "http.bind": "0.0.0.0",
    "seq.batchSize": 1,
    "stress.size": 500,
    "stress.maxEventsPerSecond": 0,
}
SUPPORTED = {
    "exec", "netcat", "netcatudp", "spooldir", "taildir", "seq", "stress", "http", "syslogtcp", "syslogudp",
    "multiport_syslogtcp",
}  # fmt: skip


def test_defaults_are_flumes() -> None:
    found = {f"{t.alias}.{p.name}": p.default for t in SOURCES for p in t.properties}
    assert {name: found[name] for name in DEFAULTS} == DEFAULTS


def test_every_source_of_flumes_runs_or_is_known_not_to() -> None:
    assert {t.alias for t in SOURCES if t.supported} == SUPPORTED
    assert {"kafka", "avro", "thrift", "jms", "twitter", "scribe"} <= {t.alias for t in SOURCES if not t.supported}


def test_ports_are_different_and_separated_by_blanks() -> None:
    ports = MULTIPORT_SYSLOGTCP.plain("ports")
    assert ports.parse("5140  5141") == (5140, 5141)
    for wrong in ("5140 5140", "5140,5141", "70000"):
        with pytest.raises(ValueError):
            ports.parse(wrong)


def test_kafka_and_avro_come_later_and_say_so_and_twitters_classes_are_known() -> None:
    later = {t.alias for t in SOURCES if t.instead.startswith("it is not supported yet; ")}
    assert later == {"kafka", "avro"}
    for name in ("twitter", "org.apache.flume.source.twitter.TwitterSource", "com.cloudera.flume.source.TwitterSource"):
        found = find_type(Kind.SOURCE, name)
        assert found is not None and "has been shut down" in found.instead


def test_those_sources_are_numbered_whose_classes_are() -> None:
    for source in SOURCES:
        if source.supported:
            module, _, name = source.implementation.partition(":")
            assert getattr(getattr(import_module(module), name), "numbered", False) == source.numbered, source.alias
