"""The endpoint, over real HTTP on loopback."""

from __future__ import annotations

import errno
import http.client
import itertools
import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from spillable_stream import Channel, OptionError, StorageError, serve_metrics
from spillable_stream.observe import metrics_server
from spillable_stream.observe.observation import Observation
from tests.support.events import numbered, put, take
from tests.support.no_threads import no_threads
from tests.support.one_module import replace_in

Open = Callable[..., Channel]


class Answer(NamedTuple):
    status: int
    content_type: str
    body: str


def get(port: int, path: str, accept: str = "*/*", method: str = "GET") -> Answer:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Accept": accept}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return Answer(answer.status, answer.headers["Content-Type"], answer.read().decode())
    except urllib.error.HTTPError as e:
        return Answer(e.code, e.headers["Content-Type"], e.read().decode())


def test_it_serves_prometheus_flume_and_health(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 20))
    take(channel, 5, "a")
    with serve_metrics([channel]) as server:
        text = get(server.port, "/metrics")
        assert text.status == 200 and text.content_type.startswith("text/plain")
        assert f'spillable_group_lag_events{{channel="{channel.path}",group="a"}} 15.0' in text.body
        assert get(server.port, "/metrics?x=1").status == 200
        open_metrics = get(server.port, "/metrics", "application/openmetrics-text; version=1.0.0")
        assert open_metrics.content_type.startswith("application/openmetrics-text") and "# EOF" in open_metrics.body
        for flume in (get(server.port, "/metrics.json"), get(server.port, "/metrics", "application/json")):
            assert json.loads(flume.body)["CHANNEL.channel"]["ChannelSize"] == "15"
            assert flume.content_type.startswith("application/json")
        assert json.loads(get(server.port, "/healthz").body) == {"healthy": True}
        assert json.loads(get(server.port, "/readyz").body) == {"ready": True, "problems": {}}
        assert "metrics.json" in get(server.port, "/").body
        head = get(server.port, "/metrics", method="HEAD")
        assert (head.status, head.body) == (200, "")
        assert get(server.port, "/../../etc/passwd").status == get(server.port, "/metrics/x").status == 404
        assert get(server.port, "/metrics", method="POST").status == 501


def test_it_is_ready_once_every_channel_can_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, now = tmp_path / "c", [1000.0]
    monkeypatch.setattr(metrics_server, "_MAX_AGE_SECONDS", 0.0)
    observer = metrics_server.Observer([path], clock=lambda: now[0])
    with metrics_server.MetricsServer(observer, "127.0.0.1", 0) as server:
        answer = get(server.port, "/readyz")
        assert answer.status == 503 and "it is missing" in json.loads(answer.body)["problems"][str(path)]
        assert get(server.port, "/healthz").status == 200
        with Channel(path, minimum_required_space=0):
            now[0] += 60
            assert get(server.port, "/readyz").status == 200


def test_it_is_not_ready_before_every_channel_was_looked_at(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    with metrics_server.MetricsServer(metrics_server.Observer([path]), "127.0.0.1", 0) as server:
        monkeypatch.setattr(server._observer, "observe", lambda max_age_seconds: [Observation(str(path), 0.0)])
        answer = get(server.port, "/readyz")
        assert answer.status == 503 and json.loads(answer.body)["problems"][str(path)] == "it was not looked at yet"


def test_a_handle_whose_log_failed_is_not_ready(open_channel: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = open_channel()
    failed = replace(channel.stats(), unhealthy=True)
    monkeypatch.setattr(channel, "stats", lambda: failed)
    with serve_metrics([channel]) as server:
        answer = get(server.port, "/readyz")
        assert answer.status == 503 and str(channel.path) in answer.body


def test_it_listens_on_this_host_only_unless_told_otherwise(open_channel: Open) -> None:
    with serve_metrics([open_channel()]) as server:
        assert server.host == "127.0.0.1"


def test_it_listens_at_an_address_of_ipv6_too(open_channel: Open) -> None:
    with serve_metrics([open_channel()], host="::1") as server:
        connection = http.client.HTTPConnection("::1", server.port, timeout=60)
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200
        connection.close()


def test_connections_beyond_the_limit_are_closed_and_it_serves_again(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_server, "_MOST_CONNECTIONS", 4)
    with serve_metrics([open_channel()]) as server:
        with ExitStack() as stack:
            opened = [stack.enter_context(socket.create_connection(("127.0.0.1", server.port))) for _ in range(20)]
            for refused in opened[4:]:
                assert refused.recv(1) == b""
        deadline = time.monotonic() + 60
        while True:
            try:
                assert get(server.port, "/healthz").status == 200
                break
            except OSError:
                assert time.monotonic() < deadline


def test_a_request_that_trickles_in_keeps_its_connection_no_longer_than_one_that_stops(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_server, "_REQUEST_SECONDS", 0.2)
    with (
        serve_metrics([open_channel()]) as server,
        socket.create_connection(("127.0.0.1", server.port)) as client,
    ):
        client.settimeout(0.05)  # a byte then
        for _ in range(400):
            try:
                client.sendall(b"x")
                assert client.recv(1) == b""
                break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        else:
            pytest.fail("it is still open")


def test_a_server_for_which_there_is_no_thread_is_refused_and_its_port_is_free_again(open_channel: Open) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    channel = open_channel()
    for _ in range(2):
        with no_threads(), pytest.raises(StorageError, match="'spillable-metrics' can't start"):
            serve_metrics([channel], port)
    serve_metrics([channel], port).close()


def test_requests_for_which_there_is_no_thread_take_no_connection_from_later_ones(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(metrics_server, "_MOST_CONNECTIONS", 2)
    with serve_metrics([open_channel()]) as server:
        with no_threads():
            for _ in range(3):
                with pytest.raises(OSError):
                    get(server.port, "/healthz")
        assert get(server.port, "/healthz").status == 200
    assert caplog.text.count("gets no answer: the thread 'spillable-metrics-answer' can't start") == 3


def test_a_request_that_fails_is_answered_and_logged_with_the_error(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(max_age_seconds: float) -> None:
        raise StorageError("no thread looks")

    with serve_metrics([open_channel()]) as server:
        monkeypatch.setattr(server._observer, "observe", fail)
        for path in ("/metrics", "/metrics.json", "/readyz"):
            answer = get(server.port, path)
            assert (answer.status, answer.body) == (500, "StorageError: no thread looks\n")
            assert f"a request for {path!r} failed" in caplog.text
        assert get(server.port, "/healthz").status == 200


def test_a_process_without_descriptors_for_requests_rests_between_its_tries_and_says_so_once(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    accept, refusals, rests = socket.socket.accept, itertools.count(), list[float]()

    def refuse(listening: socket.socket) -> Any:
        if next(refusals) < 3:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return accept(listening)

    replace_in(monkeypatch, metrics_server, "time", sleep=rests.append)
    with serve_metrics([open_channel()]) as server:
        monkeypatch.setattr(socket.socket, "accept", refuse)
        assert get(server.port, "/healthz").status == 200
    assert rests == [0.25] * 3 and caplog.text.count("no request for metrics can be accepted now") == 1


def test_a_port_that_is_none_or_taken_is_refused(open_channel: Open) -> None:
    channel = open_channel()
    for port in (-1, 65_536, True):
        with pytest.raises(OptionError, match="port must be an integer"):
            serve_metrics([channel], port)
    with serve_metrics([channel]) as server, pytest.raises(OSError):
        serve_metrics([channel], server.port)
    assert channel.stats().channel_size == 0, "a handle of the program stays open"


@pytest.mark.slow
def test_a_real_prometheus_scrapes_it(open_channel: Open, tmp_path: Path) -> None:
    import shutil

    prometheus = shutil.which("prometheus")
    if prometheus is None:
        pytest.skip("prometheus is not installed: Debian's package prometheus has it")
    channel = open_channel()
    put(channel, *numbered(0, 20))
    with serve_metrics([channel]) as server:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        rules = Path(__file__).parent.parent.parent / "conf" / "prometheus-alerts.yml"
        (tmp_path / "prometheus.yml").write_text(
            f"global: {{scrape_interval: 200ms, evaluation_interval: 200ms}}\nrule_files: ['{rules}']\n"
            "scrape_configs: [{job_name: spillable, static_configs: [{targets: ['127.0.0.1:%d']}]}]\n" % server.port
        )
        arguments = [
            prometheus, f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/tsdb",
            f"--web.listen-address=127.0.0.1:{port}",
        ]  # fmt: skip
        with (tmp_path / "log").open("wb") as log:
            running = subprocess.Popen(arguments, stdout=log, stderr=log)
        try:
            assert _asked(port, "query?query=spillable_channel_put_events_total", tmp_path / "log") == "20"
            found = json.loads(get(port, "/api/v1/rules").body)["data"]["groups"][0]["rules"]
            assert len(found) == rules.read_text().count("- alert: ") and all(
                rule["health"] in ("ok", "unknown") for rule in found
            )
        finally:
            running.kill()
            running.wait()


def _asked(port: int, query: str, log: Path) -> str:
    """Return the value that Prometheus has, when it has one."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            result = json.loads(get(port, f"/api/v1/{query}").body)["data"]["result"]
        except (OSError, ValueError, KeyError):
            result = []
        if result:
            return str(result[0]["value"][1])
        time.sleep(0.1)
    raise AssertionError(log.read_text()[-2000:])
