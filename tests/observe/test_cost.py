"""What looking costs, counted: nothing for the writers, and little for whoever looks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from spillable_stream import Channel
from spillable_stream.observe.observer import Observer
from tests.channel.test_cost import python_calls
from tests.support.events import numbered, put, take
from tests.support.fake_files import FaultyFileSystem

Open = Callable[..., Channel]

IDLE_CALLS = 5
"""Calls to the file system of a look at a channel where nothing happened: what a second costs, with a look a second."""
BUSY_CALLS = 40
"""The same, after many transactions: they are read together."""


def test_a_writer_makes_the_same_calls_whether_anybody_looks_or_not(path: Path) -> None:
    fs = FaultyFileSystem()
    with Channel(path, fs=fs, minimum_required_space=0, memory_capacity=1000) as channel:

        def calls(look: Callable[[], object]) -> list[str]:
            before = len(fs.calls)
            for i in range(20):
                put(channel, *numbered(i, 5))
                look()
            return [call.name for call in fs.calls[before:]]

        calls(lambda: None)
        alone = calls(lambda: None)
        with Observer([path]) as observer:
            assert calls(observer.observe) == alone


def test_a_look_costs_a_few_calls_however_much_happened(path: Path, open_channel: Open) -> None:
    channel, fs = open_channel(memory_capacity=1000), FaultyFileSystem()
    put(channel, *numbered(0, 10))
    with Channel(path, create=False, readonly=True, fs=fs) as handle, Observer([handle]) as observer:
        observer.observe()
        before = len(fs.calls)
        observer.observe()
        idle = len(fs.calls) - before
        for i in range(300):
            put(channel, *numbered(i, 10))
            take(channel, 10)
        before = len(fs.calls)
        observer.observe()
        busy = len(fs.calls) - before
    assert idle <= IDLE_CALLS and busy <= BUSY_CALLS, (idle, busy)


def test_a_look_costs_in_proportion_to_the_transactions_since_the_last_one(path: Path, open_channel: Open) -> None:
    """Not to the events, nor to what the channel holds."""
    channel = open_channel()
    with Channel(path, create=False, readonly=True) as handle:

        def look() -> None:
            handle.stats()

        def cost(transactions: int, events: int) -> int:
            for i in range(transactions):
                put(channel, *numbered(i, events))
            return python_calls(look)

        cost(100, 1)
        few, large, many = cost(100, 1), cost(100, 50), cost(400, 1)
    assert large < 1.5 * few
    assert many < 6 * few
