from __future__ import annotations

import pytest

from spillable_stream.errors import ChannelFullError
from spillable_stream.flow.counters import Pauses, SinkCounters, SourceCounters


def test_the_names_are_flumes() -> None:
    source, sink = SourceCounters(), SinkCounters()
    assert [*source.flume_counters()] == [
        "StartTime",
        "StopTime",
        "EventReceivedCount",
        "EventAcceptedCount",
        "AppendReceivedCount",
        "AppendAcceptedCount",
        "AppendBatchReceivedCount",
        "AppendBatchAcceptedCount",
        "OpenConnectionCount",
        "EventReadFail",
        "GenericProcessingFail",
        "ChannelWriteFail",
    ]
    assert [*sink.flume_counters()] == [
        "StartTime",
        "StopTime",
        "ConnectionCreatedCount",
        "ConnectionClosedCount",
        "ConnectionFailedCount",
        "BatchEmptyCount",
        "BatchUnderflowCount",
        "BatchCompleteCount",
        "EventDrainAttemptCount",
        "EventDrainSuccessCount",
        "EventWriteFail",
        "ChannelReadFail",
    ]


def test_starts_and_stops_have_times_and_takes_have_kinds() -> None:
    sink = SinkCounters(now=lambda: 1.5)
    sink.started()
    for events in (0, 1, 2):
        sink.took(events, 2)
    sink.stopped()
    found = sink.flume_counters()
    assert (found["StartTime"], found["StopTime"], found["EventDrainAttemptCount"]) == (1500, 1500, 3)
    assert [found[f"Batch{kind}Count"] for kind in ("Empty", "Underflow", "Complete")] == [1, 1, 1]
    assert [SourceCounters().flume_counters()["StartTime"]] == [0]


def test_a_batch_counts_as_accepted_once_it_is_stored_and_as_a_failed_write_if_a_channel_refuses() -> None:
    source = SourceCounters()
    with pytest.raises(ChannelFullError), source.storing(3):
        raise ChannelFullError("full")
    assert (source.channel_write_fail, source.event_accepted_count) == (1, 0)
    with pytest.raises(ValueError), source.storing(3):
        raise ValueError
    assert (source.channel_write_fail, source.event_accepted_count) == (1, 0)
    with source.storing(3):
        assert source.event_accepted_count == 0
    assert (source.channel_write_fail, source.event_accepted_count, source.append_batch_accepted_count) == (1, 3, 1)


def test_a_batch_that_is_refused_again_and_again_is_one_pause() -> None:
    now = [10.0]
    pauses = Pauses(lambda: now[0])
    pauses.end("a batch that was never refused")
    assert pauses.flume_counters() == {"Paused": 0, "PausedSeconds": 0.0}
    for batch in ("one", "other", "one"):
        pauses.begin(batch, f"{batch} is refused")
        now[0] += 1
    assert pauses.flume_counters() == {"Paused": 2, "PausedSeconds": 5.0}
    assert pauses.trouble == "one is refused"
    pauses.end("one")
    assert pauses.trouble == "other is refused"
    now[0] += 1
    assert pauses.flume_counters() == {"Paused": 1, "PausedSeconds": 6.0}
    pauses.begin("other", "and for another reason")
    assert pauses.trouble == "and for another reason"
    pauses.end("other")
    assert pauses.trouble == ""
