"""The channel at a path is known without being opened."""

from __future__ import annotations

from pathlib import Path

import spillable_stream as ss
from spillable_stream.channel.known_uuid import known_uuid


def test_channel_is_known_without_being_opened(tmp_path: Path) -> None:
    with ss.Channel(tmp_path / "c") as channel:
        uuid = channel.uuid
    before = sorted(tmp_path.rglob("*"))
    assert known_uuid(str(tmp_path / "c")) == uuid
    assert sorted(tmp_path.rglob("*")) == before


def test_nothing_is_known_where_no_channel_is_or_its_identity_is_damaged(tmp_path: Path) -> None:
    assert known_uuid(str(tmp_path / "nothing")) is None
    ss.Channel(tmp_path / "c").close()
    (tmp_path / "c" / "channel.json").write_text("{")
    assert known_uuid(str(tmp_path / "c")) is None
