from __future__ import annotations

import pytest

from spillable_stream.flow.configuration.options import (
    ComponentType,
    Kind,
    Property,
    boolean,
    comma_list,
    integer,
    one_of,
    snake_case,
    text,
    word_list,
)


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


def test_words_and_truth_values_are_compared_without_case() -> None:
    assert one_of("DataStream", "SequenceFile")("datastream") == "DataStream"
    assert boolean("TRUE") is True
    for parse in one_of("never"), boolean:
        with pytest.raises(ValueError):
            parse("yes")


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
