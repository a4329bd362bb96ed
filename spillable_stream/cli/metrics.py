"""The verb ``metrics``: serves the metrics of channels until it is stopped."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from spillable_stream.cli.app import allow_many_files, until_signal
from spillable_stream.cli.arguments import ChannelPaths
from spillable_stream.cli.listening import Port, given_host, link, not_served, say_problems
from spillable_stream.errors import SpillableError

__all__ = ["metrics"]

_HOST = Annotated[
    str, typer.Option("--host", callback=given_host, help="The address to listen at: 0.0.0.0 for all of this host's.")
]


def metrics(paths: ChannelPaths, port: Port = 9107, host: _HOST = "127.0.0.1") -> None:
    """Serve the metrics of channels over HTTP until Ctrl-C: /metrics, /metrics.json, /healthz and /readyz.

    A channel that is missing, or can't be read, is named on standard error, and its spillable_channel_up is 0 until it
    can be looked at.

    Example: `spillable metrics /data/orders /data/clicks --port 9107`

    Exit status: 0 it ended as asked, 2 it could not serve.
    """
    from spillable_stream.observe.metrics_server import serve_metrics

    allow_many_files()
    with until_signal():
        try:
            server = serve_metrics(paths, port, host=host)
        except (SpillableError, ImportError, OSError) as e:
            not_served(paths[0], e, host, port)
        with server:
            typer.echo(f"serving {link(server.host, server.port, 'metrics')} (Ctrl-C ends it)")
            say_problems(server.problems(), "its spillable_channel_up is 0")
            while True:
                time.sleep(1)
