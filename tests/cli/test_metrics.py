"""``spillable metrics``."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spillable_stream import Channel
from spillable_stream.cli import app
from tests.support import pythons
from tests.support.command_line import start
from tests.support.events import put


@pytest.mark.parametrize("ended_by", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_stopped(path: Path, ended_by: signal.Signals) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, b"a")
    arguments = [sys.executable, "-m", "spillable_stream", "metrics", str(path), str(path) + "-missing", "--port", "0"]
    with pythons.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None and running.stderr is not None
        said = running.stdout.readline()
        wrong = running.stderr.readline()
        try:
            with urllib.request.urlopen(said.split()[1], timeout=60) as answer:
                text = answer.read().decode()
        finally:
            running.send_signal(ended_by)
        assert running.wait(60) == 0
    assert f'spillable_channel_events{{channel="{path}",tier="disk"}} 1.0' in text
    assert f'spillable_channel_up{{channel="{path}-missing"}} 0.0' in text
    assert wrong == (
        f"NotAChannelError: {path}-missing is not a channel: it is missing; its spillable_channel_up is 0 until it can "
        "be looked at\n"
    )


def test_a_port_that_is_taken_is_status_2(path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = CliRunner().invoke(app, ["metrics", str(path), "--port", str(port)])
    assert done.exit_code == 2 and done.stderr.startswith(f"OSError: http://127.0.0.1:{port}/: Address already in use")


def test_it_serves_at_an_address_of_ipv6_and_prints_a_link_that_leads_there(path: Path) -> None:
    Channel(path, minimum_required_space=0).close()
    for host in ("::1", "[::1]"):
        with start("metrics", path, "--host", host, "--port", 0, stdout=subprocess.PIPE) as running:
            assert running.stdout is not None
            link = running.stdout.readline().decode().split()[1]
            try:
                assert link.startswith("http://[::1]:") and link.endswith("/metrics")
                with urllib.request.urlopen(link, timeout=60) as answer:
                    assert answer.status == 200
            finally:
                running.send_signal(signal.SIGINT)
            assert running.wait(60) == 0


def test_an_address_that_is_not_this_hosts_is_named(path: Path) -> None:
    Channel(path, minimum_required_space=0).close()
    for verb in ("metrics", "ui"):
        done = CliRunner().invoke(app, [verb, str(path), "--host", "2001:db8::1", "--port", "0"])
        assert done.exit_code == 2 and "OSError: http://[2001:db8::1]:0/: Cannot assign" in done.stderr, verb


@pytest.mark.parametrize("verb", ["metrics", "ui"])
def test_an_empty_host_is_refused_rather_than_taken_for_every_address(path: Path, verb: str) -> None:
    done = CliRunner().invoke(app, [verb, str(path), "--host", "", "--port", "0"])
    assert done.exit_code == 2 and "it is empty" in done.stderr


def test_a_channel_given_twice_is_status_2(path: Path) -> None:
    done = CliRunner().invoke(app, ["metrics", str(path), str(path), "--port", "0"])
    assert done.exit_code == 2 and "is given twice" in done.stderr
