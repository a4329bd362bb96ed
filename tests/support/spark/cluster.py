"""Spark clusters on one machine: a standalone master with workers, here or on another "host", and a Connect server.

Every daemon and every driver is a process of its own, in a process group of its own.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pyspark

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

_SPARK = Path(pyspark.__file__).parent
_START_SECONDS = 300.0
_LOOPBACK = "127.0.0.1"
_QUICK_START = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # of JVMs that live for a minute

# What all sessions of these tests have.
CONFIGURATION = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": _QUICK_START,
    "spark.executor.extraJavaOptions": _QUICK_START,
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.sql.shuffle.partitions": "2",
    "spark.task.maxFailures": "1",
    # Tasks begin when all executors are there, so that each gets some.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
}


class Host:
    """Where daemons run.

    Args:
        address: its IP address.
        name: its name.
        enter: the command, with its arguments, that runs another one there.
    """

    def __init__(self, address: str, name: str, enter: Sequence[str] = ()) -> None:
        self.address = address
        self.name = name
        self.enter = list(enter)


THIS_HOST = Host(_LOOPBACK, os.uname().nodename)


def missing() -> str:
    """Return what this machine lacks for `other_host`, or nothing."""
    if os.geteuid() != 0:
        return "root is needed to make a network namespace"
    if tools := [tool for tool in ("ip", "unshare", "nsenter", "mount", "hostname") if shutil.which(tool) is None]:
        return f"{', '.join(tools)} needed (iproute2, util-linux, hostname)"
    probe = "unshare --net --mount --uts ip link add one type veth peer name other"
    done = subprocess.run(probe.split(), capture_output=True, text=True)
    return f"no network of its own can be made: {done.stderr.strip()}" if done.returncode else ""


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
    with ExitStack() as stack:
        log = directory / "master.log"
        command = f"spark-class org.apache.spark.deploy.master.Master --host {master.address} --port 0 --webui-port 0"
        daemon = stack.enter_context(_daemon(command.split(), log, master))
        url = _wait_for(daemon, log, r"Starting Spark master at (spark://\S+)")
        page = _wait_for(daemon, log, r"MasterWebUI.*started at (http://\S+)")
        pids = []
        for i, host in enumerate(workers):
            command = (
                f"spark-class org.apache.spark.deploy.worker.Worker --host {host.address} --webui-port 0 --cores 1"
            )
            rest = ["--memory", "600m", "--work-dir", str(directory / f"work-{i}"), url]
            process = stack.enter_context(_daemon([*command.split(), *rest], directory / f"worker-{i}.log", host))
            pids.append(process.pid)
        _wait_for_workers(page, master.address, len(workers))
        yield url, pids


def _wait_for_workers(page: str, address: str, count: int) -> None:
    """Return once the master says that so many workers are alive."""
    page = re.sub(r"//[^:/]+", f"//{address}", page)
    deadline = time.monotonic() + _START_SECONDS
    alive = 0
    while time.monotonic() < deadline:
        with urllib.request.urlopen(f"{page}/json/", timeout=30) as answer:
            alive = json.load(answer)["aliveworkers"]
        if alive == count:
            return
        time.sleep(0.2)
    raise AssertionError(f"{alive} of {count} workers have come")


@contextmanager
def connect_server(directory: Path) -> Iterator[str]:
    """Run a Spark Connect server with a local master, and yield its URL."""
    log = directory / "connect.log"
    configuration = {
        **CONFIGURATION,
        "spark.master": "local[2]",
        "spark.connect.grpc.binding.address": _LOOPBACK,
        "spark.connect.grpc.binding.port": "0",
    }
    command = ["spark-submit", "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += [part for item in configuration.items() for part in ("--conf", "=".join(item))]
    with _daemon([*command, "spark-internal"], log, THIS_HOST) as daemon:
        port = _wait_for(daemon, log, r"Spark Connect server started at: \S+:(\d+)")
        yield f"sc://{_LOOPBACK}:{port}"


@contextmanager
def _daemon(command: Sequence[str], log: Path, host: Host) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program of Spark's in the foreground of a process group of its own, and end it."""
    program, *arguments = command
    environment = {
        **os.environ,
        "SPARK_HOME": str(_SPARK),
        "SPARK_CONF_DIR": str(log.parent),
        "SPARK_LOCAL_DIRS": str(log.parent),
        "SPARK_LOCAL_IP": host.address,
        "SPARK_DAEMON_MEMORY": "512m",
        "SPARK_DAEMON_JAVA_OPTS": _QUICK_START,
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
        _end(process)


def _end(process: subprocess.Popen[Any]) -> None:
    """End a process, and what is left of its group."""
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _wait_for(process: subprocess.Popen[bytes], log: Path, pattern: str) -> str:
    """Return what a pattern's group matches in a daemon's log, once it does."""
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if found := re.search(pattern, log.read_text()):
            return found[1]
        time.sleep(0.1)
    raise AssertionError(f"no {pattern!r} in {log}:\n{log.read_text()[-3000:]}")


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
def driver(directory: Path, configuration: dict[str, str], address: str = _LOOPBACK) -> Iterator[Driver]:
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
        _end(process)
