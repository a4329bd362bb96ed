"""Pipelines through Spark that are killed: what feeds them, runs their drivers, and checks what came out."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import spillable_stream as ss
from spillable_stream.engine.automatic_groups import UNPLANNED_SECONDS, AutomaticGroups
from spillable_stream.integrity.verify import verify
from tests.lab.spark_driver import BATCH_EVENTS, DELAY_SECONDS, WINDOW_SECONDS
from tests.lab.spark_points import arm, channels_of, is_armed, is_stored, kind_of
from tests.lab.spark_processes import end_session, executors, processes_of

__all__ = ["Driver", "Lab", "Pipeline"]

ROOT = Path(__file__).parents[2]
LONG_SECONDS = 300.0  # until a thing that should have happened counts as a failure, on a busy machine too

_FIRST_SECOND = 1_000_000_000
_KEYS = 3
_BACKLOG_EVENTS = 12 * BATCH_EVENTS
_LARGE_BYTES = 3_000


def size_bytes(number: int) -> int:
    """Return how large an event is: some are large, so that some tasks stage a segment and some do not."""
    return _LARGE_BYTES if number // 70 % 4 == 0 and number % 7 == 0 else 8 + number % 5


def second(number: int) -> int:
    """Return an event's time: in order but for less than the watermark's delay, so that none is late."""
    return _FIRST_SECOND + number // 2 + number * 7919 % (DELAY_SECONDS - 2)


def event(number: int, seconds: int, key: str) -> ss.Event:
    return ss.Event(b"%08d" % number + b"x" * (size_bytes(number) - 8), {"time": str(seconds), "key": key})


class Pipeline:
    """A channel or several, a query, another channel or several; the directory's name says which query.

    Args:
        directory: where all of it is; its name begins with a word of `spark_driver.KINDS`, and "stored" follows if its
            channels are in an object store.
        mutant: how the connector is broken; one of `spark_points.MUTANTS`.
    """

    def __init__(self, directory: Path, mutant: str = "") -> None:
        self.directory = directory
        self.count = 0  # of events that were put and acknowledged
        (directory / "bombs").mkdir(parents=True)
        if mutant:
            (directory / "mutant").write_text(mutant)
        options = {"commit_interval": 0, "gc_delay": 0} if is_stored(directory) else {"minimum_required_space": 0}
        self.sources = [
            ss.Channel(place, checkpoint_interval=1000, **options)  # type: ignore[arg-type]
            for place in channels_of(directory, "source")
        ]

    def feed(self, events: int) -> None:
        """Put a transaction, into each source in turn, unless the query is far behind."""
        self.sources.append(self.sources.pop(0))
        if self.sources[0].stats().channel_size < _BACKLOG_EVENTS:
            numbers = range(self.count, self.count + events)
            with self.sources[0].put_transaction() as tx:
                tx.put_many(event(n, second(n), str(n % _KEYS)) for n in numbers)
            self.count += events

    def close(self) -> None:
        """Put an event that is so late that the watermark passes all windows before it, and close the sources."""
        with self.sources[0].put_transaction() as tx:
            tx.put(event(self.count, second(self.count) + 100_000, "end"))
        self.leave()

    def leave(self) -> None:
        """Close the sources."""
        for source in self.sources:
            source.close()

    def batches(self) -> int:
        """Return how many micro-batches Spark has in its commit log."""
        with contextlib.suppress(FileNotFoundError):
            return sum(name.isdigit() for name in os.listdir(self.directory / "checkpoint" / "commits"))
        return 0

    def failures(self) -> list[str]:
        """Return why the query failed, each time that its driver survived."""
        file = self.directory / "failures"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    # ── the verdict ─────────────────────────────────────────────────────────────────────────

    def wrongs(self) -> list[str]:
        """Return what is wrong with a pipeline that was closed and drained."""
        if not (self.directory / "found").exists():
            return [f"{self.directory.name} was not drained"]
        rows = [tuple(row) for row in json.loads((self.directory / "found").read_text())]
        wrong = self._wrong_windows(rows) if kind_of(self.directory) == "count" else self._wrong_rows(rows)
        places = [place for end in ("source", "target") for place in channels_of(self.directory, end)]
        wrong += [w for place in places for w in self._wrong_files(place)]
        wrong += [f"failed with {f}" for f in self.failures() if "DataLoss" in f or "Corruption" in f]
        return [f"{self.directory.name}: {w}" for w in wrong]

    def _wrong_rows(self, rows: list[tuple[int, ...]]) -> list[str]:
        """Compare the rows of ``mapped`` with the events that were put: each once, whole, in order unless delayed."""
        wrong = _wrong_counts(Counter(row[0] for row in rows), dict.fromkeys(range(self.count + 1), 1), "event")
        wrong += [f"event {n} has {size} bytes" for n, size, _ in rows if size != size_bytes(n)]
        if not wrong and kind_of(self.directory) == "map" and [row[0] for row in rows] != list(range(self.count + 1)):
            wrong.append("the events are not in order")
        return wrong

    def _wrong_windows(self, rows: list[tuple[int, str, int, int]]) -> list[str]:
        """Compare the rows of ``counted`` with the events that were put: each window once, with the whole count."""
        expected: dict[tuple[int, str], list[int]] = defaultdict(list)
        for n in range(self.count):
            expected[second(n) // WINDOW_SECONDS * WINDOW_SECONDS, str(n % _KEYS)].append(n)
        wrong = _wrong_counts(Counter((s, key) for s, key, _, _ in rows), dict.fromkeys(expected, 1), "window")
        for start, key, events, total in rows:
            if (events, total) != (len(expected[start, key]), sum(expected[start, key])):
                wrong.append(f"window {start} of {key} has {events} events, not {len(expected[start, key])}")
        return wrong

    def _wrong_files(self, place: str) -> list[str]:
        """Create a checkpoint of a channel and return what is damaged, and what nobody needs and is there.

        In a store what nobody adopted stays for `stagingTtl`.
        """
        name, orphans = place.rpartition("/")[2], set[str]()
        with ss.Channel(place, create=False) as channel:
            channel.checkpoint()
            if not is_stored(self.directory):
                engine = channel.engine()
                with engine.snapshot() as state:
                    orphans = set(engine.layout.segments(engine.fs)) - state.segments()
        found = verify(place)
        return [f"{name} keeps {orphan}, which nobody needs" for orphan in sorted(orphans)] + (
            [] if found.healthy else [f"{name} is damaged: {found.findings}"]
        )

    def wrong_groups(self) -> list[str]:
        """Return what is wrong with the source's groups, once its upkeep has looked at them for a while."""
        with ss.Channel(self.directory / "source", create=False) as channel:
            engine = channel.engine()
            upkeep = AutomaticGroups(engine.log, engine.follower, engine.appender, engine.owners)
            for _ in range(4):
                upkeep.look(int(UNPLANNED_SECONDS * 1000) // 2)
            groups = engine.follow().groups
        name = self._named_group()
        if list(groups) != [name] or not groups[name].has_planned:
            return [f"{self.directory.name}: the groups are {groups}; the query's is {name}"]
        return []

    def _named_group(self) -> str:
        """Return which group the query's checkpoint names."""
        offsets = self.directory / "checkpoint" / "offsets"
        newest = max((f for f in offsets.iterdir() if f.name.isdigit()), key=lambda f: int(f.name))
        return str(json.loads(newest.read_text().splitlines()[-1])["group"])


def _wrong_counts(found: Counter, expected: dict, what: str) -> list[str]:
    lost = sorted(expected.keys() - found.keys())
    invented = sorted(found.keys() - expected.keys())
    doubled = sorted(k for k, n in found.items() if n > 1)
    named = [("lost", lost), ("invented", invented), ("doubled", doubled)]
    return [f"{len(keys)} {what}s {word}, {keys[0]} to {keys[-1]}" for word, keys in named if keys]


# ── drivers ─────────────────────────────────────────────────────────────────────────────────────


class Driver:
    """A Spark driver, in a session of its own; it starts up, and waits for `begin`."""

    def __init__(self, log: Path, master: str = "local[2]", settings: Sequence[str] = ()) -> None:
        self.log = log
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.lab.spark_driver", master, *settings],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("a"),
            cwd=log.parent,
            env={**os.environ, "PYTHONPATH": path, "SPARK_LOCAL_IP": "127.0.0.1"},
            text=True,
            start_new_session=True,
        )
        self._waits = False

    def has_begun(self) -> None:
        """Wait until it has a session."""
        self.wait_for("READY")
        self._waits = True

    def is_idle(self) -> bool:
        """Tell whether it waits for pipelines."""
        return self._waits and not self.has_ended()

    def begin(self, pipelines: Sequence[Pipeline]) -> None:
        """Start the pipelines' queries."""
        self._waits = False
        self.say(json.dumps([str(p.directory) for p in pipelines]))
        self.wait_for("STARTED")

    def drain(self) -> None:
        """Have the queries move what there is, and wait for their end."""
        self.say("drain")
        self.wait_for("DONE")
        self._waits = True

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def wait_for(self, word: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.strip() == word:
                return
        raise AssertionError(f"the driver ended without {word}:\n{self.log.read_text()[-3000:]}")

    def is_gone(self) -> bool:
        """Tell whether nothing is left of it, no worker either."""
        self.process.poll()
        return not list(processes_of(self.process.pid))

    def has_jvm(self) -> bool:
        """Tell whether its JVM is alive."""
        return any(name == "java" for _, name in processes_of(self.process.pid))

    def has_ended(self) -> bool:
        """Tell whether the driver's own process has ended."""
        return self.process.poll() is not None


class Lab:
    """Pipelines and the drivers that run them, one after another; the next one starts up while one works.

    Args:
        directory: where all of it is.
        kinds: the pipelines' names.
        seed: of the feeding.
        master: Spark's master.
        settings: Spark's settings, each KEY=VALUE.
        first: the first driver, which is idle; it stays if it is idle in the end, too.
    """

    def __init__(
        self,
        directory: Path,
        kinds: Sequence[str] = ("map", "count"),
        seed: int = 20261121,
        master: str = "local[2]",
        settings: Sequence[str] = (),
        first: Driver | None = None,
    ) -> None:
        self.directory = directory
        self.rng = random.Random(seed)
        self.pipelines = [Pipeline(directory / kind) for kind in kinds]
        self.kills: Counter[str] = Counter()
        self.drivers: list[Driver] = [first] if first else []
        self._how = (master, settings)
        self._first = self._driver = first
        self._next: Driver | None = None

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        for driver in self.drivers:
            if driver is not self._first or not driver.is_idle():
                end_session(driver.process.pid)
                driver.process.wait()
        for pipeline in self.pipelines:
            pipeline.leave()

    def start_up(self) -> None:
        """Start the driver after this one, which waits for its turn."""
        if self._next is None:
            self._next = Driver(self.directory / "driver.log", *self._how)
            self.drivers.append(self._next)

    def driver(self, *only: Pipeline) -> Driver:
        """Return the driver that runs; if there is none, a new one, with all pipelines or only some."""
        if self._driver is not None and self._driver.has_ended():
            self._driver = None
        if self._driver is None:
            self.start_up()
            assert self._next is not None
            self._driver, self._next = self._next, None
            self._driver.has_begun()
        if self._driver.is_idle():
            self._driver.begin(only or self.pipelines)
        return self._driver

    def feed(self) -> None:
        """Put something into every source."""
        for pipeline in self.pipelines:
            pipeline.feed(self.rng.randint(1, BATCH_EVENTS))
        time.sleep(0.1)

    def kill_at(self, kind: str, step: str, when: str, effect: str, passes: int = 0) -> None:
        """Kill at a step, and see that it happened.

        Args:
            kind: the pipeline's name.
            step: the step, as in `spark_points.arm`.
            when: "before" or "after".
            effect: what the bomb does.
            passes: how many calls come through first.
        """
        pipeline = self.pipeline(kind)
        arm(pipeline.directory, step, when, effect, passes)
        lethal = effect in ("driver", "jvm", "zombie")
        driver = self.driver(pipeline) if lethal else self.driver()
        if lethal:
            self.start_up()
        deadline = time.monotonic() + LONG_SECONDS
        while is_armed(pipeline.directory):
            assert time.monotonic() < deadline, f"nothing came {when} {step}: {driver.log.read_text()[-3000:]}"
            ended = driver.has_ended()
            assert not (ended and is_armed(pipeline.directory)), driver.log.read_text()[-3000:]
            self.feed()
        if lethal:
            while driver.has_jvm():
                assert time.monotonic() < deadline, f"the JVM lives on {when} {step}"
                time.sleep(0.01)
            self._driver = None  # whatever lives on of it is in the next one's way, as it should be
        self._note(f"{kind} {step} {when} {effect}")

    def kill_at_random(self, effect: str) -> None:
        """Kill all of a "driver" from outside, or its JVM with the process group ("jvm"), or the JVM of an "executor".

        The cluster of an executor has its work in the lab's directory; Spark starts another one, and the driver lives.
        """
        driver = self.driver()
        if effect == "executor":
            self._feed_for_a_while(driver, until_batch=True)
            self._kill_executor(driver)
        else:
            self.start_up()
            self._feed_for_a_while(driver, until_batch=self.rng.random() < 0.7)  # the others die while they start
            if effect == "driver":
                end_session(driver.process.pid)
            else:
                os.killpg(driver.process.pid, signal.SIGKILL)
            driver.process.wait()
            self._driver = None
        self._note(f"at random {effect}")

    def _feed_for_a_while(self, driver: Driver, *, until_batch: bool) -> None:
        """Feed, until a batch is done or at once, and for up to 3 s more."""
        before = [p.batches() for p in self.pipelines]
        if until_batch:
            deadline = time.monotonic() + LONG_SECONDS
            while all(p.batches() == b for p, b in zip(self.pipelines, before, strict=True)):
                assert time.monotonic() < deadline, driver.log.read_text()[-3000:]
                self.feed()
        until = time.monotonic() + self.rng.uniform(0, 3)
        while time.monotonic() < until:
            self.feed()

    def _kill_executor(self, driver: Driver) -> None:
        deadline = time.monotonic() + LONG_SECONDS
        while not (found := executors(self.directory)):
            assert time.monotonic() < deadline, driver.log.read_text()[-3000:]
            self.feed()
        with contextlib.suppress(ProcessLookupError):  # it ended meanwhile, with an application that had
            os.kill(self.rng.choice(found), signal.SIGKILL)

    def _note(self, kill: str) -> None:
        self.kills[kill] += 1
        with (self.directory / "kills").open("a") as file:
            print(time.strftime("%H:%M:%S"), kill, [(p.count, p.batches()) for p in self.pipelines], file=file)

    def driver_kills(self) -> int:
        """Return how many drivers were killed."""
        return sum(n for kill, n in self.kills.items() if kill.split()[-1] in ("driver", "jvm", "zombie"))

    def pipeline(self, name: str) -> Pipeline:
        """Return a pipeline by its name."""
        return next(p for p in self.pipelines if p.directory.name == name)

    def drain(self) -> None:
        """Let the driver that runs, or one more, move what is left."""
        for pipeline in self.pipelines:
            pipeline.close()
        self.driver().drain()

    def run_until(self, condition: Callable[[], bool], what: str) -> None:
        """Feed, and have a driver at work, until something is so."""
        deadline = time.monotonic() + LONG_SECONDS
        while not condition():
            driver = self.driver()
            assert time.monotonic() < deadline, f"{what} never came: {driver.log.read_text()[-3000:]}"
            self.feed()

    def wrongs(self) -> list[str]:
        """Return what is wrong with the drained pipelines."""
        return [w for p in self.pipelines for w in p.wrongs()]
