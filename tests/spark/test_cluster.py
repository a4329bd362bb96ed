"""Channels under executors that are other processes, on this host and on another one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import spillable_stream as ss
from spillable_stream.integrity.verify import verify
from tests.lab.size import sized
from tests.support.damage import remove_memory_under
from tests.support.spark.cluster import (
    CONFIGURATION,
    THIS_HOST,
    Driver,
    JobFailedError,
    driver,
    missing,
    other_host,
    standalone,
)

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]

# What `make test` leaves to the full `make crash`: a cluster takes long to start, and there is one for each fixture.
FULL = [pytest.mark.crash, pytest.mark.skipif(not sized(ci=0, full=1), reason="only with CRASH_SIZE=full")]

HERE = os.uname().nodename
THERE = "other-host"
SCHEMA = pa.schema([("id", pa.int64()), ("writer", pa.string()), ("body", pa.string())])
ROWS = 1_000
SMALL, LARGE = 10, 2_000  # bytes of a row: a task's rows travel through the driver, or are staged in a file


# ── executors on this host ──────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module", params=["standalone", pytest.param("local-cluster", marks=FULL)])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """A driver with two executors, each in a JVM of its own."""
    directory = tmp_path_factory.mktemp("cluster")
    if request.param == "local-cluster":
        with driver(directory, {**CONFIGURATION, "spark.master": "local-cluster[2,1,512]"}) as started:
            yield started
        return
    with (
        standalone(directory, THIS_HOST, [THIS_HOST, THIS_HOST]) as (url, _),
        driver(directory, {**CONFIGURATION, "spark.master": url}) as started,
    ):
        yield started


@pytest.mark.parametrize(
    ("memory_capacity", "body_bytes"),
    [
        pytest.param(0, SMALL, marks=FULL, id="disk-small"),
        pytest.param(0, LARGE, id="disk-large"),
        pytest.param(100_000, SMALL, marks=FULL, id="memory-small"),
        pytest.param(100_000, LARGE, id="memory-large"),
    ],
)
def test_executors_write_move_and_read_every_row_once_and_in_order(
    cluster: Driver, tmp_path: Path, memory_capacity: int, body_bytes: int
) -> None:
    executors = [f"{HERE} 0", f"{HERE} 1"]
    source, target = tmp_path / "source", tmp_path / "target"
    for path in (source, target):
        create(path, memory_capacity=memory_capacity)

    with ss.Channel(source), ss.Channel(target) as channel:  # else the last call moves what is in memory to disk
        cluster.do("write", path=source, rows=ROWS, body_bytes=body_bytes)
        found = cluster.do("read", path=source)
        assert found == {"ids": list(range(ROWS)), "writer": executors, "reader": executors}
        assert bool(segments(source)) == (body_bytes == LARGE)

        assert cluster.do("stream", source=source, target=target, checkpoint=tmp_path / "checkpoint") == 1
        found = cluster.do("read", path=target)
        assert found == {"ids": list(range(ROWS)), "writer": executors, "mover": executors, "reader": executors}
        assert bool(segments(target)) == (body_bytes == LARGE)
        assert channel.stats().drain_order == [ROWS if memory_capacity else -ROWS]


def create(path: Path, **options: Any) -> None:
    """Create a channel of the rows that drivers write."""
    ss.Channel(path, schema=SCHEMA, minimum_required_space=0, **options).close()


def segments(path: Path) -> list[Path]:
    """Return the staged files of a channel, in both tiers."""
    return [*path.glob("data/segment.*"), *path.glob("memory/memory-segment.*")]


# ── executors on another host ───────────────────────────────────────────────────────────────────


class Far(NamedTuple):
    """A driver here, with one executor on another host.

    Args:
        driver: the driver.
        shared: a directory that both hosts see.
        hidden: a directory that is an empty one there.
        late: another one, which a test may uncover.
        foreign: a directory that is another one there, with other channels of the same names.
        worker: the process ID of the worker there.
    """

    driver: Driver
    shared: Path
    hidden: Path
    late: Path
    foreign: Path
    worker: int


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Far]:
    if why := missing():
        pytest.skip(why)
    directory = tmp_path_factory.mktemp("far")
    shared, hidden, late, foreign, instead = (directory / n for n in ("shared", "hidden", "late", "foreign", "instead"))
    for path in (shared, hidden, late, foreign, instead):
        path.mkdir()
    for name in ("channel", f"channel{SMALL}", f"channel{LARGE}"):
        create(instead / name)
    with (
        other_host(THERE, [hidden, late], (foreign, instead)) as (near, there),
        standalone(directory, near, [there]) as (url, (worker,)),
        driver(directory, {**CONFIGURATION, "spark.master": url}, near.address) as started,
    ):
        yield Far(started, shared, hidden, late, foreign, worker)
    remove_memory_under(directory)


@pytest.mark.parametrize("body_bytes", [pytest.param(SMALL, marks=FULL, id="small"), pytest.param(LARGE, id="large")])
def test_another_host_writes_moves_and_reads_a_channel_on_disk(far: Far, body_bytes: int) -> None:
    source, target = far.shared / f"source-{body_bytes}", far.shared / f"target-{body_bytes}"
    far.driver.do("write", path=source, rows=ROWS, body_bytes=body_bytes)
    assert (
        far.driver.do("stream", source=source, target=target, checkpoint=far.shared / f"checkpoint-{body_bytes}") == 1
    )

    there = [f"{THERE} 0"]
    found = far.driver.do("read", path=target)
    assert found == {"ids": list(range(ROWS)), "writer": there, "mover": there, "reader": there}
    assert bool(segments(target)) == (body_bytes == LARGE)


def test_another_host_is_refused_events_in_memory_until_they_are_on_disk(far: Far) -> None:
    path = far.shared / "in-memory"
    create(path, memory_capacity=100_000, flush_on_close=False)
    far.driver.do("write", path=path, rows=ROWS, body_bytes=SMALL)  # through the driver, which has the memory

    with pytest.raises(JobFailedError) as e:  # while nobody else has the channel open
        far.driver.do("read", path=path)
    assert (
        f"OtherHostError: the host {THERE} can't read the events 1 to {ROWS // 4} of {path}, which are in the memory "
        f"of the host {HERE}: run Spark there, or move events to disk there with Channel.flush() and do without a "
        "memory tier (memoryCapacity 0)"
    ) in str(e.value)
    with ss.Channel(path, create=False) as channel:
        assert channel.stats().drain_order == [ROWS], "the other host took the memory tier for lost"
    with pytest.raises(JobFailedError, match="OtherHostError"):
        far.driver.do("stream", source=path, target=far.shared / "moved", checkpoint=far.shared / "checkpoint")

    with ss.Channel(path, memory_capacity=0) as channel:
        channel.flush()
    assert far.driver.do("stream", source=path, target=far.shared / "moved", checkpoint=far.shared / "checkpoint") == 1
    assert far.driver.do("read", path=far.shared / "moved")["ids"] == list(range(ROWS))


def test_a_program_on_another_host_is_refused_until_the_memory_is_on_disk(far: Far) -> None:
    path = far.shared / "open"
    create(path, memory_capacity=100_000, lock_timeout=1, flush_on_close=False)
    fill(path)
    with ss.Channel(path, create=False) as channel:
        assert channel.stats().drain_order == [ROWS]
        assert is_elsewhere(far, path)
    assert is_elsewhere(far, path)
    with ss.Channel(path, create=False, flush_on_close=True) as channel:
        assert channel.stats().drain_order == [ROWS]
    assert opened_there(far, path) == ""


def is_elsewhere(far: Far, path: Path) -> bool:
    """Tell whether the other host says whose memory the channel is in."""
    said = opened_there(far, path)
    has_memory = re.search(rf"OtherHostError: {path} has the events .* in a memory tier in /dev/shm/", said)
    return bool(has_memory) and f"on the host {HERE}" in said


def opened_there(far: Far, path: Path) -> str:
    """Open a channel on the other host, and return what that says."""
    program = f"import spillable_stream as ss; ss.Channel({str(path)!r}, create=False).close()"
    enter = ["nsenter", "--target", str(far.worker), "--mount", "--uts"]
    done = subprocess.run([*enter, sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    return done.stderr


def test_another_host_stages_on_disk_what_is_put_to_a_channel_with_a_memory_tier(far: Far) -> None:
    path = far.shared / "staged"
    create(path, memory_capacity=100_000)
    with ss.Channel(path, create=False) as channel:
        channel.engine().memory.create()
        far.driver.do("write", path=path, rows=ROWS, body_bytes=LARGE)
        assert channel.stats().drain_order == [-ROWS]
    assert far.driver.do("read", path=path)["ids"] == list(range(ROWS))


# ── executors without the channel ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize("body_bytes", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("place", ["hidden", "foreign"])
def test_a_write_by_executors_without_the_channel_is_refused_before_it_grows(
    far: Far, place: str, body_bytes: int
) -> None:
    path = getattr(far, place) / f"channel{body_bytes}"
    before = tree_there(far, path.parent)
    with pytest.raises(JobFailedError) as e:
        far.driver.do("write", path=path, rows=ROWS, body_bytes=body_bytes)
    assert refusal(place, path) in str(e.value)
    assert tree_there(far, path.parent) == before, "a task wrote where the channel is not"
    assert verify(path).healthy
    with ss.Channel(path, create=False) as channel:
        assert channel.stats().drain_order == []


@pytest.mark.parametrize("place", ["hidden", "foreign"])
def test_a_read_by_executors_without_the_channel_is_refused(far: Far, place: str) -> None:
    path = getattr(far, place) / "channel"
    fill(path)
    with pytest.raises(JobFailedError) as e:
        far.driver.do("read", path=path)
    assert refusal(place, path) in str(e.value)


def test_a_query_on_executors_without_the_channel_fails_and_continues_once_they_have_it(far: Far) -> None:
    job = {"source": far.late / "channel", "target": far.late / "target", "checkpoint": far.late / "checkpoint"}
    fill(job["source"])
    with pytest.raises(JobFailedError) as e:
        far.driver.do("stream", **job)
    assert refusal("hidden", job["source"]) in str(e.value)

    subprocess.run(["nsenter", "--target", str(far.worker), "--mount", "umount", far.late], check=True)
    assert far.driver.do("stream", **job) == 1
    assert far.driver.do("read", path=job["target"])["ids"] == list(range(ROWS))


def fill(path: Path) -> None:
    """Put rows into a channel, which is created if it is missing."""
    rows = {"id": list(range(ROWS)), "writer": ["test"] * ROWS, "body": ["x"] * ROWS}
    with ss.Channel(path, schema=SCHEMA) as channel, channel.put_transaction() as tx:
        tx.put_batch(pa.table(rows, schema=SCHEMA))


def refusal(place: str, path: Path) -> str:
    """Return what a task without the channel says."""
    found = "no channel" if place == "hidden" else "another channel"
    return (
        f"NotAChannelError: the host {THERE} has {found} at {path}, and every "
        "executor must see the channel's directory: run Spark on the channel's host, or put the channel on a volume "
        "that all hosts have at the same path"
    )


def tree_there(far: Far, directory: Path) -> list[str]:
    """Return the names and sizes of all that the other host has in a directory."""
    found = Path(f"/proc/{far.worker}/root{directory}")
    return sorted(f"{p.relative_to(found)} {p.stat().st_size}" for p in found.rglob("*"))
