"""What a ttl means beyond takes: to verify and repair, backups, spools, workers, dead letters and earlier versions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import Channel, Event, OptionError
from spillable_stream.archive.backup import backup
from spillable_stream.archive.restore import restore
from spillable_stream.channel.spool_mover import SpoolMover
from spillable_stream.engine.groups import create_group
from spillable_stream.integrity.repair import repair
from spillable_stream.integrity.verify import verify
from tests.support.events import peek, put, take
from tests.support.expiry import WallClock, expired, put_for
from tests.support.object_channels import URL, stores_in_memory

Open = Callable[..., Channel]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> WallClock:
    return WallClock(monkeypatch)


def test_verify_finds_nothing_wrong_with_expired_events(open_channel: Open, clock: WallClock, path: Path) -> None:
    channel = open_channel()
    put_for(channel, 10, b"a")
    put_for(channel, None, b"b")
    clock.pass_by(11)
    channel.close()
    assert not verify(path).damaged
    assert take(open_channel()) == [b"b"]


def test_a_channel_says_a_format_that_earlier_versions_refuse_once_it_has_a_ttl_and_not_before(
    open_channel: Open, path: Path
) -> None:
    channel = open_channel()
    put(channel, b"a")
    before = (path / "channel.json").read_bytes()
    assert json.loads(before)["format"] == 1
    with pytest.raises(OptionError, match="ttl must be more than 0"), channel.put_transaction() as tx:
        tx.put(Event(b"b"), ttl=0)
    assert (path / "channel.json").read_bytes() == before
    put_for(channel, 10, b"b")
    assert json.loads((path / "channel.json").read_bytes())["format"] == 3
    assert peek(channel) == [b"a", b"b"]


def test_a_worker_is_not_handed_what_has_expired(open_channel: Open, clock: WallClock) -> None:
    channel = open_channel()
    put_for(channel, 10, b"a", b"b")
    put_for(channel, None, b"c")
    clock.pass_by(11)
    seen: list[bytes] = []
    channel.worker("default", lambda event: seen.append(event.body)).run(until_empty=True)
    assert seen == [b"c"]
    assert expired(channel) == 2


def test_a_dead_letter_has_no_ttl(open_channel: Open, clock: WallClock, tmp_path: Path) -> None:
    def fail(event: Event) -> None:
        raise ValueError("no")

    channel = open_channel()
    put_for(channel, 10, b"a")
    with Channel(tmp_path / "dead", minimum_required_space=0) as dead:
        channel.worker("default", fail, max_attempts=1, dead_letter=dead).run(until_empty=True)
        clock.pass_by(11)
        assert take(dead) == [b"a"]


def test_a_spool_ships_what_is_left_of_a_ttl(open_channel: Open, clock: WallClock, tmp_path: Path) -> None:
    with stores_in_memory(), Channel(URL, commit_interval=0) as store:
        spool = open_channel()
        mover = SpoolMover(spool.engine(), store.engine())
        create_group(spool.engine(), mover.group, "earliest")
        put_for(spool, 10, b"a")
        put_for(spool, 30, b"b")
        put_for(spool, None, b"c")
        clock.pass_by(20)
        assert mover.own()
        mover.ship()
        assert mover.waiting()[0] == 0
        clock.pass_by(0.001)  # what had expired was shipped with a microsecond, to be counted there
        assert peek(store) == [b"b", b"c"]
        clock.pass_by(11)
        assert take(store) == [b"c"]
        assert expired(store) == 2
        mover.close(is_answered=True)


def test_a_spool_never_ships_a_longer_ttl_than_an_event_had_whatever_the_clock_says(
    open_channel: Open, clock: WallClock
) -> None:
    with stores_in_memory(), Channel(URL, commit_interval=0) as store:
        spool = open_channel()
        mover = SpoolMover(spool.engine(), store.engine())
        create_group(spool.engine(), mover.group, "earliest")
        put_for(spool, 99 * 365 * 86_400, b"a")
        put_for(spool, 10, b"b")
        clock.pass_by(-20 * 365 * 86_400)
        assert mover.own()
        mover.ship()
        clock.pass_by(11)
        assert take(store) == [b"a"]
        mover.close(is_answered=True)


def test_a_backup_and_its_restore_keep_ttls(open_channel: Open, clock: WallClock, path: Path, tmp_path: Path) -> None:
    channel = open_channel()
    put_for(channel, 10, b"a")
    put_for(channel, 30, b"b")
    put_for(channel, None, b"c")
    backup(path, tmp_path / "copy")
    restore(tmp_path / "copy", tmp_path / "restored", new_identity=True)
    assert json.loads((tmp_path / "restored" / "channel.json").read_text())["format"] == 3
    clock.pass_by(11)
    with Channel(tmp_path / "restored") as restored:
        assert take(restored) == [b"b", b"c"]
        assert expired(restored) == 1


def test_a_repair_keeps_ttls_and_says_the_format_again(open_channel: Open, clock: WallClock, path: Path) -> None:
    channel = open_channel()
    put_for(channel, 10, b"a")
    put_for(channel, None, b"b")
    channel.close()
    (path / "channel.json").unlink()
    repair(path)
    assert json.loads((path / "channel.json").read_text())["format"] == 3
    clock.pass_by(11)
    assert take(open_channel()) == [b"b"]


def test_a_repair_says_the_format_again_of_a_channel_whose_events_with_ttls_have_all_gone(
    open_channel: Open, clock: WallClock, path: Path
) -> None:
    channel = open_channel()
    put_for(channel, 10, b"a")
    clock.pass_by(11)
    assert take(channel) == []
    channel.checkpoint()
    channel.close()
    (path / "channel.json").unlink()
    repair(path)
    assert json.loads((path / "channel.json").read_text())["format"] == 3
    assert expired(open_channel()) == 1


def test_a_repair_says_the_format_again_of_a_channel_with_delayed_events(open_channel: Open, path: Path) -> None:
    channel = open_channel()
    with channel.put_transaction() as tx:
        tx.put(Event(b"a"), deliver_after=1_000)
    channel.close()
    (path / "channel.json").unlink()
    repair(path)
    assert json.loads((path / "channel.json").read_text())["format"] == 3
    assert open_channel().stats().delayed.events == 1
