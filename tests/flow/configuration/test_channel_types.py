from __future__ import annotations

from spillable_stream.flow.configuration.channel_types import CHANNELS, FILE, MEMORY, SPILLABLE_MEMORY


def test_defaults_are_flumes() -> None:
    assert [MEMORY.plain(n).default for n in ("capacity", "transactionCapacity", "keep-alive")] == [100, 100, 3]
    assert [FILE.plain(n).default for n in ("capacity", "transactionCapacity", "keep-alive")] == [10**6, 10_000, 3]
    names = ("memoryCapacity", "overflowCapacity", "overflowTimeout", "avgEventSize", "transactionCapacity")
    assert [SPILLABLE_MEMORY.plain(n).default for n in names] == [10_000, 10**8, 3, 500, 10_000]


def test_kafka_and_jdbc_channels_name_the_way_out() -> None:
    assert {t.alias for t in CHANNELS if not t.supported} == {"kafka", "jdbc", "pseudotxnmemory"}


def test_a_channel_may_be_anywhere_by_a_property_of_this_package() -> None:
    assert all(t.find("path") for t in (MEMORY, FILE, SPILLABLE_MEMORY))
