"""Defaults of a new channel's options from the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from spillable_stream import Channel, OptionError
from spillable_stream.channel.environment import environment_options, variable_of
from spillable_stream.options import CHANNEL, OPTIONS


def test_every_option_of_a_channel_has_a_variable_but_its_directories() -> None:
    assert variable_of("memory_capacity") == "SPILLABLE_MEMORY_CAPACITY"
    for option in OPTIONS:
        given = {variable_of(option.keyword): str(option.default)}
        if CHANNEL in option.scopes and option.default is not None:
            assert environment_options(given) == {option.keyword: option.default}
    assert environment_options({"SPILLABLE_DATA_DIRS": "/a", "SPILLABLE_CHECKPOINT_DIR": "/b"}) == {}


def test_other_variables_and_empty_ones_are_passed_over() -> None:
    assert (
        environment_options({"SPILLABLE_LOG": "debug", "SPILLABLE_KEEP_ALIVE": "", "HOME": "/", "KEEP_ALIVE": "3"})
        == {}
    )


def test_a_variable_that_is_almost_an_options_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert environment_options({"SPILLABLE_MEMRY_CAPACITY": "5", "SPILLABLE_MEMORYCAPACITY": "5"}) == {}
    slips = ("SPILLABLE_MEMRY_CAPACITY", "SPILLABLE_MEMORYCAPACITY")
    assert caplog.messages == [
        f"the variable {slip} is not an option's; the nearest is SPILLABLE_MEMORY_CAPACITY" for slip in slips
    ]
    caplog.clear()
    others = ("LOG", "CREDENTIALS", "PARALLELISM", "UI_TOKEN", "DATA_DIRS", "CHECKPOINT_DIR", "HOME", "FLEET")
    assert environment_options({f"SPILLABLE_{name}": "x" for name in others}) == {}
    assert caplog.messages == []


def test_a_value_out_of_range_names_the_variable() -> None:
    with pytest.raises(OptionError, match="the variable SPILLABLE_KEEP_ALIVE: keepAlive must be"):
        environment_options({"SPILLABLE_KEEP_ALIVE": "soon"})


def test_a_new_channel_takes_them_and_keyword_arguments_come_first(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPILLABLE_MEMORY_CAPACITY", "50")
    monkeypatch.setenv("SPILLABLE_KEEP_ALIVE", "9")
    monkeypatch.setenv("SPILLABLE_MODE", "0770")
    with Channel(path, keep_alive=4, minimum_required_space=0) as channel:
        assert (channel.options["memory_capacity"], channel.options["keep_alive"]) == (50, 4)
        assert channel.fixed_options["mode"] == "0770"
    monkeypatch.setenv("SPILLABLE_MEMORY_CAPACITY", "60")
    with Channel(path) as channel:
        assert channel.options["memory_capacity"] == 50, "an option that is stored is never altered by the environment"


def test_a_channel_in_a_store_takes_those_that_it_can_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPILLABLE_MEMORY_CAPACITY", "50")
    monkeypatch.setenv("SPILLABLE_COMMIT_INTERVAL", "0")
    with Channel(f"object+file://{tmp_path}/orders") as channel:
        assert (channel.options["memory_capacity"], channel.options["commit_interval"]) == (0, 0)
    with Channel(tmp_path / "local", minimum_required_space=0) as channel:
        assert channel.options["memory_capacity"] == 50
