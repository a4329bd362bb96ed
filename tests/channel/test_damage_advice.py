"""Damage in a channel's own files is said with what to do, wherever it shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import Channel, CorruptionError
from tests.support.channels import three_puts
from tests.support.damage import flip, log_file
from tests.support.events import numbered, put, take


def said(path: Path, call: Callable[[], object]) -> None:
    with pytest.raises(CorruptionError) as e:
        call()
    assert e.value.__notes__ == [f"see what is lost with 'spillable verify {path}'"]


def test_an_open_a_take_and_a_read_say_it(path: Path) -> None:
    at = three_puts(path)
    flip(log_file(path), at[1] + 60)
    with Channel(path, create=False) as channel:
        said(path, lambda: take(channel))
        said(path, lambda: [*channel.read()])
    flip(log_file(path), 8)
    said(path, lambda: Channel(path, create=False))


def test_a_look_in_a_store_says_it(tmp_path: Path) -> None:
    place = f"object+file://{tmp_path}/c"
    with Channel(place) as channel, Channel(place) as other:
        put(other, *numbered(0, 1))
        slot = max((tmp_path / "c" / "log").iterdir())
        slot.chmod(0o644)
        flip(slot, slot.stat().st_size - 16)
        with pytest.raises(CorruptionError) as e:
            channel.stats()
        assert e.value.__notes__ == [f"see what is lost with 'spillable verify {place}'"]
