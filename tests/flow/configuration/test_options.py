from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from spillable_stream.flow.configuration.options import (
    ComponentType,
    Kind,
    Property,
    boolean,
    comma_list,
    integer,
    milliseconds,
    one_of,
    seconds,
    size,
    snake_case,
    text,
    word_list,
)
from spillable_stream.flow.configuration.registry import TYPES


@pytest.mark.parametrize(
    ("name", "keyword"),
    [
        ("batchSize", "batch_size"),
        ("max-line-length", "max_line_length"),
        ("useIP", "use_ip"),
        ("clientIPHeader", "client_ip_header"),
        ("logEveryNEvents", "log_every_n_events"),
        ("deserializer.maxLineLength", "deserializer_max_line_length"),
        ("maxpenalty", "maxpenalty"),
    ],
)
def test_a_keyword_is_the_name_in_snake_case(name: str, keyword: str) -> None:
    assert snake_case(name) == keyword


def test_words_are_separated_by_what_is_blank_to_java() -> None:
    assert word_list(" c1 \t c2\x0bc3\n") == ("c1", "c2", "c3")
    assert word_list("c1\N{NO-BREAK SPACE}c2") == ("c1\N{NO-BREAK SPACE}c2",)


def test_a_comma_list_has_no_empty_parts() -> None:
    assert comma_list("/a, /b,,/c ,") == ("/a", "/b", "/c")


@pytest.mark.parametrize("value", ["", "1.0", "1_000", "0x10", "ten", "-1", "11", "१"])
def test_an_integer_is_one_to_java_and_in_its_range(value: str) -> None:
    with pytest.raises(ValueError):
        integer(0, 10)(value)
    assert integer(0, 10)("+7") == 7


def test_times_and_sizes_have_a_unit_or_are_plain_numbers_of_flumes() -> None:
    assert [milliseconds(0)(value) for value in ("30", "+30", "30s", "1.5 m", "500ms", "0")] == [
        30, 30, 30_000, 90_000, 500, 0,
    ]  # fmt: skip
    assert [seconds(0)(value) for value in ("30", "+30", "30s", "1.5 m", "2000ms", "0")] == [30, 30, 30, 90, 2, 0]
    assert [size(0)(value) for value in ("4096", "64KiB", "1.5 MiB", "0")] == [4096, 65_536, 3 << 19, 0]


@pytest.mark.parametrize("kind", [milliseconds, seconds, size])
@pytest.mark.parametrize(
    "value", ["", "1.0", "1_0", "_5_", "1_0s", "१", "ten", "-1", "30 sec", "64MB", "-5s", "100d", "9TiB", "9" * 5000]
)
def test_what_is_not_a_time_or_size_or_out_of_range_is_refused(
    kind: Callable[..., Callable[[str], int]], value: str
) -> None:
    with pytest.raises(ValueError):
        kind(1, 1000)(value)


def test_a_time_that_is_not_a_whole_second_is_not_rounded_to_none() -> None:
    for value in ("500ms", "1.5s", "1.5"):
        with pytest.raises(ValueError):
            seconds(0)(value)


def test_every_number_that_is_a_time_or_a_size_takes_a_unit() -> None:
    numbers = [(f"{t.alias}.{p.name}", p) for t in TYPES for p in t.properties if type(p.default) is int]
    said = {name: p for name, p in numbers if re.search(r"seconds|bytes", p.doc, re.IGNORECASE)}
    assert len(said) > 20
    assert {name: p.range for name, p in said.items() if not re.search(r"ms, s, m, h or d|KiB", p.range)} == {}


def test_words_and_truth_values_are_compared_without_case() -> None:
    assert one_of("DataStream", "SequenceFile")("datastream") == "DataStream"
    assert boolean("TRUE") is True
    for parse in one_of("never"), boolean:
        with pytest.raises(ValueError):
            parse("yes")


def test_a_propertys_range_is_what_its_parser_says_or_a_text() -> None:
    assert Property("p", one_of("a", "b", "c"), "a", "Doc.").range == "a, b or c"
    assert [one_of("a", "b").range, one_of("a").range, boolean.range] == ["a or b", "a", "true or false"]
    assert [integer(1).range, Property("p", text, None, "Doc.").range] == ["an integer of at least 1", "a text"]
    assert Property("p", integer(0, 99), 0, "Doc.", "a percentage").range == "a percentage"
    assert seconds(0).range == "whole seconds, or a number with ms, s, m, h or d; 0 or more"


TYPE = ComponentType(
    Kind.SINK,
    "some",
    prefix="x.",
    properties=(
        Property("x.path", text, None, "A path."),
        Property("groups", text, None, "Names."),
        Property("groups.*", text, None, "A group."),
        Property("headers.*.*", text, None, "A header.", keyword="given_headers"),
    ),
)


def test_a_name_belongs_to_a_property_or_to_its_family() -> None:
    names = ("x.path", "groups", "groups.a", "groups.a.b", "headers.a", "headers.a.b.c", "headers", "path")
    found = [TYPE.find(name) for name in names]
    assert [p and p.name for p in found] == [
        "x.path", "groups", "groups.*", "groups.*", None, "headers.*.*", None, None,
    ]  # fmt: skip


def test_a_keyword_leaves_out_the_prefix_and_the_places_of_keys() -> None:
    assert [TYPE.keyword(p) for p in TYPE.properties] == ["path", "groups", "groups", "given_headers"]


def test_a_type_with_another_way_out_is_not_supported() -> None:
    assert TYPE.supported and not ComponentType(Kind.SINK, "other", instead="use some").supported
