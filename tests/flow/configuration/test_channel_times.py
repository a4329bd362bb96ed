"""The properties of channels for the times of events."""

from __future__ import annotations

from pathlib import Path

import pytest

from spillable_stream import Channel
from spillable_stream.flow.configuration.channel_times import event_times
from spillable_stream.flow.event_times import EventTimes
from tests.flow.configuration.test_channels import arguments, channel
from tests.support.flow_configurations import read


def test_a_channel_says_the_times_of_its_events() -> None:
    lines = [
        "type = file", "ttl = 2h", "ttlHeader = t", "deliverAfter = 1.5", "deliverAfterHeader = a",
        "deliverAtHeader = at",
    ]  # fmt: skip
    assert event_times(channel(*lines)) == EventTimes(7200.0, "t", 1.5, "a", "at")
    assert not {"ttl", "deliver_after"} & arguments(*lines).options.keys()
    assert event_times(channel("type = file", "path = s3://b/c", "deliverAfter = 1")) == EventTimes(deliver_after=1.0)
    assert event_times(channel("type = memory", "ttl = 1")) == EventTimes(1.0)
    assert event_times(channel("type = memory")) == EventTimes()


def findings(*lines: str) -> str:
    text = "a1.channels = c1\na1.sinks = k1\na1.sinks.k1.type = logger\na1.sinks.k1.channel = c1\n"
    return "\n".join(f.text for f in read(text + "".join(f"a1.channels.c1.{line}\n" for line in lines)).errors)


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (["type = file", "ttl = 0"], "ttl must be seconds, or a number with ms, s, m, h or d; more than 0, not '0'"),
        (["type = file", "deliverAfter = 367d"], "at most 366 days, not '367d'"),
        (["type = memory", "deliverAfter = 1"], "deliverAfter needs a channel with a disk tier"),
        (["type = memory", "deliverAtHeader = at"], "deliverAtHeader needs a channel with a disk tier"),
        (["type = SPILLABLEMEMORY", "overflowCapacity = 0", "deliverAfterHeader = a"], "deliverAfterHeader needs"),
    ],
)
def test_a_channel_that_cannot_have_such_times_does_not_run(lines: list[str], text: str) -> None:
    assert text in findings(*lines)


def test_a_channel_that_is_opened_by_its_file_leaves_out_what_is_for_sources(tmp_path: Path) -> None:
    path = tmp_path / "flume.properties"
    path.write_text(
        f"a1.channels.c1.type = file\na1.channels.c1.path = {tmp_path}/c\na1.channels.c1.ttl = 1h\n"
        "a1.channels.c1.deliverAtHeader = at\n"
    )
    with Channel.from_config(path) as opened:
        assert opened.path == tmp_path / "c"
