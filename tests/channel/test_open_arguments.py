"""What a handle is opened with: which options and schemas are refused, and what a new channel is made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spillable_stream import Channel, NotAChannelError, OptionError
from spillable_stream.channel.open_arguments import OpenArguments
from spillable_stream.format.batch import EVENT_SCHEMA, encode_schema
from spillable_stream.storage.filesystem import FileSystem


def test_an_unknown_option_names_the_nearest(path: Path) -> None:
    with pytest.raises(OptionError, match="'overflow_capacty' is not an option of a channel; the nearest is 'overflow"):
        Channel(path, overflow_capacty=5)
    assert not path.exists()


def test_a_bad_value_names_the_range(path: Path) -> None:
    with pytest.raises(OptionError, match="transaction_capacity must be an integer of at least 1, not 0"):
        Channel(path, transaction_capacity=0)
    assert not path.exists()


def test_defaults_are_flumes_but_for_files_that_are_small_enough_to_be_used_again(
    path: Path,
) -> None:
    with Channel(path) as channel:
        options = channel.options
    assert options["overflow_capacity"] == 100_000_000  # SpillableMemoryChannel
    assert options["transaction_capacity"] == 10_000  # FileChannel
    assert options["keep_alive"] == 3
    assert options["checkpoint_interval"] == 30_000
    assert options["max_file_size"] == 64 << 20  # FileChannel: 1.6 GB
    assert options["minimum_required_space"] is None  # FileChannel's 500 MiB, or less on a small file system


def arguments(path: Path, schema: pa.Schema | None = None, **options: Any) -> OpenArguments:
    return OpenArguments.of(path, options, schema, readonly=False)


def test_a_new_channel_has_what_is_given_then_what_the_environment_says(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPILLABLE_KEEP_ALIVE", "7")
    monkeypatch.setenv("SPILLABLE_OVERFLOW_CAPACITY", "8")
    new = arguments(path, overflow_capacity=9, mode="0750").new_channel()
    assert (new.options.keep_alive, new.options.overflow_capacity) == (7, 9)
    assert new.fixed.mode == "0750"
    assert new.schemas == [encode_schema(EVENT_SCHEMA)]


def test_a_new_channel_that_could_hold_nothing_is_refused(path: Path) -> None:
    with pytest.raises(OptionError, match="could hold nothing"):
        arguments(path, memory_capacity=0, overflow_capacity=0).new_channel()


def test_a_spool_and_a_cache_are_for_stores(path: Path) -> None:
    for options in {"spool": "/spool"}, {"durability": "local"}, {"cache_dir": "/cache"}:
        with pytest.raises(OptionError, match="for channels in an object store"):
            arguments(path, **options)


def test_a_channel_of_this_host_is_created_only_if_it_may_be(path: Path) -> None:
    given = arguments(path, schema=pa.schema([("n", pa.int64())]))
    with pytest.raises(NotAChannelError):
        given.find_channel(FileSystem(), create=False, prepare=lambda: None)
    assert given.find_channel(FileSystem(), create=True, prepare=lambda: None) == (None, None)
    with Channel(path, create=False) as channel:
        assert channel.typed
