"""The verb ``agent``, with the words of ``flume-ng agent``."""

from __future__ import annotations

import logging
import os
import re
import signal
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from spillable_stream.cli.app import HEALTHY, UNHEALTHY, UNKNOWN, fail, until_signal
from spillable_stream.cli.arguments import decoded, time_span
from spillable_stream.cli.flow_options import ClassMap, ConfigurationFiles, SystemProperties, pairs
from spillable_stream.errors import SpillableError, StorageError
from spillable_stream.log_records import fields, log_of
from spillable_stream.shown_value import shown

if TYPE_CHECKING:
    from spillable_stream.flow.agent import Agent
    from spillable_stream.flow.monitoring import Monitoring
    from spillable_stream.flow.stop_signals import StopSignals

__all__ = ["agent", "log_level"]

_log = log_of("spillable_stream.flow")

_MONITORING_PORT = "41414"
_PORT = re.compile("[0-9]{1,5}")
_MOST_PORT = 65_535
_JAVA = "is ignored: it is an option of Java's"
_LEVELS = {
    "ALL": logging.DEBUG,
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "OFF": logging.CRITICAL + 1,
}


_TALKATIVE = ("httpx", "uvicorn", "watchfiles")  # they log each request, each change of a file, and themselves
_SEVERITIES = {"error": logging.ERROR, "warning": logging.WARNING, "note": logging.INFO}


@dataclass(frozen=True, slots=True)
class _Run:
    """How an agent is run."""

    once: bool
    drain: bool
    reload_seconds: float | None
    dryrun: bool
    signals: StopSignals


_Name = Annotated[
    str, typer.Option("--name", "-n", metavar="AGENT", callback=decoded, help="The agent's name in the configuration.")
]
_Directory = Annotated[str, typer.Option("--conf", "-c", metavar="DIR", help="The directory of core-site.xml.")]
_NoReload = Annotated[bool, typer.Option("--no-reload-conf", help="Do not look for changed files.")]
_PollInterval = Annotated[
    float,
    typer.Option(
        "--poll-interval",
        "-i",
        metavar="TIME",
        parser=time_span(0.1),
        help="The time between looks for changed files, as 30 or 5m.",
    ),
]
_Once = Annotated[
    bool, typer.Option("--once", help="End when all sources are at their end and the channels are empty.")
]
_Drain = Annotated[bool, typer.Option("--drain", help="Let the sinks empty the channels before the end.")]
_ShutdownTimeout = Annotated[
    float,
    typer.Option(
        "--shutdown-timeout", metavar="TIME", parser=time_span(), help="How long an end may take, as 30 or 5m."
    ),
]
_DryRun = Annotated[bool, typer.Option("--dryrun", "-d", help="Say what would run, and end.")]


def agent(
    conf_file: ConfigurationFiles,
    name: _Name,
    conf: _Directory = "",
    define: SystemProperties = None,
    no_reload_conf: _NoReload = False,
    poll_interval: _PollInterval = 30.0,
    once: _Once = False,
    drain: _Drain = False,
    shutdown_timeout: _ShutdownTimeout = 30.0,
    mapped: ClassMap = None,
    dryrun: _DryRun = False,
    classpath: Annotated[str, typer.Option("--classpath", "-C", hidden=True)] = "",
    plugins_path: Annotated[str, typer.Option("--plugins-path", hidden=True)] = "",
    java: Annotated[list[str] | None, typer.Option("-X", hidden=True)] = None,
    backup_directory: Annotated[str, typer.Option("--backup-directory", "-b", hidden=True)] = "",
    conf_uri: Annotated[list[str] | None, typer.Option("--conf-uri", "-u", hidden=True)] = None,
    zookeeper: Annotated[str, typer.Option("--zkConnString", "-z", hidden=True)] = "",
    zookeeper_path: Annotated[str, typer.Option("--zkBasePath", "-p", hidden=True)] = "",
) -> None:
    """Run an agent of a Flume configuration until SIGTERM. SIGHUP reads the files again.

    Example: `spillable agent -n a1 -f flume.conf`

    Exit status: 0 it ended as asked; 1 something of it failed or nothing of it runs; 2 the files can't be read.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for library in _TALKATIVE:
        logging.getLogger(library).setLevel(logging.WARNING)
    if zookeeper or zookeeper_path:
        _refuse("a configuration in ZooKeeper is not read; write it to a file, and give --conf-file")
    if conf_uri:
        _refuse("a configuration at an address is not read; fetch it to a file, and give --conf-file")
    java_options = {"--classpath": classpath, "--plugins-path": plugins_path, "--backup-directory": backup_directory}
    for option in [name for name, value in java_options.items() if value] + [f"-X{value}" for value in java or ()]:
        _log.warning("%s %s", option, _JAVA)
    system = pairs(define)
    if "flume.root.logger" in system:
        logging.getLogger("spillable_stream").setLevel(log_level(system["flume.root.logger"]))
    if conf:
        system.setdefault("spillable.conf.dir", conf)
    try:
        from spillable_stream.flow.stop_signals import StopSignals

        how = _Run(once, drain, None if no_reload_conf else poll_interval, dryrun, StopSignals())
        with nullcontext() if once or dryrun else until_signal(), how.signals.watched([signal.SIGHUP]):
            status = _run(name, conf_file, system, pairs(mapped), shutdown_timeout, how)
    except (SpillableError, ImportError, OSError) as e:
        fail(name, e, False, UNKNOWN if isinstance(e, OSError) else UNHEALTHY)
    raise typer.Exit(status)


def log_level(root_logger: str) -> int:
    """Return the level that Flume's start scripts give, as in ``INFO,console``; INFO for any other text."""
    return _LEVELS.get(root_logger.partition(",")[0].strip().upper(), logging.INFO)


def _refuse(text: str) -> NoReturn:
    typer.echo(text, err=True)
    raise typer.Exit(UNKNOWN)


def _run(
    name: str,
    files: list[str],
    system: Mapping[str, str],
    mapped: Mapping[str, str],
    shutdown_timeout: float,
    how: _Run,
) -> int:
    """Run an agent, and return the exit status."""
    from spillable_stream.flow.agent import Agent
    from spillable_stream.flow.tap_server import TapServer

    running = Agent.from_properties(
        files, name=name, system=system, mapped=mapped, shutdown_timeout_seconds=shutdown_timeout
    )
    for finding in running.findings:
        _log.log(
            _SEVERITIES[finding.severity.value],
            "%s",
            finding,
            extra=fields(component=finding.component or None, file=finding.file),
        )
    if how.dryrun:
        typer.echo("\n".join(running.described()))
        return HEALTHY
    for line in running.described():
        _log.info("%s runs %s", name, line, extra=fields(component=name))
    running.reload_seconds, running.signals = how.reload_seconds, how.signals
    monitoring, taps = _monitoring(running, system), TapServer(running)
    try:
        if monitoring is not None:
            monitoring.start()
            _log.info("monitoring listens on port %d", monitoring.port, extra=fields(component=name))
        try:
            taps.start()
        except StorageError as e:
            _log.warning("spillable tap can't look at this agent: %s", e, extra=fields(component=name))
        is_well = running.run(once=how.once, drain=how.drain)
        status = HEALTHY if is_well else UNHEALTHY
        if how.once and running.signals.last:
            status = 128 + running.signals.last
    finally:
        taps.stop()
        if monitoring is not None:
            monitoring.stop()
    if running.supervisor.late():  # Python would wait for their threads
        logging.shutdown()
        os._exit(status)
    return status


def _monitoring(running: Agent, system: Mapping[str, str]) -> Monitoring | None:
    """Return the monitoring that Flume's options ask for."""
    from spillable_stream.flow.monitoring import Monitoring

    kind, port = system.get("flume.monitoring.type", "").lower(), system.get("flume.monitoring.port", _MONITORING_PORT)
    if kind not in ("http", "prometheus"):
        if kind:
            _log.warning("flume.monitoring.type = %s is not served; give http or prometheus", kind)
        return None
    if not _PORT.fullmatch(port) or int(port) > _MOST_PORT:
        _refuse(f"flume.monitoring.port = {shown(port)} is not a port; give 0 to {_MOST_PORT}")
    return Monitoring(running, int(port), prometheus=kind == "prometheus")
