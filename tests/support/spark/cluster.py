"""Spark clusters on one machine: a standalone master with workers, here or on another "host", and a Connect server.

Every daemon and every driver is a process of its own, in a process group of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from demo.cluster.hosts import Host, lacks
from demo.cluster.processes import LOOPBACK, end, wait_for_line
from demo.cluster.standalone import CONFIGURATION as QUICK
from demo.cluster.standalone import spark_daemon, standalone_master
from tests.support.spark.class_archive import with_archive

__all__ = [
    "CONFIGURATION",
    "THIS_HOST",
    "Driver",
    "Host",
    "JobFailedError",
    "connect_server",
    "driver",
    "missing",
    "other_host",
    "standalone",
]

_TOOLS = {
    **dict.fromkeys(("mount", "nsenter", "unshare"), "util-linux"),
    "hostname": "hostname",
    "ip": "iproute2",
}

# What all sessions of these tests have.
CONFIGURATION = {**QUICK, "spark.task.maxFailures": "1", "spark.executor.extraJavaOptions": with_archive()}

THIS_HOST = Host(LOOPBACK, os.uname().nodename)


def missing() -> str:
    """Return what this machine lacks for `other_host`, or nothing."""
    return lacks(_TOOLS, "unshare --net --mount --uts ip link add one type veth peer name other")


@contextmanager
def other_host(name: str, hidden: Sequence[Path], foreign: tuple[Path, Path]) -> Iterator[tuple[Host, Host]]:
    """Make another host: a network, a name, shared memory and mounts of its own. Root only.

    Args:
        name: its name.
        hidden: directories that are empty there.
        foreign: a directory, and the one that is there in its place.

    Yields:
        This host, as that one sees it, and that one.
    """
    network, number = f"spillable-{os.getpid()}", os.getpid() % 16384
    near, far = (f"198.18.{number // 64}.{number % 64 * 4 + i}" for i in (1, 2))
    with ExitStack() as stack:
        _run("ip", "netns", "add", network)
        stack.callback(_run, "ip", "netns", "delete", network)  # and both ends of the cable
        cable = f"spl{os.getpid()}"
        _run("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", network)
        stack.callback(_run, "ip", "link", "delete", cable)
        _run("ip", "address", "add", f"{near}/30", "dev", cable)
        _run("ip", "link", "set", cable, "up")
        _run("ip", "-n", network, "address", "add", f"{far}/30", "dev", "eth0")
        _run("ip", "-n", network, "link", "set", "eth0", "up")
        _run("ip", "-n", network, "link", "set", "lo", "up")
        hosts = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "hosts"
        hosts.write_text(f"127.0.0.1 localhost\n{far} {name}\n")  # Java asks for its own host's address
        steps = [f"hostname {name}", f"mount --bind '{hosts}' /etc/hosts"]
        steps += [f"mount -t tmpfs tmpfs '{path}'" for path in (Path("/dev/shm"), *hidden)]
        steps += [f"mount --bind '{foreign[1]}' '{foreign[0]}'", 'exec "$@"']
        enter = ["ip", "netns", "exec", network, "unshare", "--mount", "--uts", "--propagation", "private"]
        enter += ["sh", "-c", " && ".join(steps), "sh"]
        yield Host(near, os.uname().nodename), Host(far, name, enter)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=60)


@contextmanager
def standalone(directory: Path, master: Host, workers: Sequence[Host]) -> Iterator[tuple[str, list[int]]]:
    """Run a standalone cluster, with one core and one executor for each worker.

    Args:
        directory: an empty directory for logs and work.
        master: where the master is.
        workers: where the workers are.

    Yields:
        The master's URL, and the workers' process IDs.
    """
    with standalone_master(directory, master) as cluster:
        pids = [cluster.start_worker(host).pid for host in workers]
        cluster.wait_for_workers()
        yield cluster.url, pids


@contextmanager
def connect_server(directory: Path) -> Iterator[str]:
    """Run a Spark Connect server with a local master, and yield its URL."""
    log = directory / "connect.log"
    configuration = {
        **CONFIGURATION,
        "spark.master": "local[2]",
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": "0",
    }
    command = ["spark-submit", "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += [part for item in configuration.items() for part in ("--conf", "=".join(item))]
    with spark_daemon([*command, "spark-internal"], log, THIS_HOST) as daemon:
        port = wait_for_line(daemon, log, r"Spark Connect server started at: \S+:(\d+)")
        yield f"sc://{LOOPBACK}:{port}"


class JobFailedError(Exception):
    """A driver's job raised; the text is what its user sees.

    Attributes:
        explained: what `spillable_stream.spark.explain` says of it.
    """

    def __init__(self, text: str, explained: str) -> None:
        super().__init__(text)
        self.explained = explained


class Driver:
    """A driver process; `do` has it do a job of ``cluster_driver.py``.

    Args:
        process: the process.
        log: where its standard error goes.
    """

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    def do(self, job: str, **arguments: Any) -> Any:
        """Do a job and return its result.

        Raises:
            JobFailedError: it raised.
        """
        assert self._process.stdin is not None
        values = {k: str(v) if isinstance(v, Path) else v for k, v in arguments.items()}
        self._process.stdin.write(json.dumps([job, values]) + "\n")
        self._process.stdin.flush()
        return self.answer()

    def answer(self) -> Any:
        """Wait for the answer to a job."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the driver ended:\n{self._log.read_text()[-3000:]}"
        word, result = json.loads(line)
        if word == "failed":
            raise JobFailedError(*result)
        return result


@contextmanager
def driver(directory: Path, configuration: dict[str, str], address: str = LOOPBACK) -> Iterator[Driver]:
    """Run a driver.

    Args:
        directory: an empty directory for its log and its scratch files.
        configuration: Spark's, for the session.
        address: this host's address, as executors see it.
    """
    log = directory / "driver.log"
    program = Path(__file__).with_name("cluster_driver.py")
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": address,
        "SPARK_LOCAL_DIRS": str(directory),
        "PYSPARK_PYTHON": sys.executable,
    }
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, str(program), json.dumps(configuration)],
            cwd=directory,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
    try:
        found = Driver(process, log)
        found.answer()
        yield found
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)
    finally:
        end(process)
