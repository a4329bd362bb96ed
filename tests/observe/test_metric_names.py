"""The names of the metrics: stable, documented, and those that the dashboard and the alerts ask for."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from spillable_stream import Channel, Event, WorkerStats
from spillable_stream.observe.metric_names import METRICS, MOST_GROUPS, MetricKind
from spillable_stream.observe.observation import Observation
from tests.support.events import numbered, put, take

ROOT = Path(__file__).parent.parent.parent
CONF = ROOT / "conf"
ALERTS = CONF / "prometheus-alerts.yml"
PROMTOOL = shutil.which("promtool")
NEEDS_PROMTOOL = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is not installed: Debian's package prometheus has it"
)

Open = Callable[..., Channel]

# Scripts, dashboards and alerts of users rely on these. A name is never taken off this list.
NAMES = {
    "spillable_channel_up", "spillable_channel_events", "spillable_channel_payload_bytes",
    "spillable_channel_capacity_events", "spillable_channel_capacity_bytes", "spillable_channel_fill_ratio",
    "spillable_channel_oldest_age_seconds", "spillable_channel_kept_events", "spillable_channel_kept_bytes",
    "spillable_channel_put_events_total", "spillable_channel_transactions_total",
    "spillable_channel_spilled_transactions_total", "spillable_channel_syncs_total",
    "spillable_channel_overflow_active", "spillable_channel_lost_events", "spillable_channel_doubtful_events",
    "spillable_channel_unhealthy", "spillable_channel_data_files", "spillable_channel_segments",
    "spillable_channel_groups_without_owner", "spillable_channel_spool_events", "spillable_channel_spool_bytes",
    "spillable_channel_spool_oldest_age_seconds", "spillable_group_lag_events", "spillable_group_oldest_age_seconds",
    "spillable_group_in_flight_events", "spillable_group_position", "spillable_group_taken_events_total",
    "spillable_channel_delayed_events", "spillable_channel_delayed_bytes",
    "spillable_channel_delayed_next_timestamp_seconds",
    "spillable_worker_healthy", "spillable_worker_done_events_total", "spillable_worker_dropped_events_total",
    "spillable_worker_dead_letter_events_total", "spillable_worker_failed_calls_total",
    "spillable_worker_waiting_events", "spillable_group_expired_events_total",
    "spillable_group_missed_events", "spillable_handle_put_events_total", "spillable_handle_put_errors_total",
    "spillable_handle_taken_events_total", "spillable_handle_take_errors_total",
    "spillable_handle_checkpoint_errors_total", "spillable_handle_syncs_total", "spillable_handle_written_bytes_total",
}  # fmt: skip


def values(seen: Observation) -> dict[str, dict[tuple[str, ...], float]]:
    """Return the values in an observation, by series and labels."""
    return {metric.series: dict(metric.points(seen)) for metric in METRICS}


def asked_for(text: str) -> set[str]:
    """Return the names of the metrics that expressions ask for."""
    return set(re.findall(r"\bspillable_(?!stream\b)\w+", text))


def test_the_names_stay() -> None:
    assert {metric.series for metric in METRICS} == NAMES


def test_the_docs_have_every_metric_with_its_labels_and_meaning() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    rows = [f"| `{metric.series}` | {', '.join(metric.labels)} | {metric.text} |" for metric in METRICS]
    assert [row for row in rows if row not in page] == []


def test_names_follow_prometheus_and_say_their_unit() -> None:
    for metric in METRICS:
        assert re.fullmatch(r"spillable_(channel|group|handle|worker)_[a-z_]+[a-z]", metric.name)
        assert not metric.name.endswith("_total") and metric.text.endswith(".")
        assert metric.labels[0] == "channel"
        assert (metric.kind is MetricKind.COUNTER) == metric.series.endswith("_total")


def test_values_are_those_of_the_channel(open_channel: Open, tmp_path: Path) -> None:
    channel = open_channel(memory_capacity=10, overflow_timeout=0, overflow_capacity=30, memory_dir=str(tmp_path))
    put(channel, *numbered(0, 10))
    put(channel, *numbered(10, 6))
    take(channel, 4, "a")
    found = values(Observation("c", 1.0, channel.stats(), own=True, taken={"a": 4}))
    assert found["spillable_channel_up"] == {("c",): 1}
    assert found["spillable_channel_events"] == {("c", "memory"): 6, ("c", "disk"): 6}
    assert found["spillable_channel_capacity_events"] == {("c", "memory"): 10, ("c", "disk"): 30}
    assert found["spillable_channel_fill_ratio"] == {("c",): 0.3}
    assert found["spillable_channel_put_events_total"] == {("c",): 16}
    assert found["spillable_channel_spilled_transactions_total"] == {("c",): 1}
    assert found["spillable_group_lag_events"] == {("c", "a"): 12}
    assert found["spillable_group_taken_events_total"] == {("c", "a"): 4}
    assert 0 <= found["spillable_group_oldest_age_seconds"][("c", "a")] < 60
    assert found["spillable_handle_put_events_total"] == {("c",): 16}
    assert found["spillable_channel_spool_events"] == {}


def test_the_workers_of_a_program_are_counted_by_group(open_channel: Open, tmp_path: Path) -> None:
    def fail(event: Event) -> None:
        raise ValueError(event.body)

    channel = open_channel()
    put(channel, *numbered(0, 3))
    with (
        channel.worker("g", print) as first,
        channel.worker("g", fail, max_attempts=1, dead_letter=tmp_path / "d") as w,
    ):
        first.run(until_empty=True)
        put(channel, b"bad")
        w.run(until_empty=True)
        found = values(Observation("c", 1.0, channel.stats(), own=True))
    assert {name: points for name, points in found.items() if name.startswith("spillable_worker_")} == {
        "spillable_worker_healthy": {("c", "g"): 0},  # it has ended
        "spillable_worker_done_events_total": {("c", "g"): 3},
        "spillable_worker_dropped_events_total": {("c", "g"): 0},
        "spillable_worker_dead_letter_events_total": {("c", "g"): 1},
        "spillable_worker_failed_calls_total": {("c", "g"): 1},
        "spillable_worker_waiting_events": {("c", "g"): 0},
    }


def test_a_channel_whose_first_look_is_to_come_has_no_series() -> None:
    assert not any(values(Observation("c", 1.0)).values())


def test_a_channel_that_cannot_be_looked_at_is_down_and_has_no_other_series() -> None:
    found = values(Observation("c", 1.0, problem="it is missing"))
    assert {name for name, points in found.items() if points} == {"spillable_channel_up"}
    assert found["spillable_channel_up"] == {("c",): 0}


def test_what_a_handle_counts_is_shown_of_a_programs_own_only(open_channel: Open) -> None:
    found = values(Observation("c", 1.0, open_channel().stats()))
    assert not [name for name, points in found.items() if points and name.startswith("spillable_handle_")]


def test_age_is_0_where_nothing_waits(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, b"a")
    take(channel, 1, "a")
    found = values(Observation("c", 1.0, channel.stats()))
    assert found["spillable_channel_oldest_age_seconds"] == {("c",): 0}
    assert found["spillable_group_oldest_age_seconds"] == {("c", "a"): 0}


def test_of_many_groups_those_with_most_to_take_have_series(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, MOST_GROUPS + 5))
    for i in range(MOST_GROUPS + 5):
        take(channel, i + 1, f"g{i}")
    found = values(Observation("c", 1.0, channel.stats()))["spillable_group_lag_events"]
    assert len(found) == MOST_GROUPS and ("c", "g0") in found and ("c", f"g{MOST_GROUPS + 4}") not in found


def test_of_many_workers_those_that_need_a_look_have_series(open_channel: Open) -> None:
    worker = WorkerStats("", "ended", False, 1, 0, 0, 0, 0, 0, 0)
    many = [replace(worker, group=f"g{i}") for i in range(MOST_GROUPS + 5)]
    many[-1] = replace(many[-1], state="died")
    found = values(Observation("c", 1.0, replace(open_channel().stats(), workers=tuple(many))))
    for name in (name for name in NAMES if name.startswith("spillable_worker_")):
        assert len(found[name]) == MOST_GROUPS and ("c", f"g{MOST_GROUPS + 4}") in found[name]


def test_every_metric_of_the_dashboard_and_of_the_alerts_is_served() -> None:
    dashboard = json.loads((CONF / "grafana-dashboard.json").read_text())
    shown = asked_for(json.dumps(dashboard))
    alerts = _rules().values()
    alerted = {name for rule in alerts for name in asked_for(rule["expr"])}
    assert len(shown) >= 12 and len(alerted) >= 6
    assert shown | alerted <= NAMES
    assert all(rule["annotations"]["summary"] and rule["annotations"]["action"] for rule in alerts)
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    assert all(panel["description"] and panel["targets"] for panel in panels)
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


@NEEDS_PROMTOOL
def test_promtool_accepts_the_rules_and_they_fire_when_they_should(tmp_path: Path) -> None:
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, "check", "rules", ALERTS], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for number, test in enumerate((_test_of_hours(), _test_of_days())):
        file = tmp_path / f"{number}.yml"
        file.write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], **test}))
        done = subprocess.run([PROMTOOL, "test", "rules", file], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def _test_of_hours() -> dict[str, object]:
    """Return a unit test of the rules, minute by minute: of two channels, one has every trouble, and one has none."""
    series = {
        "spillable_channel_up": 0,
        "spillable_channel_fill_ratio": 0.95,
        "spillable_channel_unhealthy": 1,
        "spillable_channel_lost_events": 7,
        "spillable_channel_overflow_active": 1,
        "spillable_channel_groups_without_owner": 2,
        "spillable_channel_spool_oldest_age_seconds": 900,
    }
    bad = [{"series": f'{name}{{channel="/bad"}}', "values": f"{value}x120"} for name, value in series.items()]
    good = [{"series": f'{name}{{channel="/good"}}', "values": f"{int(name.endswith('_up'))}x120"} for name in series]
    stuck = [
        {"series": 'spillable_group_lag_events{channel="/bad",group="g"}', "values": "500x120"},
        {"series": 'spillable_group_taken_events_total{channel="/bad",group="g"}', "values": "10x120"},
        {"series": 'spillable_group_missed_events{channel="/bad",group="g"}', "values": "3x120"},
        {"series": 'spillable_group_lag_events{channel="/good",group="g"}', "values": "500x120"},
        {"series": 'spillable_group_taken_events_total{channel="/good",group="g"}', "values": "0+100x120"},
        {"series": 'spillable_worker_healthy{channel="/bad",group="g"}', "values": "0x120"},
        {"series": 'spillable_worker_healthy{channel="/good",group="g"}', "values": "1x120"},
        {"series": 'spillable_worker_healthy{channel="/good",group="ended"}', "values": "0x120"},
        {"series": 'spillable_group_lag_events{channel="/good",group="ended"}', "values": "0x120"},
        {"series": 'spillable_worker_dead_letter_events_total{channel="/bad",group="g"}', "values": "0+1x120"},
        {"series": 'spillable_worker_dead_letter_events_total{channel="/good",group="g"}', "values": "9x120"},
        {"series": 'spillable_handle_put_errors_total{channel="/bad"}', "values": "0+1x120"},
        {"series": 'spillable_handle_put_errors_total{channel="/good"}', "values": "0x120"},
    ]
    troubles = [rule for name, rule in _rules().items() if name != "SpillableMetricsGone"]
    expected = [{"eval_time": "90m", "alertname": rule["alert"], "exp_alerts": [_expected(rule)]} for rule in troubles]
    return {
        "evaluation_interval": "1m",
        "tests": [
            {"interval": "1m", "input_series": bad + good + stuck, "alert_rule_test": expected},
            _test_of("SpillableMetricsGone", {"spillable_channel_up": "1x10 _x20"}, {"9m": [], "30m": [{}]}),
            _test_of(
                "SpillableGroupStuck",
                {"spillable_group_lag_events": "0x30 5x60", "spillable_group_taken_events_total": "0+1x30 30x60"},
                {"31m": [], "44m": [], "60m": [{}]},
            ),
        ],
    }


def _test_of_days() -> dict[str, object]:
    """Return a unit test of the rule that looks a day back, which promtool would take long to do minute by minute."""
    rule = "SpillableChannelLostEvents"
    return {
        "evaluation_interval": "10m",
        "tests": [
            _test_of(
                rule,
                {"spillable_channel_lost_events": "0x10 7x300 9x10"},
                {"90m": [], "2h": [{"value": "7"}], "1d": [{"value": "7"}], "2d": [], "3150m": [{"value": "2"}]},
                "10m",
            ),
            _test_of(  # another instance serves the channel, and two do at once
                rule,
                {
                    'spillable_channel_lost_events{instance="1"}': "7x500",
                    'spillable_channel_lost_events{instance="2"}': "_x400 7x400",
                },
                {"4010m": [], "5100m": [], "6400m": []},
                "10m",
            ),
            _test_of(  # two serve it while it loses events
                rule,
                {
                    'spillable_channel_lost_events{instance="1"}': "0x10 7x300",
                    'spillable_channel_lost_events{instance="2"}': "0x10 7x300",
                },
                {"90m": [], "2h": [{"value": "7"}], "2d": []},
                "10m",
            ),
            _test_of(  # nobody served it for half an hour, a day before
                rule,
                {"spillable_channel_lost_events": "7x200 stale _x2 7x300"},
                {"2020m": [], "3450m": [], "3470m": []},
                "10m",
            ),
            _test_of(  # it is watched from now on
                rule,
                {"spillable_channel_lost_events": "_x200 7x300"},
                {"2010m": [{"value": "7"}], "3500m": []},
                "10m",
            ),
        ],
    }


def _rules() -> dict[str, dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def _test_of(
    alert: str, series: dict[str, str], fires: dict[str, list[dict[str, str]]], interval: str = "1m"
) -> dict[str, object]:
    """Return a test of one rule: when it fires for the group g of the channel /bad, and when it does not."""
    labels = 'channel="/bad",group="g"' if "spillable_group" in str(_rules()[alert]["expr"]) else 'channel="/bad"'
    rule = _rules()[alert]
    return {
        "interval": interval,
        "input_series": [{"series": _labelled(name, labels), "values": values} for name, values in series.items()],
        "alert_rule_test": [
            {"eval_time": at, "alertname": alert, "exp_alerts": [_expected(rule, **more) for more in alerts]}
            for at, alerts in fires.items()
        ],
    }


def _labelled(name: str, labels: str) -> str:
    return name.replace("{", f"{{{labels},") if "{" in name else f"{name}{{{labels}}}"


def _expected(rule: dict[str, Any], value: str = "") -> dict[str, dict[str, str]]:
    """Return the alert that a rule gives for the bad channel."""
    is_of_group = "spillable_group" in rule["expr"] or "spillable_worker" in rule["expr"]
    named = {} if "absent" in rule["expr"] else {"channel": "/bad", **({"group": "g"} if is_of_group else {})}
    numbers = {"SpillableChannelFilling": "95%", "SpillableChannelLostEvents": "7", "SpillableGroupMissedEvents": "3"}
    texts = {
        key: text.replace("{{ $labels.channel }}", "/bad")
        .replace("{{ $labels.group }}", "g")
        .replace("{{ $value | humanizePercentage }}", numbers.get(str(rule["alert"]), ""))
        .replace("{{ $value }}", value or numbers.get(str(rule["alert"]), ""))
        for key, text in rule["annotations"].items()
    }
    return {"exp_labels": {**named, **rule["labels"]}, "exp_annotations": texts}
