from __future__ import annotations

from pathlib import Path

import pytest

from spillable_stream.errors import OptionError
from spillable_stream.flow.configuration_files import ConfigurationFiles, runnable
from spillable_stream.flow.reload import Reload
from spillable_stream.flow.wired import Wired
from tests.support.flow_agents import CONFIGURATION, write


def reload_of(place: Path) -> Reload:
    """Return the reload of an agent that runs from its file as it is now."""
    write(place, CONFIGURATION)
    files = ConfigurationFiles((str(place / "flume.conf"),), "a1")
    loaded = files.load()
    return Reload(files, runnable(loaded, "a1"), loaded.findings)


def close(wired: Wired) -> None:
    """Close the channels that were opened, since nothing ran."""
    for one in wired.channels.values():
        one.channel.close()


def test_files_that_say_the_same_change_nothing(place: Path) -> None:
    reload = reload_of(place)
    wired = reload.assemble(Wired())
    assert not wired.sources and not wired.sinks
    close(wired)
    assert not reload.changes and reload.config.name == "a1"


def test_a_new_error_that_costs_nothing_that_runs_is_said_with_what_has_changed(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "spillable_stream.flow")
    reload = reload_of(place)
    more = CONFIGURATION.replace("a1.sinks = k1 k2", "a1.sinks = k1 k2 k3") + "a1.sinks.k3.type = no_such\n"
    write(place, more.replace("sources.r1.interceptors.i1.type = static", "sources.r1.interceptors.i1.type = host"))
    wired = reload.assemble(Wired())
    assert wired.sources.keys() == {"r1"} and not wired.sinks
    close(wired)
    reload.say_taken()
    assert "unknown-type a1.sinks.k3" in caplog.text
    assert "the configuration of the agent a1 has changed: sources r1" in caplog.text


def test_files_that_cost_something_that_runs_are_refused_and_leave_what_was_known(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reload = reload_of(place)
    write(place, CONFIGURATION.replace("k2.type = file_roll", "k2.type = no_such"))
    with pytest.raises(OptionError, match="no_such") as refused:
        reload.assemble(Wired())
    reload.say_refused(refused.value)
    assert "the changed configuration is refused, and the agent a1 runs as it did: " in caplog.text
    assert not reload.changes and len(reload.config.sinks) == 2
