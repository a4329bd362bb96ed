"""What workers need of a handle: a worker and its dead letters do with an object that has no more than that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spillable_stream import Channel
from spillable_stream.workers.config import WorkerConfig
from spillable_stream.workers.handle import ChannelHandle
from spillable_stream.workers.making import make_worker
from tests.support.events import put
from tests.support.workers import letters

ASKED = {name for name in {**vars(ChannelHandle), **ChannelHandle.__annotations__} if not name.startswith("_")}


class Narrow:
    """A handle, and no more of it than workers ask for."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def __getattr__(self, name: str) -> Any:
        if name not in ASKED:
            raise AttributeError(f"workers do not need {name!r}")
        return getattr(self._channel, name)


def test_a_worker_needs_no_more_of_its_channels_than_it_says(channel: Channel, dead: Channel) -> None:
    put(channel, b"bad")
    opened: Any = Narrow(dead)
    config, seen = WorkerConfig.of(None, 1, 0.0, 1, None), []

    def function(event: Any) -> None:
        seen.append(event.body)
        if event.body == b"bad":
            raise ValueError

    with channel, dead:
        make_worker(Narrow(channel), "g", function, config, lambda: (opened, False)).run(until_empty=True)
        assert len(seen) == 11 and [letter["body"] for letter in letters(dead)] == [b"bad"]


def test_a_dead_letter_channel_that_was_opened_for_a_worker_is_closed_with_it(channel: Channel, tmp_path: Path) -> None:
    opened = Channel(tmp_path / "opened", minimum_required_space=0)
    narrow: Any = Narrow(opened)
    with channel:
        config = WorkerConfig.of(None, 1, 0.0, 1, None)
        with make_worker(channel, "g", print, config, lambda: (narrow, True)):
            assert "closed" not in repr(opened)
    assert "closed" in repr(opened)
