from __future__ import annotations

import json
from pathlib import Path

import pytest

from spillable_stream import Channel, Event, UnsafeStoreError, flow
from spillable_stream.errors import StorageError
from spillable_stream.flow.metrics import components, flume_json, prometheus_text
from tests.support.events import put
from tests.support.faulty_store import FaultyStore
from tests.support.object_channels import URL, log_of, lose_slots, stores_in_memory


def test_a_name_is_written_as_prometheus_wants_it(tmp_path: Path) -> None:
    with Channel(tmp_path / "c", minimum_required_space=0) as channel:
        agent = flow.Agent(channels={"c": channel}, name='a"\\\n')
        (found,) = components(agent)
        assert (found.kind, found.name) == ("CHANNEL", "c")
        assert 'agent="a\\"\\\\\\n"' in prometheus_text(agent)
        assert "# TYPE spillable_flow_channel_event_put_success_total counter" in prometheus_text(agent)
        assert "# TYPE spillable_flow_channel_channel_size gauge" in prometheus_text(agent)


def test_whatever_only_grows_is_a_counter(tmp_path: Path) -> None:
    with Channel(tmp_path / "c1", minimum_required_space=0) as channel, flow.Agent(channels={"c1": channel}) as agent:
        text = prometheus_text(agent)
    for name in ("group_commits", "grouped_commits", "disk_syncs", "disk_bytes", "spilled_transactions"):
        assert f"# TYPE spillable_flow_channel_{name}_total counter\n" in text
    for name in ("disk_events", "disk_payload_bytes", "unhealthy_seconds", "overflow_active"):
        assert f"# TYPE spillable_flow_channel_{name} gauge\n" in text


def test_what_waits_is_a_gauge_of_a_source_and_of_a_sink(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text("1\n")
    with Channel(tmp_path / "c", minimum_required_space=0) as channel:
        with channel.put_transaction() as tx:
            tx.put_many([Event(b"1"), Event(b"2")])
        processor = flow.ChannelProcessor({"c1": channel}, producer="a1.r1")
        sink = flow.Null(channel="c1")
        sink.name = "k1"
        source = flow.Source(flow.SpoolDir(tmp_path / "in"), processor, "r1")
        agent = flow.Agent(sources=[source], sinks=[sink], name="a1")
        agent.sources["r1"].source.counters.pauses.begin("a batch", "the channel is full")
        found = json.loads(flume_json(agent))
        assert found["SOURCE.r1"].items() >= {"Paused": "1", "LagFiles": "1", "BackoffSeconds": "0"}.items()
        assert found["SINK.k1"].items() >= {"LagEvents": "2", "BackoffSeconds": "0"}.items()
        text = prometheus_text(agent)
        assert "# TYPE spillable_flow_source_paused gauge" in text
        assert "# TYPE spillable_flow_source_paused_seconds_total counter" in text
        assert 'spillable_flow_sink_lag_events{agent="a1",name="k1"} 2' in text


def test_the_lag_of_tailed_files_is_what_was_there_at_the_last_look_and_is_not_stored(tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text("1\n22\n")
    with Channel(tmp_path / "c", minimum_required_space=0) as channel:
        source = flow.TailDir({"g": f"{tmp_path}/app.*"}, position_file=tmp_path / "p.json", batch_size=1)
        with flow.ChannelProcessor({"c1": channel}, producer="a1.r1") as processor:
            source.open(processor)
            source.poll(processor)
            assert source.lag() == {"LagBytes": 3, "LagFiles": 1}
            source.poll(processor)
            assert source.lag() == {"LagBytes": 0, "LagFiles": 0}
            source.close()


@pytest.mark.parametrize("error", [StorageError("can't list it"), ZeroDivisionError("of a class of the user's")])
def test_a_source_that_cannot_tell_how_much_it_has_to_read_tells_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(_: object) -> dict[str, float]:
        raise error

    monkeypatch.setattr(flow.SpoolDir, "lag", refuse)
    with Channel(tmp_path / "c", minimum_required_space=0) as channel:
        processor = flow.ChannelProcessor({"c1": channel}, producer="a1.r1")
        agent = flow.Agent(sources=[flow.Source(flow.SpoolDir(tmp_path), processor, "r1")], name="a1")
        found = next(c.values for c in components(agent) if c.kind == "SOURCE")
        assert "LagFiles" not in found and found["EventReceivedCount"] == 0


def test_what_optional_channels_did_not_get_is_counted_also_where_the_log_has_not_said_it_yet(tmp_path: Path) -> None:
    with Channel(tmp_path / "c", minimum_required_space=0) as channel:
        processor = flow.ChannelProcessor({"c1": channel}, selector=flow.Replicating(optional=["c1"]), producer="a1.r1")
        agent = flow.Agent(sources=[flow.Source(flow.SpoolDir(tmp_path), processor, "r1")], name="a1")
        for _ in range(2):
            processor.left_out.add("c1", 5, StorageError("no"))
        assert 'spillable_flow_source_left_out_total{agent="a1",name="r1"} 10' in prometheus_text(agent)


@pytest.mark.parametrize("is_met", [False, True], ids=["waits", "is met"])
def test_a_scrape_shows_the_channel_and_leaves_a_loss_to_its_next_put(is_met: bool) -> None:
    with stores_in_memory(FaultyStore), Channel(URL, commit_interval=0) as channel:
        agent = flow.Agent(channels={"c": channel}, name="a1")
        if is_met:
            lose_slots(channel)
        else:
            with log_of(channel).untold_loss.block():
                raise UnsafeStoreError("events are lost")
        assert [c.kind for c in components(agent)] == ["CHANNEL"]
        with pytest.raises(UnsafeStoreError, match="events are lost"):
            put(channel, b"not stored")
