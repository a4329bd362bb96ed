from __future__ import annotations

import pytest

from spillable_stream.errors import OptionError
from spillable_stream.flow.sinks.serializers import serializer
from spillable_stream.flow.sources.event_columns import events_of

BATCH = events_of([b"0", b"1", b"", b"3"], [{}, {"a": "1", "b": "2"}, {}, {}])


@pytest.mark.parametrize(
    ("name", "properties", "expected"),
    [
        ("TEXT", {}, b"1\n\n"),
        ("text", {"appendNewline": "false"}, b"1"),
        ("HEADER_AND_TEXT", {}, b"{a=1, b=2} 1\n{} \n"),
        ("org.apache.flume.serialization.BodyTextEventSerializer$Builder", {}, b"1\n\n"),
    ],
)
def test_events_become_text(name: str, properties: dict[str, str], expected: bytes) -> None:
    assert bytes(serializer(name, properties).encode(BATCH.slice(1, 2))) == expected


def test_no_event_is_not_a_byte() -> None:
    assert bytes(serializer("TEXT").encode(BATCH.slice(4))) == b""


class Lengths:
    def __init__(self, unit: str) -> None:
        self.unit = unit

    def encode(self, batch: object) -> bytes:
        return self.unit.encode()


def test_a_serializer_can_be_a_class_of_ones_own() -> None:
    assert serializer(f"{__name__}:Lengths", {"unit": "B"}).encode(BATCH) == b"B"
    with pytest.raises(OptionError, match="unexpected"):
        serializer(f"{__name__}:Lengths", {"units": "B"})


@pytest.mark.parametrize("name", ["avro_event", "org.apache.flume.sink.hdfs.AvroEventSerializer$Builder"])
def test_the_serializer_that_is_not_here_is_refused_with_the_way_out(name: str) -> None:
    with pytest.raises(OptionError, match="is not supported; use a sink of type parquet"):
        serializer(name)
    with pytest.raises(OptionError, match="there is no serializer 'json'; give TEXT"):
        serializer("json")
