"""The options as types: what the table gives, what type checkers say of them, and how the stored ones are kept."""

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
from tests.support.type_checker import said_by_mypy

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


USE = """
import spillable_stream as ss
channel = ss.Channel("c", memory_capacity=10, keep_alive=1.5, compression="lz4", data_dirs=["/a", "/b"], mode="0750")
ss.Producer(channel, linger_ms=5)
ss.AsyncProducer({"a": channel}, producer_id="p", linger_ms=5)
ss.ProducerHandler(ss.Producer("c"), max_block_ms=5)
reveal_type(channel.options["keep_alive"])
channel.put_transaction().put_many([ss.Event(b"x")])
"""
WRONG = [
    ('ss.Channel("c", memory_capacty=10)', 'Unexpected keyword argument "memory_capacty"'),
    ('ss.Channel("c", memory_capacity="many")', 'has incompatible type "str"; expected "int | None"'),
    ('ss.Channel("c", compression="gzip")', "expected \"Literal['none', 'lz4', 'zstd'] | None\""),
    ('ss.Channel("c").options["keepAlive"]', 'TypedDict "StoredOptions" has no key "keepAlive"'),
    ('ss.Producer("c", lingerms=5)', 'Unexpected keyword argument "lingerms"'),
    ('ss.AsyncProducer("c", linger_ms=1.5)', 'has incompatible type "float"; expected "int | str | timedelta | None"'),
    ("ss.Producer(7)", 'has incompatible type "int"'),
    ('ss.ProducerHandler(ss.Producer("c"), linger_ms=5)', 'Unexpected keyword argument "linger_ms"'),
]


def test_a_type_checker_knows_every_option(tmp_path: Path) -> None:
    found = said_by_mypy(USE + "\n".join(line for line, _ in WRONG) + "\n", tmp_path)
    assert found[0] == '7: note: Revealed type is "float"', found
    right = USE.count("\n")
    errors = dict(line.split(": error: ") for line in found if ": error: " in line)
    assert errors.keys() == {str(right + i) for i in range(1, len(WRONG) + 1)}, found
    for i, (_, message) in enumerate(WRONG, right + 1):
        assert message in errors[str(i)]


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
