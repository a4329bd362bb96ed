"""Exactly once from channel to channel through Spark: SIGKILL of drivers and workers, at every step of the protocol."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.lab.size import sized
from tests.lab.spark_cluster import cluster
from tests.lab.spark_lab import Driver, Lab, Pipeline
from tests.lab.spark_points import MUTANTS
from tests.lab.spark_processes import end_session

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.timeout(7200)]

KINDS = ["map", "count"]
# In the order of a micro-batch. Spark's two logs are the JVM's own: before is a file it writes, after is its rename.
WORKERS_STEPS = [
    ("latestOffset", "before"),
    ("proven", "before"),
    ("proven", "after"),
    ("latestOffset", "after"),
    ("commit", "before"),
    ("commit", "after"),
    ("partitions", "before"),
    ("partitions", "after"),
    ("read", "before"),
    ("read", "after"),
    ("write", "before"),
    ("write", "midway"),
    ("write", "after"),
    ("publish", "before"),
    ("publish", "after"),
]
STEPS = [*WORKERS_STEPS, ("offsets", "before"), ("offsets", "after"), ("commits", "before"), ("commits", "after")]
FIRST_STEPS = [("initialOffset", "before"), ("initialOffset", "after")]
_LATER = {"proven", "commit"}  # not in a query's first batch
FIRST_BATCH = [*FIRST_STEPS, *(step for step in STEPS if step[0] not in _LATER)]

# A second attempt is started as soon as a task takes longer than the others.
SPECULATION = [
    "spark.speculation=true",
    "spark.speculation.interval=100ms",
    "spark.speculation.minTaskRuntime=100ms",
    "spark.speculation.multiplier=1.1",
    "spark.speculation.quantile=0.3",
    "spark.executor.memory=512m",
]

_PARTS = 4
_EXECUTOR_KILLS = 50
# CI runs the recipes of workers and failing tasks; its sample of killed drivers is `tests/spark/test_driver_kill.py`.
FULL_ONLY = pytest.mark.skipif(not sized(ci=0, full=1), reason="only with CRASH_SIZE=full")


# CI's sample of what is killed beside an object store is in `tests/spark/test_driver_kill.py`, too.
WHERE = pytest.mark.parametrize("where", ["", *([" stored"] if sized(ci=0, full=1) else [])])


@pytest.fixture(scope="module")
def drivers() -> Iterator[list[Driver]]:
    """The drivers that recipes shared, the last one of which may be idle."""
    made: list[Driver] = []
    yield made
    for driver in made:
        end_session(driver.process.pid)
        driver.process.wait()


@pytest.fixture
def first(drivers: list[Driver], tmp_path_factory: pytest.TempPathFactory) -> Driver:
    """A driver that waits for pipelines: that of the recipe before, if it was not killed."""
    if not drivers or not drivers[-1].is_idle():
        drivers.append(Driver(tmp_path_factory.mktemp("driver") / "driver.log"))
        drivers[-1].has_begun()
    return drivers[-1]


def points(steps: list[tuple[str, str]], rng: random.Random, where: str = "") -> list[tuple[str, str, str]]:
    """Return every step of both kinds of query, in any order."""
    return rng.sample([(f"{kind}{where}", *step) for kind in KINDS for step in steps], 2 * len(steps))


def kinds_of(where: str) -> list[str]:
    """Return the names of a pipeline of each kind, on a disk or in a store."""
    return [f"{kind}{where}" for kind in KINDS]


@FULL_ONLY
@WHERE
@pytest.mark.parametrize("part", range(2 * _PARTS))
def test_every_row_is_there_once_though_drivers_are_killed_at_every_step(tmp_path: Path, part: int, where: str) -> None:
    """The first four parts are every step once, the others with the other kind of death; then moments at random."""
    rng = random.Random(20261121)
    killed = points(STEPS, rng, where)[part % _PARTS :: _PARTS]
    effects = ["driver", "jvm"] if part < _PARTS else ["jvm", "driver"]
    with Lab(tmp_path, kinds_of(where), seed=part) as lab:
        for i, point in enumerate([(k, *s) for k in kinds_of(where) for s in FIRST_STEPS]):
            lab.kill_at(*point, effects[i % 2])
        for i, point in enumerate(killed):
            lab.kill_at(*point, effects[i % 2], passes=rng.randint(0, 1))
        for i in range(4):
            lab.kill_at_random(effects[i % 2])
        lab.drain()
        assert lab.wrongs() == []
        assert lab.driver_kills() == 4 + len(killed) + 4


@WHERE
def test_every_row_is_there_once_though_workers_are_killed_at_every_step(
    first: Driver, tmp_path: Path, where: str
) -> None:
    """The driver lives on; its query fails, and is started again from its checkpoint."""
    rng = random.Random(1)
    kinds = kinds_of(where)
    with Lab(tmp_path, kinds, first=first) as lab:
        for point in [(k, *s) for k in kinds for s in FIRST_STEPS][: sized(ci=1, full=4)]:
            lab.kill_at(*point, "worker")
        for _ in range(sized(ci=1, full=3)):
            early = [(kind, "proven", when) for kind in kinds for when in ("before", "after")]
            for point in [*early[:: sized(ci=3, full=1)], *points(WORKERS_STEPS, rng, where)[: sized(ci=3, full=100)]]:
                lab.kill_at(*point, "worker", passes=rng.randint(0, 2))
        lab.drain()
        assert lab.wrongs() == []


SEVERAL_CHANNELS = ["shards", "flow", "gather"]
_STORED = [f"{kind} stored" for kind in SEVERAL_CHANNELS if kind != "flow"]


@pytest.mark.parametrize("effect", ["worker", *(["driver", "jvm"] if sized(ci=0, full=1) else [])])
def test_every_row_is_in_one_of_several_channels_once_though_a_batch_dies_between_two_of_them(
    first: Driver, tmp_path: Path, effect: str
) -> None:
    rng = random.Random(4)
    kinds = [*SEVERAL_CHANNELS, *(_STORED if sized(ci=0, full=1) else [])]
    steps = [("channel", "after"), ("write", "midway"), ("write", "after"), ("publish", "before"), ("publish", "after")]
    with Lab(tmp_path, kinds, first=first) as lab:
        for kind in kinds:
            for step in steps[: sized(ci=1, full=5)]:
                lab.kill_at(kind, *step, effect, passes=rng.randint(0, 1))
        if effect != "worker":
            for _ in range(4):
                lab.kill_at_random(effect)
        lab.drain()
        assert lab.wrongs() == []


@pytest.mark.parametrize("effect", ["worker", *(["driver", "jvm"] if sized(ci=0, full=1) else [])])
def test_a_first_batch_that_is_killed_anywhere_leaves_its_query_one_group(
    first: Driver, tmp_path: Path, effect: str
) -> None:
    """The query has no `group`: it makes one, which its checkpoint names from the first batch on."""
    steps = [step for step in FIRST_BATCH if effect != "worker" or step[0] not in ("offsets", "commits")]
    with Lab(tmp_path, [], first=first) as lab:
        for step, when in steps[:: sized(ci=5, full=1)]:
            name = f"map {step} {when}"
            lab.pipelines = [Pipeline(tmp_path / name)]
            lab.kill_at(name, step, when, effect)
            lab.drain()
            assert lab.wrongs() == []
            assert lab.pipeline(name).wrong_groups() == []


def test_tasks_that_fail_after_they_staged_leave_nothing_behind(tmp_path: Path) -> None:
    with Lab(tmp_path, [*KINDS, "delay"], master="local[2,4]") as lab:
        for i, kind in enumerate([*KINDS, "delay"]):
            effects = ("fail", "worker")
            for step in [("read", "after"), ("write", "midway"), ("write", "after")][-sized(ci=1, full=3) :]:
                for effect in sized(ci=effects[i % 2 :][:1], full=effects):
                    lab.kill_at(kind, *step, effect)
        lab.drain()
        assert lab.wrongs() == []
        assert [f for p in lab.pipelines for f in p.failures() if "connect back" not in f] == [], (
            "tasks are tried again"
        )


def has_done(pipeline: Pipeline, batches: int) -> bool:
    """Tell whether a pipeline's query has done so many batches."""
    return pipeline.batches() >= batches


@FULL_ONLY
@WHERE
def test_killed_executors_and_attempts_that_were_overtaken_leave_nothing_behind(tmp_path: Path, where: str) -> None:
    """On a cluster: an attempt stands still, before or after it staged, till Spark's second one has won."""
    with cluster(tmp_path) as master, Lab(tmp_path, kinds_of(where), master=master, settings=SPECULATION) as lab:
        for pipeline in lab.pipelines:
            for step in [("write", "before"), ("write", "midway"), ("write", "after")]:
                for effect in ("wait", "executor"):
                    lab.kill_at(pipeline.directory.name, *step, effect)
                    # Spark speculates only on a host that has seen no attempt of the task: to the batch after the next.
                    lab.run_until(partial(has_done, pipeline, pipeline.batches() + 2), f"two batches after {effect}")
        lab.drain()
        assert lab.wrongs() == []
        assert [f for p in lab.pipelines for f in p.failures() if "connect back" not in f] == [], (
            "tasks are tried again"
        )


@FULL_ONLY
@WHERE
def test_every_row_is_there_once_though_executors_are_killed_at_random(tmp_path: Path, where: str) -> None:
    with cluster(tmp_path) as master, Lab(tmp_path, kinds_of(where), master=master, settings=SPECULATION) as lab:
        for _ in range(_EXECUTOR_KILLS):
            lab.kill_at_random("executor")
        lab.drain()
        assert lab.wrongs() == []


@FULL_ONLY
@pytest.mark.parametrize(
    ("step", "when"), [("publish", "before"), ("write", "midway"), ("write", "after"), ("commit", "before")]
)
@pytest.mark.parametrize("kind", [*KINDS, "delay", *kinds_of(" stored")])
def test_a_zombie_of_a_killed_driver_changes_nothing(tmp_path: Path, kind: str, step: str, when: str) -> None:
    """It goes on with its step when the next driver has done it, and more."""
    with Lab(tmp_path, [kind]) as lab:
        pipeline = lab.pipeline(kind)
        lab.run_until(partial(has_done, pipeline, 2), "two batches")
        zombie = lab.driver()
        lab.kill_at(kind, step, when, "zombie")
        lab.run_until((pipeline.directory / "waiting").exists, "the zombie")
        if step != "commit":  # the source's zombie owns its group: no other driver works before it is gone
            lab.run_until(partial(has_done, pipeline, pipeline.batches() + 2), "the next driver's batches")
        (pipeline.directory / "wake").touch()
        lab.run_until(zombie.is_gone, "the zombie's end")
        lab.drain()
        assert lab.wrongs() == []


@FULL_ONLY
@pytest.mark.parametrize("effect", ["driver", "worker"])
def test_every_delayed_row_is_there_once_though_what_stages_and_publishes_it_is_killed(
    tmp_path: Path, effect: str
) -> None:
    with Lab(tmp_path, ["delay"]) as lab:
        for step in WORKERS_STEPS[WORKERS_STEPS.index(("write", "before")) :]:
            lab.kill_at("delay", *step, effect)
        lab.drain()
        assert lab.wrongs() == []


# ── the laboratory itself ───────────────────────────────────────────────────────────────────────

CAUGHT = {
    "forgets the batch": ("publish", "after", "doubled"),
    "publishes in write": ("publish", "before", "doubled"),
    "reads past the batch": ("publish", "after", "lost"),
    "starts anew": ("latestOffset", "after", "lost"),
}


def test_a_connector_that_is_broken_is_caught(first: Driver, tmp_path: Path) -> None:
    with Lab(tmp_path, [], first=first) as lab:
        for mutant, (step, when, noticed) in list(CAUGHT.items())[: sized(ci=2, full=4)]:
            lab.pipelines = [Pipeline(tmp_path / f"map {mutant}", mutant)]
            lab.kill_at(f"map {mutant}", step, when, "worker")
            lab.drain()
            wrong = lab.wrongs()
            assert any(word in w for word in noticed.split("|") for w in wrong), (mutant, wrong)


def test_every_broken_connector_has_a_kill_that_shows_it() -> None:
    assert CAUGHT.keys() == MUTANTS.keys()
