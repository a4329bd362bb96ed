from __future__ import annotations

from pathlib import Path

from spillable_stream import Channel, flow
from spillable_stream.flow.metrics import components, prometheus_text


def test_a_name_is_written_as_prometheus_wants_it(tmp_path: Path) -> None:
    with Channel(tmp_path / "c", minimum_required_space=0) as channel:
        agent = flow.Agent(channels={"c": channel}, name='a"\\\n')
        (found,) = components(agent)
        assert (found.kind, found.name) == ("CHANNEL", "c")
        assert 'agent="a\\"\\\\\\n"' in prometheus_text(agent)
        assert "# TYPE spillable_flow_channel_event_put_success_total counter" in prometheus_text(agent)
        assert "# TYPE spillable_flow_channel_channel_size gauge" in prometheus_text(agent)
