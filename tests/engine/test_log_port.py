"""What the engine makes of the answers of a log: here the local one, which is made to lose appends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spillable_stream import Channel
from tests.support.events import numbered, peek, put

Open = Callable[..., Channel]
MEMORY = {"memory_capacity": 1_000, "byte_capacity": 1 << 24}


def lose_appends(
    channel: Channel, monkeypatch: pytest.MonkeyPatch, count: int, meanwhile: Callable[[], object]
) -> None:
    """Let some appends be lost, to what comes meanwhile."""
    log, left = channel.engine().log, [count]
    real = log.append

    def append(*arguments: Any) -> Any:
        if left[0]:
            left[0] -= 1
            meanwhile()
            return None
        return real(*arguments)

    monkeypatch.setattr(log, "append", append)


@pytest.mark.parametrize("options", [{}, MEMORY], ids=["disk", "memory"])
def test_a_put_whose_append_is_lost_is_planned_again(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch, options: dict[str, int]
) -> None:
    channel = open_channel(**options)
    put(channel, *numbered(0, 2))
    lost: list[int] = []
    lose_appends(channel, monkeypatch, 3, lambda: lost.append(1))
    put(channel, *numbered(2, 2))
    assert len(lost) == 3
    assert channel.stats().last_id == 4
    assert peek(open_channel(), group="other") == peek(channel) == numbered(0, 4)


def test_what_the_engine_appends_for_itself_is_planned_again_too(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel(**MEMORY)
    put(channel, *numbered(0, 3))
    lost: list[int] = []
    lose_appends(channel, monkeypatch, 2, lambda: lost.append(1))
    assert channel.flush() == 3
    assert len(lost) == 2
    assert channel.stats().last_id == 3 and peek(channel) == numbered(0, 3)
