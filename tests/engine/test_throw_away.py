"""A notebook that is run again and again, each time with a new checkpoint: its groups and the disk stay bounded."""

from __future__ import annotations

from pathlib import Path

import pytest

from spillable_stream import Channel
from spillable_stream.engine.automatic_groups import AutomaticGroups
from tests.support.events import numbered, put, take
from tests.support.groups import give_up

RUNS = 50
EVENTS = 64
BODY_BYTES = 4096
LIMIT_BYTES = 1 << 20
LOOK_MS = 300_000
LOOKS_OF_A_RUN = 2
TTL_RUNS = 6  # a group outlives its notebook for as long as so many runs take


def body(number: int) -> bytes:
    return b"%0*d" % (BODY_BYTES, number)


@pytest.mark.parametrize("planned", [True, False], ids=["all that is kept", "nothing"])
def test_groups_and_disk_stay_bounded_however_often_a_notebook_is_run(path: Path, planned: bool) -> None:
    """A stream without a group makes one, reads something or not, and is never started again; another one reads on."""
    ttl_seconds = TTL_RUNS * LOOKS_OF_A_RUN * LOOK_MS // 1000
    options = {"retention_bytes": LIMIT_BYTES, "auto_group_ttl": ttl_seconds, "minimum_required_space": 0}
    most_groups = 1 + (TTL_RUNS if planned else LOOKS_OF_A_RUN) + 1
    with Channel(path, **options) as channel:
        engine = channel.engine()
        engine.upkeep.stop()
        groups = AutomaticGroups(engine.log, engine.follower, engine.appender, engine.owners)
        for run in range(RUNS):
            put(channel, *map(body, range(run * EVENTS, (run + 1) * EVENTS)))
            assert len(take(channel)) == EVENTS
            name = f"auto-{run}"
            channel.port().create_group(name, "earliest" if planned else "latest", automatic=True)
            consumer = channel.consumer(name)
            if planned:
                first, last = consumer.claim(1 << 30)[0]
                assert last == (run + 1) * EVENTS
                assert last - first + 1 >= min(last, LIMIT_BYTES // BODY_BYTES)  # what is kept, at least
                consumer.commit([(first, last)], consumer.prepare([(first, last)]))
            give_up(channel, name)
            for _ in range(LOOKS_OF_A_RUN + (run == 0)):
                groups.look(LOOK_MS)
            engine.retention.look()
            channel.checkpoint()
            assert len(engine.follow().groups) <= most_groups
            assert used_bytes(path) <= (most_groups + 2) * EVENTS * BODY_BYTES + 2 * LIMIT_BYTES
    with Channel(path) as channel:
        assert f"auto-{RUNS - 1}" in channel.stats().groups


def test_a_notebook_that_finds_nothing_leaves_nothing_in_the_way_of_puts(path: Path) -> None:
    """Its groups read nothing and hold what is put after them: they go, and a full channel takes puts again."""
    with Channel(path, overflow_capacity=100, keep_alive=0, minimum_required_space=0) as channel:
        engine = channel.engine()
        engine.upkeep.stop()
        groups = AutomaticGroups(engine.log, engine.follower, engine.appender, engine.owners)
        for run in range(RUNS):
            channel.port().create_group(f"auto-{run}", "latest", automatic=True)
        put(channel, *numbered(0, 100))
        with pytest.raises(Exception, match="auto-0"):
            put(channel, b"one too many")
        for _ in range(4):
            groups.look(LOOK_MS)
        assert not engine.follow().groups


def used_bytes(directory: Path) -> int:
    return sum(file.stat().st_blocks * 512 for file in directory.rglob("*"))
