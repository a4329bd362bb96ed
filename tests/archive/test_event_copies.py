"""Copies of events that leave, or are damaged, while a backup reads them."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import spillable_stream as ss
from spillable_stream import (
    Channel,
    ChannelBusyError,
    CorruptionError,
)
from spillable_stream.archive import backup as backup_module
from spillable_stream.archive import event_copies
from spillable_stream.engine.engine import Engine
from spillable_stream.errors import DataLossError
from tests.support.backups import contents
from tests.support.damage import flip, log_file
from tests.support.events import put, take


def test_events_that_leave_while_they_are_copied_are_done_without(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Channel(path, minimum_required_space=0, max_file_size=5000) as channel:
        channel.consumer("default")
        put(channel, *[b"%d" % i * 1000 for i in range(9)])
        put(channel, *[b"%d" % i * 1000 for i in range(9)])
        real, left = event_copies.reading, []

        def reader(engine: Engine) -> Any:
            if not left:  # after the state was read, and before the first event is
                left.append(take(channel, 12))
                channel.checkpoint()
            return real(engine)

        monkeypatch.setattr(event_copies, "reading", reader)
        report = ss.backup(path, tmp_path / "copy")
    last_id, found = contents(tmp_path / "copy", tmp_path / "r", "default")
    assert last_id == report.last_id == 18 and list(found) == list(range(13, 19))


def test_events_that_always_leave_end_a_backup_with_advice(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        channel.consumer("default")

        class Gone:
            def expect(self, _: object) -> None: ...
            def close(self) -> None: ...
            def frames(self, _: object) -> Any:
                put(channel, b"new")
                take(channel, 1)
                channel.checkpoint()
                raise DataLossError("it has left")

        put(channel, b"a")
        monkeypatch.setattr(event_copies, "reading", lambda _: nullcontext(Gone()))
        monkeypatch.setattr(backup_module, "_file_of", lambda *_: object())
        with pytest.raises(ChannelBusyError, match="leave faster than they can be copied"):
            ss.backup(channel, tmp_path / "copy")


def test_an_event_that_is_damaged_fails_the_backup(path: Path, tmp_path: Path) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, b"a" * 100)
        put(channel, b"b" * 100)
    file = log_file(path)
    flip(file, file.read_bytes().index(b"a" * 100))
    with pytest.raises(CorruptionError, match="damaged"):
        ss.backup(path, tmp_path / "copy")
    assert not (tmp_path / "copy" / "backups").exists()
