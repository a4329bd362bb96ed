"""Paths are written with Flume's escapes, and a batch is divided by them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillable_stream import Event
from spillable_stream.errors import OptionError
from spillable_stream.flow.escapes import PathEscapes, Rounding
from spillable_stream.flow.event_batch import as_event_batch
from tests.support.flow_batches import STILL

TIME = 1_704_164_645_678  # Tuesday, 2 January 2024, 03:04:05.678 UTC


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/a/%Y-%m-%d/%H%M%S", "/a/2024-01-02/030405"),
        ("%a %A %b %B %d %e", "Tue Tuesday Jan January 02 2"),
        ("%c", "Tue Jan 2 03:04:05 2024"),
        ("%D", "01/02/24"),
        ("%I %j %k %l %n %p", "03 002 3 3 1 AM"),
        ("%s %t %y %z", "1704164645 1704164645678 24 +0000"),
        ("%% %q", "% "),
        ("%{a}/%{missing}/x", "1/x"),
        ("%[localhost] %[FQDN] %[IP]", "host.example host.example 192.0.2.1"),
        ("%{up}", "_/_/etc"),
        ("plain", "plain"),
    ],
)
def test_what_an_escape_becomes(text: str, expected: str) -> None:
    path = PathEscapes(text, zone=UTC, surroundings=STILL)
    assert path.expand({"a": "1", "up": "/../../etc"}, TIME) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/out/%{dot}%{dot}/x", "/out/_/x"),
        ("/out/.%{dot}/x", "/out/_/x"),
        ("/out/%{none}..%{none}/x", "/out/_/x"),
        ("/out/%{dots}%{dot}", "/out/./_"),
        ("/out/%{dot}/..a/%{none}..b", "/out/./..a/..b"),
        ("/out/a/../%{dot}", "/out/a/../."),
    ],
)
def test_headers_do_not_lead_out_of_a_path_whatever_is_beside_them(text: str, expected: str) -> None:
    assert PathEscapes(text).expand({"dot": ".", "dots": "./.", "none": ""}) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/out/%{none}/x", "/out/x"),
        ("/out/%{none}%{none}/%{gaps}/x", "/out/a/b/x"),
        ("/out/a%{none}/%{none}b/x", "/out/a/b/x"),
        ("/out//%{none}", "/out//"),
        ("%{none}/etc", "etc"),
    ],
)
def test_headers_make_no_empty_name_which_a_store_refuses(text: str, expected: str) -> None:
    assert PathEscapes(text).expand({"gaps": "a//b/", "none": ""}) == expected


@pytest.mark.parametrize("stamp", ["253402300800000", "999999999999999"])
def test_a_time_that_no_date_can_say_is_none(stamp: str) -> None:
    batch = as_event_batch([Event(b"", {"timestamp": stamp}), Event(b"", {"timestamp": str(TIME)})])
    found = PathEscapes("%Y", zone=UTC).bucket(batch)
    assert found.untimed.to_pylist() == [0] and found.paths == ["2024"]


@pytest.mark.parametrize(
    ("rounding", "expected"),
    [
        (Rounding(10, "minute"), "03:00:00 1704164645678"),
        (Rounding(2, "second"), "03:04:04 1704164645678"),
        (Rounding(6, "hour"), "00:00:00 1704164645678"),
    ],
)
def test_times_are_rounded_down_but_for_the_milliseconds(rounding: Rounding, expected: str) -> None:
    assert PathEscapes("%H:%M:%S %t", zone=UTC, rounding=rounding).expand({}, TIME) == expected


def test_times_are_those_of_a_zone() -> None:
    assert PathEscapes("%H %z", zone=ZoneInfo("Asia/Kolkata")).expand({}, TIME) == "08 +0530"


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([None, "", "no", "1704164645678", "1704164705000",
        "0"])), max_size=12,
    ),
    st.sampled_from(["%{h}/%M", "%Y%H", "%t", "%{h}", "x", "%{h}%s"]),
    st.booleans(),
)  # fmt: skip
def test_a_batch_is_divided_as_each_event_alone_would_be(
    rows: list[tuple[str | None, str | None]], text: str, local: bool
) -> None:
    named = [{k: v for k, v in (("h", h), ("timestamp", t)) if v is not None} for h, t in rows]
    path = PathEscapes(text, zone=UTC, use_local_timestamp=local, surroundings=replace(STILL, now_ms=lambda: TIME))
    expected: dict[str, list[int]] = {}
    untimed = []
    for i, headers in enumerate(named):
        stamp = str(TIME) if local else headers.get("timestamp", "")
        if path.needs_time and not stamp.isdigit():
            untimed.append(i)
            continue
        expected.setdefault(path.expand(headers, int(stamp) if path.needs_time else None), []).append(i)
    found = path.bucket(as_event_batch([Event(b"", headers) for headers in named]))
    assert dict(zip(found.paths, [r.to_pylist() for r in found.rows], strict=True)) == expected
    assert found.untimed.to_pylist() == untimed


def test_a_path_is_written_once_for_a_stretch_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    path, written = PathEscapes("%Y-%m-%d/%H", zone=UTC), []
    monkeypatch.setattr(PathEscapes, "expand", lambda *args: written.append(args) or "p")
    batch = as_event_batch([Event(b"", {"timestamp": str(TIME + i)}) for i in range(1000)])
    assert [len(r) for r in path.bucket(batch).rows] == [1000] and len(written) == 1
    assert isinstance(path.bucket(batch).rows[0], pa.Array)


@pytest.mark.parametrize(
    ("text", "rounding", "says"),
    [
        ("%[word]", None, r"has %\[word\]; there are"),
        ("x", Rounding(61, "second"), "1 to 60 seconds, not to 61"),
        ("x", Rounding(1, "day"), "not to 'day'"),
        ("x", Rounding(0, "hour"), "1 to 24 hours, not to 0"),
    ],
)
def test_what_cannot_be_used_is_refused(text: str, rounding: Rounding | None, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        PathEscapes(text, rounding=rounding)
