from __future__ import annotations

import os
from pathlib import Path

import pytest

from spillable_stream.errors import OptionError
from spillable_stream.flow.configuration_files import ConfigurationFiles, not_running, reasons_against, runnable

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


def test_a_change_and_a_missing_file_are_seen_once_and_looked_for_now_and_then(tmp_path: Path) -> None:
    found, seconds = files(tmp_path), 0.0
    found.now = lambda: seconds
    with pytest.raises(OSError):
        found.load()
    assert not found.have_changed(5.0)
    os.utime(tmp_path / "f.conf", (5, 5))
    assert not found.have_changed(5.0)
    seconds = 5.0
    assert not found.have_changed(None)
    assert found.have_changed(5.0)
    seconds = 10.0
    assert not found.have_changed(5.0)
    (tmp_path / "none").touch()
    seconds = 15.0
    assert found.have_changed(5.0)


def test_what_is_written_while_the_files_are_read_is_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_and_write(*_: object, **__: object) -> None:
        os.utime(tmp_path / "f.conf", (5, 5))

    found = files(tmp_path)
    monkeypatch.setattr("spillable_stream.flow.configuration_files.load", read_and_write)
    found.load()
    assert found.have_changed(0.0)


def test_an_agent_is_runnable_if_something_of_it_is(tmp_path: Path) -> None:
    files(tmp_path)
    loaded = ConfigurationFiles((str(tmp_path / "f.conf"),), "a1").load()
    assert runnable(loaded, "a1").sources[0].name == "r1"
    with pytest.raises(OptionError, match="there is no agent 'a3' in the files"):
        runnable(loaded, "a3")
    other = ConfigurationFiles((str(tmp_path / "f.conf"),), "a2").load()
    with pytest.raises(OptionError, match="nothing of the agent 'a2' can run"):
        runnable(other, "a2")


BASE = """
a1.sources = r1
a1.channels = c1
a1.sinks = k1 k2
a1.sources.r1.type = seq
a1.sources.r1.channels = c1
a1.channels.c1.type = memory
a1.sinks.k1.type = logger
a1.sinks.k1.channel = c1
a1.sinks.k2.type = nul
a1.sinks.k2.channel = c1
"""
GROUP = """
a1.sinkgroups = g1
a1.sinkgroups.g1.sinks = k1
a1.sinkgroups.g1.processor.type = nosuch
"""


@pytest.mark.parametrize(
    ("old", "new", "against"),
    [
        ("", "", ""),
        ("k2.type = nul", "k2.type = also_wrong", ""),  # it does not run now, either
        ("a1.sinks = k1 k2", "a1.sinks = k1 k2 k3", ""),  # a new one that is not described
        ("k1.type = logger", "k1.type = log-ger", "unknown-type a1.sinks.k1"),
        ("c1.type = memory", "c1.type = kafka", "unsupported-type a1.channels.c1"),
        ("r1.type = seq", "r1.type = seq\na1.sources.r1.batchSize =", "empty-value a1.sources.r1"),
        ("a1.channels = c1", "a1.channels = c1\na1.flows = c1", "invalid-key a1"),
        ("a1.channels = c1\n", "a1.channels = c1" + GROUP, "sink k1: its group g1 does not run"),
        ("a1.sinks = k1 k2", "a1.sinks = k2", ""),  # taken out, and not lost
    ],
)
def test_an_error_costs_its_component_and_never_one_that_runs(tmp_path: Path, old: str, new: str, against: str) -> None:
    path = tmp_path / "f.conf"
    path.write_text(BASE)
    running = ConfigurationFiles((str(path),), "a1").load()
    assert not_running(running.agents["a1"]) == ["sink k2: there is no sink of type 'nul': did you mean null?"]
    path.write_text(BASE.replace(old, new) if old else BASE)
    changed = ConfigurationFiles((str(path),), "a1").load()
    found = "; ".join(reasons_against(changed, running.agents["a1"], running.findings))
    assert against in found and bool(found) == bool(against)


def test_a_file_that_is_replaced_in_the_moment_of_a_look_is_seen_at_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An editor removes it, and gives the new one its name."""
    found = ConfigurationFiles((str(tmp_path / "f.conf"),), "a1")
    monkeypatch.setattr(os.path, "exists", lambda _: True)  # it was, a moment ago
    assert found.have_changed(0.0)
    assert not found.have_changed(0.0)
    (tmp_path / "f.conf").touch()
    assert found.have_changed(0.0)
