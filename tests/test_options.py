from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import Channel
from spillable_stream.errors import OptionError
from spillable_stream.option_types import ChannelOptions
from spillable_stream.options import (
    BATCH,
    CHANNEL,
    CREATION,
    HANDLE,
    OPTIONS,
    PRODUCER,
    SINK,
    SOURCE,
    defaults,
    parse_options,
)

EVERY = (BATCH, CHANNEL, CREATION, HANDLE, PRODUCER, SOURCE, SINK)


def parse(**given: Any) -> dict[str, Any]:
    return parse_options(given, EVERY, where="a test")


@pytest.mark.parametrize("name", ["overflowCapacity", "overflow_capacity", "OVERFLOWCAPACITY", "overflow-capacity"])
def test_names_are_compared_without_case_and_separators(name: str) -> None:
    assert parse_options({name: "5"}, [CHANNEL], where="a channel") == {"overflow_capacity": 5}


@pytest.mark.parametrize("option", OPTIONS, ids=lambda o: o.name)
def test_every_option_takes_its_own_default_and_says_what_it_does(option: Any) -> None:
    assert option.doc.endswith(".") and option.range and set(option.scopes) <= set(EVERY)
    if option.default is None:
        assert parse(**{option.name: None}) == {}
    else:
        assert parse(**{option.name: option.default}) == {option.keyword: option.default}
        assert parse(**{option.name: str(option.default)}) == {option.keyword: option.default}


@pytest.mark.parametrize("option", OPTIONS, ids=lambda o: o.name)
def test_every_option_refuses_nonsense_and_names_its_range(option: Any) -> None:
    for bad in ("", "\0", -1, [], {}):
        try:
            parse(**{option.name: bad})
        except OptionError as e:
            assert str(e) == f"{option.name} must be {option.range}, not {bad!r}"
            break
    else:
        raise AssertionError("nothing is refused")


@pytest.mark.parametrize("name", ["memoryDir", "dataDirs", "checkpointDir", "backupCheckpointDir", "spool", "cacheDir"])
@pytest.mark.parametrize(("begins", "rest"), [("~", "/d"), ("$HOME", "/d")])
def test_a_directory_that_only_a_shell_understands_is_refused(name: str, begins: str, rest: str) -> None:
    with pytest.raises(OptionError, match=rf"{name} must be .*; only a shell replaces {re.escape(begins)}, so give os"):
        parse(**{name: begins + rest})


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("overflowCapacity", "1_000", 1000),
        ("compression", "ZSTD", "zstd"),
        ("startingOffsets", "Latest", "latest"),
        ("startingOffsets", 17, "17"),
        ("group", "my-group_1.x", "my-group_1.x"),
        ("group", "群" * 80, "群" * 80),
        ("buckets", "64", 64),
        ("shards", "256", 256),
        ("shardBy", "customer, region", ["customer", "region"]),
        ("max_block_ms", -1, -1),
    ],
)
def test_values_are_parsed(name: str, value: Any, expected: Any) -> None:
    assert list(parse(**{name: value}).values()) == [expected]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("transactionCapacity", 0),
        ("overflowCapacity", -1),
        ("overflowCapacity", 2**63),
        ("keepAlive", -0.1),
        ("compression", "gzip"),
        ("group", "a/b"),
        ("group", "g" * 129),
        ("group", "群" * 81),
        ("startingOffsets", "-1"),
        ("startingOffsets", str(2**63)),
        ("maxFileSize", 2**40 + 1),
        ("buckets", 48),
        ("shards", 0),
        ("shards", 257),
        ("buckets", 1024),
        ("max_block_ms", -2),
        ("batch_count_threshold", 40_961),
        ("batch_size_threshold_in_bytes", 2**23 + 1),
    ],
)
def test_values_out_of_range_are_refused(name: str, value: Any) -> None:
    with pytest.raises(OptionError, match=f"^{name} must be "):
        parse(**{name: value})


def test_an_unknown_name_gets_the_nearest_valid_one() -> None:
    with pytest.raises(
        OptionError, match=r"'maxEventsPerTriger' is not an option of .*; the nearest is 'maxEventsPerTrigger"
    ):
        parse_options({"maxEventsPerTriger": 1}, [SOURCE], where="a Spark source")


@pytest.mark.parametrize(
    ("scopes", "given", "nearest"),
    [
        ([CHANNEL, CREATION], "keep_alve", "keep_alive"),
        ([CHANNEL, CREATION], "memoryCapcity", "memoryCapacity"),
        ([CHANNEL, CREATION], "compress", "compression"),
        ([CHANNEL, CREATION], "dataDir", "dataDirs"),
        ([CHANNEL, CREATION], "retentionDays", "retentionMs"),
        ([SOURCE], "groupId", "group"),
        ([SOURCE], "startOffset", "startingOffsets"),
        ([SOURCE], "minPartition", "minPartitions"),
        ([SOURCE], "onCorrupt", "onCorruption"),
        ([SINK, CHANNEL, CREATION], "txnVer", "txnVersion"),
        ([SINK, CHANNEL, CREATION], "shardKey", "shardBy"),
        ([PRODUCER], "linger", "linger_ms"),
        ([PRODUCER], "codec", ""),
        ([PRODUCER], "acks", ""),
        ([PRODUCER], "token", ""),
        ([PRODUCER], "batchSize", "batch_size_threshold_in_bytes"),
        ([SOURCE], "subscribe", ""),
        ([SOURCE], "maxRows", ""),
        ([SOURCE], "consumerGroup", ""),
        ([SINK, CHANNEL, CREATION], "dirs", "data_dirs"),
        ([SINK, CHANNEL, CREATION], "headers", ""),
        ([SINK, CHANNEL, CREATION], "maxEvents", ""),
        ([SINK, CHANNEL, CREATION], "partitions", ""),
        ([SINK, CHANNEL, CREATION], "url", ""),
    ],
)
def test_a_name_that_is_like_none_gets_no_advice(scopes: list[str], given: str, nearest: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse_options({given: 1}, scopes, where="a test")
    _, _, found = str(refused.value).partition("the nearest is ")
    assert found.strip("'") == nearest


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("retention", "the nearest are 'retention_ms', 'retention_bytes' and 'retention_untaken'"),
        ("read_only", "the nearest is 'readonly'"),
        ("nosuch", "is not an option of a channel, which has transaction_capacity, memory_capacity, "),
        ("pat", "is not an option of a channel, which has transaction_capacity, "),
    ],
)
def test_an_unknown_name_gets_all_that_it_may_mean_or_every_name_that_there_is(given: str, said: str) -> None:
    with pytest.raises(OptionError, match=re.escape(said)):
        parse_options({given: 1}, [CHANNEL, CREATION], where="a channel", beside=["readonly", "schema"])


def test_a_channel_names_its_own_arguments_too(path: Path) -> None:
    with pytest.raises(OptionError, match="'read_only' is not an option of a channel; the nearest is 'readonly'"):
        Channel(path, read_only=True)  # type: ignore[call-arg]
    with pytest.raises(OptionError, match=r"'capacity' is not an option .*'memory_capacity'.* and 'overflow_capacity'"):
        Channel(path, capacity=5)  # type: ignore[call-arg]


def test_a_misplaced_name_is_told_where_it_belongs() -> None:
    with pytest.raises(OptionError, match="group is not an option of a channel but of a streaming source or a b"):
        parse_options({"group": "g"}, [CHANNEL], where="a channel")


@pytest.mark.parametrize("where", ["a Spark sink", "a Spark source", "a producer"])
def test_an_option_of_a_handle_is_refused_elsewhere_in_a_sentence_that_says_why(where: str) -> None:
    with pytest.raises(
        OptionError, match=f"durability is not an option of {where} but of a handle.*commits them there"
    ):
        parse_options({"durability": "local"}, [SINK, SOURCE, PRODUCER, CHANNEL, CREATION], where=where)


def test_an_option_error_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="compression"):
        parse(compression="x")


def test_names_are_unique_and_keywords_are_snake_case() -> None:
    keywords = [o.keyword for o in OPTIONS]
    assert len(set(keywords)) == len(keywords)
    assert all(k == k.lower() for k in keywords)


def test_a_scope_has_its_defaults() -> None:
    for scope in EVERY:
        assert set(defaults(scope)) == {o.keyword for o in OPTIONS if scope in o.scopes}


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("retentionMs", 999, "milliseconds, or a number with ms, s, m, h or d; 1,000 or more, or 0"),
        ("retentionMs", -1, "milliseconds, or a number with ms, s, m, h or d; 1,000 or more, or 0"),
        ("retentionMs", 1 << 62, "milliseconds, or a number with ms, s, m, h or d; 1,000 or more, or 0"),
        ("retentionBytes", 1_048_575, "bytes, or a number with KiB, MiB, GiB or TiB; 2^20 or more, or 0"),
        ("retentionBytes", -1, "bytes, or a number with KiB, MiB, GiB or TiB; 2^20 or more, or 0"),
        ("retentionUntaken", "both", "keep or drop"),
        ("autoGroupTtl", 0.5, "seconds, or a number with ms, s, m, h or d; a second or more"),
        ("autoGroupTtl", -1, "seconds, or a number with ms, s, m, h or d; a second or more"),
    ],
)
def test_what_cannot_be_kept_is_refused_in_a_sentence_and_nothing_is_changed(
    path: Path, name: str, value: Any, said: str
) -> None:
    with Channel(path, retention_ms=5000) as channel:
        before = channel.options
    for create in (True, False):
        with pytest.raises(OptionError, match=name) as caught:
            Channel(path, create=create, **{name: value})
        assert said in str(caught.value) and len(str(caught.value)) < 200
    with Channel(path) as channel:
        assert channel.options == before


@pytest.mark.parametrize("option", OPTIONS, ids=lambda o: o.name)
def test_a_number_above_what_an_option_takes_is_refused_with_the_most(option: Any) -> None:
    """What an option is says often the least only."""
    if option.parsed_type not in ("int", "float"):
        return
    with pytest.raises(OptionError, match=r"; the most is [\d,]+"):
        parse(**{option.name: 1 << 63})


@pytest.mark.parametrize(
    ("name", "value", "most"),
    [
        ("keepAlive", "36526d", "3,155,760,000 s, a century"),
        ("deliverAfter", "36000d", "31,622,400 s, a year"),
        ("startingTimestamp", 1_795_000_000_000_000, "253,402,300,799,999 ms, the end of the year 9999"),
    ],
)
def test_the_most_that_an_option_of_time_takes_has_a_unit(name: str, value: object, most: str) -> None:
    with pytest.raises(OptionError, match=f"; the most is {most}$"):
        parse(**{name: value})


@pytest.mark.parametrize("name", ["retentionMs", "retentionBytes", "retentionUntaken", "autoGroupTtl"])
def test_options_that_came_later_are_stored_where_they_are_not_at_their_default(path: Path, name: str) -> None:
    (option,) = [o for o in OPTIONS if o.name == name]
    assert not option.stored_at_default
    assert option.keyword not in ChannelOptions().image()


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({"keepAlive": "soon"}, "keep_alive"),
        ({"keep_alive": 1, "keepAlive": 2}, "keep_alive"),
        ({"maxEventsPerTrigger": 5}, "max_events_per_trigger"),
        ({"keepAlife": 5}, "keepAlife"),
    ],
)
def test_a_refusal_names_its_option(given: dict[str, object], option: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_options(given, [CHANNEL], where="a channel")
    assert caught.value.option == option
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again), again.option) == (OptionError, str(caught.value), option)


def test_an_offset_that_is_nested_too_deep_is_refused() -> None:
    with pytest.raises(OptionError, match=r"^startingOffsets must be earliest") as caught:
        parse_options({"startingOffsets": '{"writeOrderId": ' + "[" * 100_000}, [SOURCE], where="a read")
    assert len(str(caught.value)) < 1000
