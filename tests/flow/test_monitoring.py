from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import uvicorn
from prometheus_client.parser import text_string_to_metric_families

from spillable_stream import Channel, flow
from spillable_stream.errors import StorageError
from spillable_stream.flow import monitoring as monitoring_module
from spillable_stream.flow.agent import Agent
from spillable_stream.flow.monitoring import Monitoring
from tests.support.no_threads import no_threads
from tests.support.waiting import wait_until


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Agent]:
    with Channel(tmp_path / "c", minimum_required_space=0) as channel:
        source = flow.Source(flow.Seq(total_events=3), flow.ChannelProcessor({"c1": channel}), "r1")
        sink = flow.Null(channel="c1")
        sink.name = "k1"
        with flow.Agent(sources=[source], sinks=[sink], name="a1") as running:
            wait_until(lambda: sink.counters.event_drain_success_count == 3)
            yield running


@pytest.fixture
def client(running: Agent) -> Iterator[httpx.Client]:
    monitoring = Monitoring(running, 0, host="127.0.0.1")
    monitoring.start()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{monitoring.port}", timeout=30, trust_env=False) as client:
            yield client
    finally:
        monitoring.stop()


def test_metrics_are_flumes_json_with_every_value_a_string(client: httpx.Client) -> None:
    found = client.get("/metrics").json()
    assert found.keys() == {"SOURCE.r1", "CHANNEL.c1", "SINK.k1"}
    assert all(isinstance(value, str) for component in found.values() for value in component.values())
    assert found["SOURCE.r1"]["Type"] == "SOURCE"
    assert found["SOURCE.r1"]["EventAcceptedCount"] == found["SINK.k1"]["EventDrainSuccessCount"] == "3"


# What Flume's guide and code have, by kind; a dashboard asks for them by name.
FLUMES = {
    "SOURCE.r1": """EventReceivedCount EventAcceptedCount AppendReceivedCount AppendAcceptedCount
        AppendBatchReceivedCount AppendBatchAcceptedCount OpenConnectionCount EventReadFail GenericProcessingFail
        ChannelWriteFail""",
    "CHANNEL.c1": """ChannelCapacity ChannelSize ChannelFillPercentage EventPutAttemptCount EventPutSuccessCount
        EventTakeAttemptCount EventTakeSuccessCount""",
    "SINK.k1": """ConnectionCreatedCount ConnectionClosedCount ConnectionFailedCount BatchEmptyCount BatchUnderflowCount
        BatchCompleteCount EventDrainAttemptCount EventDrainSuccessCount EventWriteFail ChannelReadFail""",
}
OURS = {
    "SOURCE.r1": {"Paused", "PausedSeconds", "BackoffSeconds", "LeftOutCount"},
    "SINK.k1": {"LagEvents", "BackoffSeconds"},
}


def test_each_component_has_the_names_that_flume_has_for_it_and_when_it_started(client: httpx.Client) -> None:
    found = client.get("/metrics").json()
    for component, names in FLUMES.items():
        expected = {"Type", "StartTime", "StopTime", *names.split()}
        assert expected <= found[component].keys()
        assert component not in OURS or found[component].keys() - expected == OURS[component]
        assert int(found[component]["StartTime"]) > 1_700_000_000_000
        assert found[component]["StopTime"] == "0"


def test_metrics_are_prometheus_text_for_those_who_ask(client: httpx.Client, running: Agent) -> None:
    text = client.get("/metrics", headers={"Accept": "text/plain; version=0.0.4"}).text
    samples = {(s.name, s.labels.get("name")): s.value for f in text_string_to_metric_families(text) for s in f.samples}
    assert samples["spillable_flow_source_event_accepted_total", "r1"] == 3
    assert samples["spillable_flow_ready", None] == 1


def test_it_answers_as_flume_and_says_how_the_agent_is(client: httpx.Client, running: Agent) -> None:
    assert client.get("/ping").text == "pong"
    assert '<a href="/metrics">' in client.get("/").text
    assert client.get("/other").status_code == 404
    assert [client.request(m, "/metrics").status_code for m in ("TRACE", "OPTIONS")] == [403, 403]
    assert client.get("/ready").json() == {"ready": True, "troubles": {}}
    running.supervisor._watched["a1.r1"].trouble = "the port is in use"
    answer = client.get("/ready")
    assert answer.status_code == 503
    assert answer.json() == {"ready": False, "troubles": {"a1.r1": "the port is in use"}}


def test_an_agent_is_ready_only_while_it_runs() -> None:
    """Else a balancer sends to sources that do not listen yet, or no more."""
    fresh = flow.Agent(name="a2")
    assert fresh.troubles() == {"a2": "it has not started yet"}
    with fresh:
        assert fresh.troubles() == {}
    assert fresh.troubles() == {"a2": "it is being stopped"}


def test_a_port_in_use_is_refused(client: httpx.Client, running: Agent) -> None:
    port = client.base_url.port
    assert port is not None
    with pytest.raises(StorageError, match="can't listen"):
        Monitoring(running, port, host="127.0.0.1").start()


def test_prometheus_can_be_the_only_format(running: Agent) -> None:
    monitoring = Monitoring(running, 0, host="127.0.0.1", prometheus=True)
    monitoring.start()
    try:
        text = httpx.get(f"http://127.0.0.1:{monitoring.port}/metrics", trust_env=False).text
    finally:
        monitoring.stop()
    assert text.startswith("# TYPE spillable_flow_source_start_time gauge")


def test_it_can_be_ended_where_it_found_no_thread(running: Agent) -> None:
    server = Monitoring(running, 0, host="127.0.0.1")
    with no_threads(), pytest.raises(StorageError, match="can't start new thread"):
        server.start()
    server.stop()


def test_a_server_that_ended_by_itself_is_started_again_and_named_until_it_serves(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tick, startup, failures = uvicorn.Server.on_tick, uvicorn.Server.startup, ["starts", "ticks"]

    async def fails_once(server: uvicorn.Server, counter: int) -> bool:
        if failures == ["starts", "ticks"]:
            failures.pop()
            raise RuntimeError("a bug of the server")
        return await tick(server, counter)

    async def does_not_start(server: uvicorn.Server, sockets: list[socket.socket] | None = None) -> None:
        if failures == ["starts"]:
            failures.pop()
            raise RuntimeError("no descriptor is left")
        await startup(server, sockets)

    monkeypatch.setattr(monitoring_module, "_AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(uvicorn.Server, "on_tick", fails_once)
    monkeypatch.setattr(uvicorn.Server, "startup", does_not_start)
    wait_until(lambda: caplog.text.count("the monitoring of the agent a1 ended by itself") == 2)
    assert client.get("/ping").text == "pong"
