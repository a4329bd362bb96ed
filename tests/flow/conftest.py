"""What tests of patterns and of their search share, the channels of a processor, and an agent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spillable_stream import Channel, flow
from spillable_stream.flow import failed_channels, late_channel, sink_runner, supervisor
from spillable_stream.flow.patterns import byte_search
from tests.support.broken_disk import BrokenDisk, broken_disk
from tests.support.failing_puts import LIMITS
from tests.support.flow_agents import CONFIGURATION, agent, write


@pytest.fixture(scope="module")
def any_data_is_searched() -> Iterator[None]:
    """Search little data, and data full of candidates, as much data is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(byte_search, "_LEAST_BYTES", 1)
        patch.setattr(byte_search, "_BYTES_PER_CANDIDATE", 1)
        yield


@pytest.fixture
def channels(tmp_path: Path) -> Iterator[dict[str, Channel]]:
    found = {name: Channel(tmp_path / name, **LIMITS) for name in ("c1", "c2", "c3")}
    yield found
    for channel in found.values():
        channel.close()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The directory of an agent's file, and of all that it reads and writes."""
    (tmp_path / "logs").mkdir()
    write(tmp_path, CONFIGURATION)
    return tmp_path


@pytest.fixture
def running(place: Path) -> Iterator[flow.Agent]:
    """The agent of `place`, which runs."""
    with agent(place) as running:
        yield running


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets an optional channel be tried again soon."""
    monkeypatch.setattr(late_channel, "_FIRST_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(late_channel, "_LONGEST_RETRY_SECONDS", 0.05)


@pytest.fixture
def retried_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a failed channel, and what uses it, be tried again soon."""
    monkeypatch.setattr(sink_runner, "_FAILED_SECONDS", 0.05)
    monkeypatch.setattr(supervisor, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(failed_channels, "_FIRST_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(failed_channels, "_LONGEST_RETRY_SECONDS", 0.05)


@pytest.fixture
def broken_c2(place: Path) -> Iterator[BrokenDisk]:
    """The disk of c2."""
    with broken_disk(place / "c2") as disk:
        yield disk
