"""The options as types: what the table gives, and how the stored ones are kept."""

from __future__ import annotations

import pickle
import runpy
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

from spillable_stream import Channel, Producer, option_types
from spillable_stream.option_types import (
    ChannelKeywords,
    ChannelOptions,
    CreationOptions,
    ProducerKeywords,
    StoredOptions,
)
from spillable_stream.options import CHANNEL, CREATION, HANDLE, PRODUCER, defaults
from spillable_stream.producer.config import ProducerConfig

ROOT = Path(__file__).parents[1]


def test_the_module_is_what_the_table_gives() -> None:
    made = runpy.run_path(str(ROOT / "scripts" / "make_option_types.py"))["source"]()
    assert Path(option_types.__file__).read_text() == made, "run scripts/make_option_types.py"


def test_each_type_has_the_options_of_its_kind() -> None:
    assert ChannelKeywords.__annotations__.keys() == {*defaults(CHANNEL), *defaults(CREATION), *defaults(HANDLE)}
    assert StoredOptions.__annotations__.keys() == defaults(CHANNEL).keys()
    assert ProducerKeywords.__annotations__.keys() == defaults(PRODUCER).keys()
    assert {f.name for f in fields(ProducerConfig)} == defaults(PRODUCER).keys()
    assert {f.name: getattr(CreationOptions(), f.name) for f in fields(CreationOptions)} == defaults(CREATION)


@pytest.mark.parametrize("name", ["memoryCapacity", "MEMORYCAPACITY", "memory-capacity"])
def test_names_as_in_configuration_files_are_taken_anyway(tmp_path: Path, name: str) -> None:
    with Channel(tmp_path / "c", minimum_required_space=0, **{name: "10"}) as channel:  # type: ignore[misc]
        assert channel.options["memory_capacity"] == 10
        Producer(channel, lingerMs=7).close()  # type: ignore[call-arg]


def test_an_image_says_all_options_in_the_order_of_the_table() -> None:
    assert list(ChannelOptions().values().items()) == list(defaults(CHANNEL).items())
    one = ChannelOptions.of({"keep_alive": 7.0, "memory_capacity": 5})
    assert one == ChannelOptions(memory_capacity=5, keep_alive=7.0)
    assert list(one.values()) == list(defaults(CHANNEL))


def test_options_of_a_later_version_are_kept() -> None:
    options = (
        ChannelOptions.of({"keep_alive": 7.0, "retention_ms": 5}).changed({"others": 1}).changed({"keep_alive": 8.0})
    )
    assert options.values() == {**defaults(CHANNEL), "keep_alive": 8.0, "retention_ms": 5, "others": 1}
    assert ChannelOptions.of(options.values()) == options


def test_stored_options_do_not_change_where_they_are() -> None:
    options = ChannelOptions()
    with pytest.raises(FrozenInstanceError):
        options.keep_alive = 1.0  # type: ignore[misc]
    assert options.changed({"keep_alive": 1.0}) != options == ChannelOptions()
    assert pickle.loads(pickle.dumps(options)) == options
