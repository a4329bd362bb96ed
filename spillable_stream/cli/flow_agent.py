"""The verb ``agent``, with the words of ``flume-ng agent``."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Annotated

import typer

from spillable_stream.cli.app import HEALTHY, UNHEALTHY, UNKNOWN, app
from spillable_stream.errors import SpillableError

__all__ = ["agent"]

_log = logging.getLogger("spillable_stream.flow")

ConfFile = Annotated[
    list[str], typer.Option("--conf-file", "-f", help="The configuration; again for others: a later one wins.")
]
AgentName = Annotated[str, typer.Option("--name", "-n", help="The agent's name in the configuration.")]
System = Annotated[list[str] | None, typer.Option("-D", metavar="KEY=VALUE", help="A system property, as ${sys:KEY}.")]


@app.command()
def agent(
    name: AgentName,
    conf_file: ConfFile,
    conf: Annotated[str, typer.Option("--conf", "-c", help="The directory of core-site.xml.")] = "",
    define: System = None,
    no_reload_conf: Annotated[bool, typer.Option("--no-reload-conf", help="Do not read changed files.")] = False,
    poll_interval: Annotated[
        float, typer.Option("--poll-interval", "-i", help="Seconds between looks at the files.")
    ] = 30.0,
    once: Annotated[
        bool, typer.Option("--once", help="End when all sources are at their end and the channels empty.")
    ] = False,
    drain: Annotated[bool, typer.Option("--drain", help="Let the sinks empty the channels before the end.")] = False,
    shutdown_timeout: Annotated[float, typer.Option("--shutdown-timeout", help="Seconds that an end may take.")] = 30.0,
    mapped: Annotated[
        list[str] | None, typer.Option("--map", metavar="JAVA=PYTHON", help="A Python class for a Java one.")
    ] = None,
    dryrun: Annotated[bool, typer.Option("--dryrun", "-d", help="Only say what would run.")] = False,
    classpath: Annotated[str, typer.Option("--classpath", "-C", hidden=True)] = "",
    plugins_path: Annotated[str, typer.Option("--plugins-path", hidden=True)] = "",
    java: Annotated[list[str] | None, typer.Option("-X", hidden=True)] = None,
    conf_uri: Annotated[list[str] | None, typer.Option("--conf-uri", "-u", hidden=True)] = None,
    backup_directory: Annotated[str, typer.Option("--backup-directory", "-b", hidden=True)] = "",
    zookeeper: Annotated[str, typer.Option("--zkConnString", "-z", hidden=True)] = "",
    zookeeper_path: Annotated[str, typer.Option("--zkBasePath", "-p", hidden=True)] = "",
) -> None:
    """Run an agent of a Flume configuration, until SIGTERM. SIGHUP reads the files again."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    if zookeeper or zookeeper_path:
        _refuse("a configuration in ZooKeeper is not read; write it to a file, and say --conf-file")
    if conf_uri:
        _refuse("a configuration over HTTP is not read; fetch it to a file, and say --conf-file")
    ignored = {
        "--classpath": classpath,
        "--plugins-path": plugins_path,
        "-X": java,
        "--backup-directory": backup_directory,
    }
    for option, value in ignored.items():
        if value:
            _log.warning("%s is ignored: it is for Java", option)
    system = pairs(define)
    if conf:
        system.setdefault("spillable.conf.dir", conf)
    try:
        status = _run(
            name,
            conf_file,
            system,
            pairs(mapped),
            not no_reload_conf and poll_interval,
            once,
            drain,
            shutdown_timeout,
            dryrun,
        )
    except (SpillableError, OSError, ImportError) as e:
        typer.echo(f"{type(e).__name__}: {e}", err=True)
        raise typer.Exit(UNKNOWN if isinstance(e, OSError) else UNHEALTHY) from e
    raise typer.Exit(status)


def pairs(given: list[str] | None) -> dict[str, str]:
    """Return ``KEY=VALUE`` options as a mapping."""
    return {key: value for key, _, value in (text.partition("=") for text in given or ())}


def _refuse(text: str) -> None:
    typer.echo(text, err=True)
    raise typer.Exit(UNKNOWN)


def _run(
    name: str,
    files: list[str],
    system: Mapping[str, str],
    mapped: Mapping[str, str],
    reload_seconds: float,
    once: bool,
    drain: bool,
    shutdown_timeout: float,
    dryrun: bool,
) -> int:
    from spillable_stream.flow.agent import Agent
    from spillable_stream.flow.monitoring import Monitoring

    running = Agent.from_properties(
        files, name=name, system=system, mapped=mapped, shutdown_timeout_seconds=shutdown_timeout
    )
    for finding in running.findings:
        _log.warning("%s", finding)
    if dryrun:
        typer.echo("\n".join(running.described()))
        return HEALTHY
    running.reload_seconds = reload_seconds or None
    kind, port = system.get("flume.monitoring.type", ""), system.get("flume.monitoring.port", "41414")
    monitoring = None
    if kind.lower() in ("http", "prometheus"):
        monitoring = Monitoring(running, int(port), prometheus=kind.lower() == "prometheus")
        monitoring.start()
        _log.info("monitoring listens on port %d", monitoring.port)
    elif kind:
        _log.warning("flume.monitoring.type = %s is not served; say http or prometheus", kind)
    try:
        return HEALTHY if running.run(once=once, drain=drain) else UNHEALTHY
    finally:
        if monitoring is not None:
            monitoring.stop()
