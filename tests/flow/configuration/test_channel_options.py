from __future__ import annotations

import pytest

from spillable_stream.flow.configuration.channel_options import flume_option, own_options
from spillable_stream.flow.configuration.options import Kind
from spillable_stream.flow.configuration.registry import find_type
from spillable_stream.option_names import keyword_of
from spillable_stream.options import CHANNEL, CREATION, HANDLE, OPTIONS

_SAID_BY_THE_TYPE = {
    "memory": {
        "memoryCapacity",
        "overflowCapacity",
        "overflowTimeout",
        "overflowDeactivationThreshold",
        "avgEventSize",
        "keepAlive",
        "checkpointDir",
        "dataDirs",
        "backupCheckpointDir",
    },
    "file": {
        "memoryCapacity",
        "byteCapacity",
        "byteCapacityBufferPercentage",
        "avgEventSize",
        "overflowCapacity",
        "overflowTimeout",
        "overflowDeactivationThreshold",
        "keepAlive",
    },
    "SPILLABLEMEMORY": set(),
}


@pytest.mark.parametrize("kind", _SAID_BY_THE_TYPE)
def test_every_option_of_a_channel_is_a_property_or_said_by_the_type(kind: str) -> None:
    """``capacity`` and ``keep-alive`` are Flume's names of two; ``memory`` has no files, and ``file`` no memory."""
    known = find_type(Kind.CHANNEL, kind)
    assert known is not None
    options = {option.name for option in OPTIONS if {CHANNEL, CREATION, HANDLE} & set(option.scopes)}
    assert options - {p.name for p in known.properties} == _SAID_BY_THE_TYPE[kind]
    assert all(known.keyword(known.plain(name)) == keyword_of(name) for name in options - _SAID_BY_THE_TYPE[kind])


def test_a_property_takes_what_the_option_takes_and_refuses_the_rest() -> None:
    (retention,) = own_options("retentionMs")
    assert (retention.parse("3600000"), retention.parse("1h")) == (3_600_000, 3_600_000)
    assert "A property of this package, not of Flume's." in retention.doc
    keep_alive = flume_option("keep-alive", 3, "How long.")
    assert (keep_alive.parse("5"), keep_alive.parse("1m"), keep_alive.default) == (5, 60, 3)
    for known, value in (retention, "500"), (retention, "soon"), (keep_alive, "-1"), (keep_alive, "1e400"):
        with pytest.raises(ValueError):
            known.parse(value)


def test_a_directory_stays_as_it_is_given_and_is_not_an_address() -> None:
    (spool,) = own_options("spool")
    assert spool.parse("~/spool") == "~/spool"
    with pytest.raises(ValueError):
        spool.parse("s3://bucket/spool")
