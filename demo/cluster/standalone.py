"""A standalone Spark cluster: a master, and workers that come and go, each on a host of its own or on this one.

Every daemon is a process of its own, in a process group of its own.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pyspark

from demo.cluster.hosts import Host
from demo.cluster.processes import end, wait_for_line

__all__ = ["CONFIGURATION", "Standalone", "spark_daemon", "standalone_master"]

_SPARK = Path(pyspark.__file__).parent
_QUICK_START = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # of JVMs that live for a minute

# What sessions on a small cluster have.
CONFIGURATION = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": _QUICK_START,
    "spark.executor.extraJavaOptions": _QUICK_START,
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.sql.shuffle.partitions": "2",
    # Tasks begin when all executors are there, so that each gets some.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
}


class Standalone:
    """A cluster; `standalone_master` makes it.

    Args:
        url: the master's, for sessions.
        directory: where logs go.
        stack: ends the workers.
    """

    def __init__(self, url: str, directory: Path, stack: ExitStack) -> None:
        self.url = url
        self._directory = directory
        self._stack = stack
        self._workers: list[tuple[subprocess.Popen[bytes], Path]] = []

    def start_worker(self, host: Host) -> subprocess.Popen[bytes]:
        """Start a worker with one core, so with one executor."""
        number = len(self._workers)
        work, log = (host.disk or self._directory) / f"work-{number}", self._directory / f"worker-{number}.log"
        command = f"spark-class org.apache.spark.deploy.worker.Worker --host {host.address} --webui-port 0 --cores 1"
        rest = ["--memory", "600m", "--work-dir", str(work), self.url]
        process = self._stack.enter_context(spark_daemon([*command.split(), *rest], log, host))
        self._workers.append((process, log))
        return process

    def wait_for_workers(self) -> None:
        """Return once the master knows all workers that were started, but for those that have ended.

        Raises:
            RuntimeError: they have not come in time.
        """
        for process, log in self._workers:
            if process.poll() is None:
                wait_for_line(process, log, "(Successfully registered with master)")


@contextlib.contextmanager
def standalone_master(directory: Path, master: Host) -> Iterator[Standalone]:
    """Run a master, and the workers that are started.

    Args:
        directory: an empty directory of this host's, for logs, and for the work of workers on hosts without a disk.
        master: where the master is.
    """
    with ExitStack() as stack:
        log = directory / "master.log"
        command = f"spark-class org.apache.spark.deploy.master.Master --host {master.address} --port 0 --webui-port 0"
        daemon = stack.enter_context(spark_daemon(command.split(), log, master))
        url = wait_for_line(daemon, log, r"Starting Spark master at (spark://\S+)")
        wait_for_line(daemon, log, "(I have been elected leader)")  # from here on it takes workers
        yield Standalone(url, directory, stack)


@contextlib.contextmanager
def spark_daemon(command: Sequence[str], log: Path, host: Host) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program of Spark's in the foreground of a process group of its own, and end it.

    Args:
        command: the program's name and its arguments.
        log: where its output goes; beside it is its scratch space, on a host without a disk.
        host: where it runs.
    """
    program, *arguments = command
    scratch = str(host.disk or log.parent)
    environment = {
        **os.environ,
        "SPARK_HOME": str(_SPARK),
        "SPARK_CONF_DIR": f"{scratch}/none",  # nobody's
        "SPARK_LOCAL_DIRS": scratch,
        "SPARK_LOCAL_IP": host.address,
        "SPARK_DAEMON_MEMORY": "512m",
        "SPARK_DAEMON_JAVA_OPTS": f"{_QUICK_START} {os.environ.get('SPARK_DAEMON_JAVA_OPTS', '')}",
        "PYSPARK_PYTHON": sys.executable,
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*host.enter, str(_SPARK / "bin" / program), *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        end(process)
