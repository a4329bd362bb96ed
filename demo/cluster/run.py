"""The demo on a cluster: real flights from host to host through an object store, while hosts' processes are killed.

Producers on one host put the flights into a channel in an object store. A query of a standalone Spark cluster copies
them to a second channel there: its executors are on the two other hosts, one of which has its driver, too, and the
three share no directory that can be written. In the middle the driver is killed, and started again from its checkpoint,
which is on its host's disk; later an executor is killed with its worker, and another worker takes its place. Then the
second channel is compared with the data set. Exits 1 if a flight is missing or counted twice.

python -m demo.cluster.run [--flights COUNT]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import spillable_stream as ss
from demo.cluster.hosts import DISK, TIED, Isolated, isolated_hosts, missing, own_network
from demo.cluster.moto import S3_ENVIRONMENT, make_bucket, moto_server
from demo.cluster.processes import end, kill, tail, wait_for_line
from demo.cluster.producer import FLIGHTS
from demo.cluster.pythons import quick_pythons
from demo.cluster.query import COUNTED, GROUP
from demo.cluster.report import Report, Row, verdict
from demo.cluster.standalone import CONFIGURATION, Standalone, standalone_master
from demo.flights import read_flights

SOURCE, TARGET = "s3://bucket/flights", "s3://bucket/counted"
ROLES = [
    "an executor; Spark's master; and the driver, whose checkpoint is on this host's disk",
    "two producers",
    "an executor",
]
PRODUCERS = 2
MICRO_BATCHES = 16
KILL_DRIVER_AT, KILL_WORKER_AT = 0.25, 0.6  # of all flights
LOOK_SECONDS = 0.5
END_SECONDS = 120.0
ROOT = Path(__file__).parents[2]


class Demo:
    """The programs of the demo on its hosts.

    Args:
        hosts: the driver's host, the producers' and the third.
        directory: where logs go, of a host that none of them sees.
        flights: how many there are.
        report: prints what happens.
        stack: ends what is started.
    """

    def __init__(
        self, hosts: Sequence[Isolated], directory: Path, flights: int, report: Report, stack: ExitStack
    ) -> None:
        self.near, self.east, self.west = hosts
        self.flights = flights
        self.report = report
        self._directory = directory
        self._stack = stack
        self._drivers = 0
        self.cluster: Standalone = stack.enter_context(standalone_master(directory, self.near))
        self.cluster.start_worker(self.near)
        self.worker: subprocess.Popen[bytes] = self.cluster.start_worker(self.west)
        self.cluster.wait_for_workers()
        report.event("started Spark's master and two workers; starting the driver")
        self.driver = self._start_driver()
        report.event("the driver's query runs; starting the producers")
        self.producers = [self._start_producer(share) for share in range(PRODUCERS)]

    def _start(self, host: Isolated, log: Path, *command: str, **more: Any) -> subprocess.Popen[bytes]:
        """Start a program of Python's on a host; it is ended with the demo."""
        local = {"SPARK_LOCAL_IP": host.address, "SPARK_LOCAL_DIRS": str(DISK), "PYSPARK_PYTHON": sys.executable}
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        with log.open("wb") as output:
            process = host.start(
                [sys.executable, "-m", *command],
                env={**os.environ, **local, "PYTHONPATH": path},
                stdout=output,
                stderr=output,
                **more,
            )
        self._stack.callback(end, process)
        return process

    def _start_producer(self, share: int) -> subprocess.Popen[bytes]:
        log = self._directory / f"producer-{share}.log"
        command = ["demo.cluster.producer", SOURCE, str(self.flights), str(share), str(PRODUCERS)]
        return self._start(self.east, log, *command, stdin=subprocess.DEVNULL)

    def _start_driver(self) -> subprocess.Popen[bytes]:
        """Start a driver from the checkpoint that there is, and wait until its query runs."""
        self._drivers += 1
        configuration = json.dumps(
            {**CONFIGURATION, "spark.master": self.cluster.url, "spark.driver.host": self.near.address}
        )
        command = ["demo.cluster.query", configuration, SOURCE, TARGET, str(DISK / "checkpoint")]
        per_trigger = str(-(-self.flights // MICRO_BATCHES))
        driver = self._start(self.near, self._driver_log(), *command, per_trigger, stdin=subprocess.PIPE)
        wait_for_line(driver, self._driver_log(), "(started)")
        return driver

    def _driver_log(self) -> Path:
        return self._directory / f"driver-{self._drivers}.log"

    def kill_driver(self, counted: int) -> None:
        """Kill the driver and start another one."""
        kill(self.driver)
        self.report.event(
            f"SIGKILL: the driver on {self.near.name} is gone, with {counted:,} of {self.flights:,} flights counted"
        )
        self.report.event("starting another driver from the checkpoint of the first one")
        self.driver = self._start_driver()
        self.report.event("the other driver's query runs")

    def kill_worker(self, counted: int) -> None:
        """Kill the worker of the third host, with its executor, and start another one."""
        kill(self.worker)
        self.report.event(
            f"SIGKILL: the worker on {self.west.name} and its executor are gone, with {counted:,} of "
            f"{self.flights:,} flights counted"
        )
        self.report.event(f"starting another worker on {self.west.name}")
        self.worker = self.cluster.start_worker(self.west)
        self.cluster.wait_for_workers()
        self.report.event("the other worker is there")

    def watch(self) -> None:
        """Print how far they are, and kill what must be killed, until all flights are counted."""
        self.report.legend()
        todo = [(KILL_DRIVER_AT, self.kill_driver), (KILL_WORKER_AT, self.kill_worker)]
        with ss.Channel(SOURCE, readonly=True) as source, ss.Channel(TARGET, readonly=True) as target:
            counted = 0
            while counted < self.flights or todo:
                stats, counted = source.stats(), target.stats().last_id
                group = stats.groups.get(GROUP)
                self.report.progress(stats.last_id, stats.last_id - group.lag if group else 0, counted)
                if todo and counted >= todo[0][0] * self.flights:
                    todo.pop(0)[1](counted)
                self._require_health()
                time.sleep(LOOK_SECONDS)

    def _require_health(self) -> None:
        """Raise if a program failed."""
        for share, producer in enumerate(self.producers):
            if producer.poll():
                raise RuntimeError(f"a producer failed:\n{tail(self._directory / f'producer-{share}.log')}")
        if self.driver.poll() is not None:
            raise RuntimeError(f"the driver failed:\n{tail(self._driver_log())}")

    def finish(self) -> None:
        """Let the query copy whatever is left, and end: nothing is counted after this."""
        for producer in self.producers:
            producer.wait(END_SECONDS)
        assert self.driver.stdin is not None
        self.driver.stdin.close()
        if self.driver.wait(END_SECONDS):
            raise RuntimeError(f"the driver failed:\n{tail(self._driver_log())}")


@contextmanager
def object_store(directory: Path, address: str) -> Iterator[str]:
    """Run an object store with the channels, empty; all that starts later finds it by its environment."""
    with moto_server(directory, address, TIED) as url:
        make_bucket(url, "bucket")
        os.environ.update({**S3_ENVIRONMENT, "AWS_ENDPOINT_URL": url, "AWS_ALLOW_HTTP": "true"})
        for channel, schema in (SOURCE, FLIGHTS), (TARGET, COUNTED):
            ss.Channel(channel, schema=schema).close()
        yield url


def counted_rows() -> Iterator[Row]:
    """Yield the flights of the second channel."""
    with ss.Channel(TARGET, readonly=True) as channel:
        for batch in channel.read():
            columns = (batch.column(name).to_pylist() for name in COUNTED.names)
            yield from zip(*columns, strict=True)


def run(flights: int | None) -> bool:
    """Run the demo with the first flights, and tell whether each was counted once."""
    carriers = [row["carrier"] for row in read_flights()[:flights]]
    print(f"{len(carriers):,} flights will go from {SOURCE} to {TARGET}; starting the hosts\n", flush=True)
    with tempfile.TemporaryDirectory(prefix="spillable-demo-") as name, ExitStack() as stack:
        directory = Path(name)
        address = own_network()
        quick_pythons()
        url = stack.enter_context(object_store(directory, address))
        hosts = stack.enter_context(isolated_hosts(["north", "east", "west"], directory))
        report = Report(len(carriers))
        report.hosts(hosts, ROLES, f"{url}, an S3 that moto plays")
        demo = Demo(hosts, directory, len(carriers), report, stack)
        demo.watch()
        demo.finish()
        return verdict(carriers, counted_rows())


def main() -> int:
    """Run the demo and return the exit status."""
    parser = argparse.ArgumentParser(description="Kill Spark's driver and an executor between channels in a store.")
    parser.add_argument("--flights", type=int, help="how many, the first ones; all by default")
    flights = parser.parse_args().flights
    if why := missing():
        print(f"make demo-cluster can't run: {why}", file=sys.stderr)
        return 1
    try:
        return 0 if run(flights) else 1
    except KeyboardInterrupt:
        print("\nstopped; the hosts are gone, with all that ran there", file=sys.stderr)
        return 130
    except RuntimeError as e:
        print(f"FAILED: {e}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    with ss.exit_on_sigterm():
        status = main()
    sys.exit(status)
