"""Maps in JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from spillable_stream import Channel
from spillable_stream.cli.map_text import entries_of, rows_with_plain_maps
from tests.support.command_line import run

TEXTS, NUMBERS = pa.map_(pa.string(), pa.int64()), pa.map_(pa.int64(), pa.int64())


@pytest.mark.parametrize(
    ("of", "pairs", "plain"),
    [
        (TEXTS, [("a", 1), ("b", None)], {"a": 1, "b": None}),
        (TEXTS, [], {}),
        (TEXTS, None, None),
        (TEXTS, [("a", 1), ("a", 1)], [{"key": "a", "value": 1}] * 2),
        (NUMBERS, [(1, 2)], {1: 2}),
        (NUMBERS, [(1, 2), (1, 3)], [{"key": 1, "value": 2}, {"key": 1, "value": 3}]),
        (pa.map_(pa.float64(), pa.int64()), [(1.0, 2)], [{"key": 1.0, "value": 2}]),
        (pa.map_(pa.bool_(), pa.int64()), [(True, 2)], [{"key": True, "value": 2}]),
        (pa.map_(pa.string(), TEXTS), [("a", [("b", 1), ("b", 2)])], {"a": [{"key": "b", "value": i} for i in (1, 2)]}),
        (pa.list_(TEXTS), [[("a", 1)], None, []], [{"a": 1}, None, {}]),
        (pa.list_(TEXTS, 1), [[("a", 1)]], [{"a": 1}]),
        (pa.struct([("m", TEXTS), ("n", pa.int8())]), {"m": [("a", 1)], "n": 7}, {"m": {"a": 1}, "n": 7}),
        (pa.list_(pa.int8()), [1, 2], [1, 2]),
    ],
)
def test_a_map_is_an_object_where_that_keeps_all_its_keys_and_else_its_entries(
    of: pa.DataType, pairs: object, plain: object
) -> None:
    (row,) = rows_with_plain_maps([{"n": 1, "m": pairs}], pa.schema([("n", pa.int64()), ("m", of)]))
    assert row == {"n": 1, "m": plain}


def test_both_ways_to_write_a_map_are_read() -> None:
    for value in ({"1": 2, "-3": None}, [{"key": 1, "value": 2}, {"value": None, "key": -3}]):
        assert entries_of(value, NUMBERS) == [(1, 2), (-3, None)]


@pytest.mark.parametrize(
    "value",
    [
        1,
        "x",
        ["a"],
        [["a", 1]],
        [{"key": 1}],
        [{"value": 1}],
        [{"key": 1, "value": 2, "more": 3}],
        {"1_0": 1},
        {" 1": 1},
    ],
)
def test_what_is_not_a_map_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"is not of the type|is not a whole number"):
        entries_of(value, NUMBERS)


def test_an_object_has_no_keys_but_texts_and_whole_numbers() -> None:
    with pytest.raises(ValueError, match="is not of the type"):
        entries_of({"1.5": 1}, pa.map_(pa.float64(), pa.int64()))


def test_every_verb_that_prints_a_map_prints_all_of_its_keys(path: Path, tmp_path: Path) -> None:
    column = pa.array([[("a", 1), ("a", 2)], [("b", 3)]], TEXTS)
    schema = pa.schema([("m", TEXTS)])
    with Channel(path, schema=schema, minimum_required_space=0) as channel, channel.put_transaction() as tx:
        tx.put_batch(pa.record_batch([column], ["m"]))
    wanted = [{"m": [{"key": "a", "value": 1}, {"key": "a", "value": 2}]}, {"m": {"b": 3}}]
    for verb in ("tail", "take"):
        assert [json.loads(line) for line in run(verb, path).stdout.splitlines()] == wanted
    pa.parquet.write_table(pa.table({"m": column}), tmp_path / "f.parquet")
    assert run("put", tmp_path / "events", tmp_path / "f.parquet").exit_code == 0
    assert [json.loads(line) for line in run("tail", tmp_path / "events").stdout.splitlines()] == wanted
