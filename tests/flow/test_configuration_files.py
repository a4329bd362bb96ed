from __future__ import annotations

import os
from pathlib import Path

import pytest

from spillable_stream.errors import OptionError
from spillable_stream.flow.configuration_files import ConfigurationFiles, runnable

AGENT = """
a1.sources = r1
a1.channels = c1
a1.sources.r1.type = seq
a1.sources.r1.channels = c1
a1.channels.c1.type = memory
a2.channels = c1
"""


def files(place: Path, name: str = "a1") -> ConfigurationFiles:
    (place / "f.conf").write_text(AGENT)
    return ConfigurationFiles((str(place / "f.conf"), str(place / "none")), name, {"k": "v"}, {})


def test_when_they_were_written_shows_a_change_and_a_missing_file(tmp_path: Path) -> None:
    found = files(tmp_path)
    os.utime(tmp_path / "f.conf", (5, 5))
    assert found.modified() == (5.0, 0.0)
    with pytest.raises(OSError):
        found.load()


def test_an_agent_is_runnable_if_something_of_it_is(tmp_path: Path) -> None:
    files(tmp_path)
    loaded = ConfigurationFiles((str(tmp_path / "f.conf"),), "a1").load()
    assert runnable(loaded, "a1").sources[0].name == "r1"
    with pytest.raises(OptionError, match="there is no agent 'a3' in the files; there are: a1"):
        runnable(loaded, "a3")
    other = ConfigurationFiles((str(tmp_path / "f.conf"),), "a2").load()
    with pytest.raises(OptionError, match="nothing of the agent 'a2' can run"):
        runnable(other, "a2")
