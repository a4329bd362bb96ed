"""The options that are fixed when a channel is created."""

from __future__ import annotations

from pathlib import Path

import pytest

from spillable_stream import OptionError
from spillable_stream.engine.fixed_options import fixed_options, without_fixed
from spillable_stream.log.identity_file import planned_layout
from spillable_stream.option_types import CreationOptions

LAYOUT = planned_layout(Path("/c"), CreationOptions(data_dirs=["/one", "/two"], mode="0770"))


def test_a_layout_says_all_of_them() -> None:
    assert fixed_options(LAYOUT) == {
        "mode": "0770",
        "data_dirs": [Path("/one"), Path("/two")],
        "checkpoint_dir": Path("/c/checkpoint"),
        "backup_checkpoint_dir": None,
    }


def test_what_is_the_same_or_not_given_is_left_out() -> None:
    given = {"data_dirs": ["/one", "/two"], "mode": "0770", "checkpoint_dir": None, "memory_capacity": 5}
    assert without_fixed(LAYOUT, given) == {"memory_capacity": 5}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"mode": "0700"}, "mode is fixed when a channel is created; /c has 0770, not 0700"),
        ({"data_dirs": ["/two", "/one"]}, "data_dirs is fixed .*; /c has /one, /two, not /two, /one"),
        ({"backup_checkpoint_dir": "/b"}, "backup_checkpoint_dir is fixed .*; /c has None, not /b"),
    ],
)
def test_what_differs_is_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        without_fixed(LAYOUT, given)
    with pytest.raises(OptionError, match=said.replace(" has ", " would have ")):
        without_fixed(LAYOUT, given, is_there=False)
