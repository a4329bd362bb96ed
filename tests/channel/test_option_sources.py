"""The options of a channel, and where each value comes from."""

from __future__ import annotations

from pathlib import Path

import pytest

from spillable_stream import Channel, CorruptionError, OptionError
from spillable_stream.channel.option_sources import SourcedOption, sourced_options
from spillable_stream.options import CHANNEL, CREATION, OPTIONS


def by_name(path: Path, config: Path | None = None) -> dict[str, SourcedOption]:
    return {option.name: option for option in sourced_options(path, config)}


def test_all_options_are_there_in_the_tables_order(path: Path) -> None:
    names = [o.name for o in OPTIONS if {CHANNEL, CREATION} & set(o.scopes)]
    assert list(by_name(path)) == names
    with Channel(path, minimum_required_space=0):
        pass
    assert list(by_name(path)) == names


def test_the_file_comes_before_the_environment_and_says_so(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "c.ini").write_text("[channel]\nkeepAlive = 7\n")
    monkeypatch.setenv("SPILLABLE_KEEP_ALIVE", "8")
    found = by_name(path, tmp_path / "c.ini")["keepAlive"]
    assert (found.value, found.source) == (7.0, "file")
    assert found.note == "SPILLABLE_KEEP_ALIVE says 8.0, which counts for new channels only"


def test_what_the_channel_stores_comes_before_both(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Channel(path, minimum_required_space=0, keep_alive=6):
        pass
    monkeypatch.setenv("SPILLABLE_KEEP_ALIVE", "6")
    assert by_name(path)["keepAlive"] == SourcedOption("keepAlive", 6.0, "stored")


def test_a_channel_that_cannot_be_opened_is_not_taken_for_a_new_one(path: Path, tmp_path: Path) -> None:
    with Channel(path, minimum_required_space=0):
        pass
    (path / "channel.json").write_text("{")
    with pytest.raises(CorruptionError):
        sourced_options(path)
    with pytest.raises(OptionError):
        sourced_options(tmp_path / "other", tmp_path / "missing.ini")
