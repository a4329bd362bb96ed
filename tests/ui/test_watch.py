"""The looks behind the page."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from spillable_stream import Channel, OptionError
from spillable_stream.ui.watch import Watch
from tests.support.events import put


def test_it_looks_again_and_again_and_remembers(path: Path) -> None:
    async def watch() -> None:
        watch = Watch([str(path), f"{path}-missing"], interval_seconds=0.01)
        assert watch.latest(str(path)).problem == "it has not been looked at yet"
        looking = asyncio.create_task(watch.run())
        while len(watch.history.samples(str(path))) < 2:
            await asyncio.sleep(0.01)
        assert watch.latest(str(path)).stats is not None
        assert "missing" in watch.latest(f"{path}-missing").problem
        looking.cancel()
        watch.close()

    with Channel(path, minimum_required_space=0) as channel:
        put(channel, b"a")
        asyncio.run(watch())


def test_whatever_a_look_meets_it_looks_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch([str(path)])

    def observe() -> None:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(watch._observer, "observe", observe)
    asyncio.run(watch.look())
    monkeypatch.undo()
    asyncio.run(watch.look())
    assert "missing" in watch.latest(str(path)).problem
    watch.close()


def test_a_channel_keeps_its_number_when_others_come_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spillable_stream.observe.channel_discovery._SEARCH_SECONDS", 0.0)
    b, a = (str(tmp_path / name) for name in ("b", "a"))
    watch = Watch([f"{tmp_path}/*"])
    Channel(b, minimum_required_space=0).close()
    asyncio.run(watch.look())
    assert watch.paths() == [b] and watch.number_of(b) == 0
    Channel(a, minimum_required_space=0).close()
    asyncio.run(watch.look())
    assert watch.paths() == [a, b] and (watch.number_of(a), watch.path_of(0), watch.path_of(2)) == (1, b, None)
    shutil.rmtree(b)
    asyncio.run(watch.look())
    assert watch.paths() == [a] and watch.path_of(0) == b
    assert watch.latest(b).problem == "it is no longer there"
    watch.close()


def test_nothing_to_show_is_refused() -> None:
    with pytest.raises(OptionError):
        Watch([])
