"""A read's options: every option of the table, and no other."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, asdict, fields

import pytest

from spillable_stream.engine.port import DiskCache
from spillable_stream.errors import OptionError
from spillable_stream.options import BATCH, SOURCE, defaults
from spillable_stream.spark.source.read_options import BatchOptions, StreamOptions


@pytest.mark.parametrize(("kind", "scope"), [(StreamOptions, SOURCE), (BatchOptions, BATCH)])
def test_options_are_those_of_the_table_with_their_defaults(
    kind: type[StreamOptions] | type[BatchOptions], scope: str
) -> None:
    cache = {"cache_dir", "cache_bytes"}
    plain = {name: value for name, value in defaults(scope).items() if name not in cache}
    assert plain.keys() == defaults(scope).keys() - cache
    assert {field.name for field in fields(kind)} == plain.keys() | {"cache", "of_set"}, "the last is no option"
    assert asdict(kind.of()) == {**plain, "cache": None, "of_set": False}


def test_given_options_count_and_cannot_be_changed() -> None:
    options = BatchOptions.of({"group": "g", "on_corruption": "quarantine"})
    assert (options.group, options.passes_damage, options.fail_on_data_loss) == ("g", True, True)
    assert pickle.loads(pickle.dumps(options)) == options
    with pytest.raises(FrozenInstanceError):
        options.group = None  # type: ignore[misc]
    with pytest.raises(TypeError):
        BatchOptions.of({"owner_timeout": 1.0})


@pytest.mark.parametrize("kind", [StreamOptions, BatchOptions])
def test_a_cache_is_of_what_is_in_a_store(kind: type[StreamOptions] | type[BatchOptions]) -> None:
    given = {"cache_dir": "/cache", "cache_bytes": 1 << 20}
    assert kind.of(given).cache == DiskCache("/cache", 1 << 20)
    with pytest.raises(OptionError, match="cacheDir is for channels in an object store"):
        kind.of(given, in_store=False)


def test_reset_of_no_group_is_refused() -> None:
    assert StreamOptions.of({"group": "g", "reset_group": True}).reset_group
    with pytest.raises(OptionError, match="resetGroup needs a group: a stream without group has a position of its own"):
        StreamOptions.of({"reset_group": True})
