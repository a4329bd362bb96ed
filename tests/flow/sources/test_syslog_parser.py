from __future__ import annotations

from datetime import UTC, datetime

import pytest

from spillable_stream.errors import OptionError
from spillable_stream.flow.sources.syslog_parser import SyslogParser

NOW = datetime(2024, 3, 10, 12, 0, 0).timestamp()
BOM = b"\xef\xbb\xbf"


def parser(keep: str = "none", **options: bool) -> SyslogParser:
    return SyslogParser(keep, now=lambda: NOW, **options)


def ms(text: str) -> str:
    return str(round(datetime.fromisoformat(text).timestamp() * 1000))


# RFC 5424, section 6.5; RFC 3164, section 5.4; and what is neither.
TABLE = [
    (
        b"<34>1 2003-10-11T22:14:15.003Z mymachine.example.com su - ID47 - " + BOM + b"'su root' failed",
        b"su - ID47 - " + BOM + b"'su root' failed",
        {"Facility": "4", "Severity": "2", "priority": "34", "version": "1", "host": "mymachine.example.com",
         "timestamp": ms("2003-10-11T22:14:15.003+00:00")},
    ),
    (
        b"<165>1 2003-08-24T05:14:15.000003-07:00 192.0.2.1 myproc 8710 - - %% It's time",
        b"myproc 8710 - - %% It's time",
        {"Facility": "20", "Severity": "5", "priority": "165", "version": "1", "host": "192.0.2.1",
         "timestamp": ms("2003-08-24T05:14:15.000-07:00")},
    ),
    (
        b"<165>1 - - evntslog - ID47 [exampleSDID@32473 iut=\"3\"] x",
        b"evntslog - ID47 [exampleSDID@32473 iut=\"3\"] x",
        {"Facility": "20", "Severity": "5", "priority": "165", "version": "1"},
    ),
    (
        b"<34>Oct 11 22:14:15 mymachine su: 'su root' failed for lonvick",
        b"su: 'su root' failed for lonvick",
        {"Facility": "4", "Severity": "2", "priority": "34", "host": "mymachine",
         "timestamp": ms("2023-10-11T22:14:15")},
    ),
    (
        b"<13>Mar  5 08:00:00 10.0.0.99 Use the BFG!",
        b"Use the BFG!",
        {"Facility": "1", "Severity": "5", "priority": "13", "host": "10.0.0.99",
         "timestamp": ms("2024-03-05T08:00:00")},
    ),
    (
        b"<0>Feb 29 00:00:01 h leap",
        b"leap",
        {"Facility": "0", "Severity": "0", "priority": "0", "host": "h", "timestamp": ms("2024-02-29T00:00:01")},
    ),
    (
        b"<34>1 9999-12-31T23:59:59-23:59 h no year has this moment",
        b"1 9999-12-31T23:59:59-23:59 h no year has this moment",
        {"Facility": "4", "Severity": "2", "priority": "34"},
    ),
    (
        b"<34>1 0001-01-01T00:00:00+23:59 h nor this one",
        b"1 0001-01-01T00:00:00+23:59 h nor this one",
        {"Facility": "4", "Severity": "2", "priority": "34"},
    ),
    (b"<13>no stamp", b"no stamp", {"Facility": "1", "Severity": "5", "priority": "13"}),
    (b"plain", b"plain", {"Facility": "0", "Severity": "0", "flume.syslog.status": "Invalid"}),
    (b"<192>x", b"<192>x", {"Facility": "0", "Severity": "0", "flume.syslog.status": "Invalid"}),
    (b"<>x", b"<>x", {"Facility": "0", "Severity": "0", "flume.syslog.status": "Invalid"}),
    (b"", b"", {"Facility": "0", "Severity": "0", "flume.syslog.status": "Invalid"}),
]  # fmt: skip


@pytest.mark.parametrize(("data", "body", "headers"), TABLE)
def test_messages_are_read_as_the_rfcs_say(data: bytes, body: bytes, headers: dict[str, str]) -> None:
    message = parser().parse(data)
    assert message.body == body
    assert message.headers == headers


def test_a_message_after_a_good_one_has_nothing_of_it() -> None:
    it = parser()
    it.parse(TABLE[0][0])
    assert it.parse(b"plain").headers.keys() == {"Facility", "Severity", "flume.syslog.status"}


@pytest.mark.parametrize(
    ("stamp", "year"),
    [("Apr  9 00:00:00", 2024), ("Apr 11 00:00:00", 2023), ("Apr 12 00:00:00", 2023), ("Mar 10 12:00:00", 2024)],
)
def test_a_time_without_year_is_between_11_months_ago_and_1_month_ahead(stamp: str, year: int) -> None:
    found = parser().parse(f"<1>{stamp} h x".encode()).headers["timestamp"]
    assert datetime.fromtimestamp(int(found) / 1000).year == year


@pytest.mark.parametrize(
    ("keep", "body"),
    [
        ("all", b"<34>1 2003-10-11T22:14:15Z host x"),
        ("priority version", b"<34>1 x"),
        ("timestamp hostname", b"2003-10-11T22:14:15Z host x"),
        ("none", b"x"),
    ],
)
def test_fields_can_stay_in_the_body(keep: str, body: bytes) -> None:
    assert parser(keep).parse(b"<34>1 2003-10-11T22:14:15Z host x").body == body


def test_a_message_that_was_cut_is_marked() -> None:
    assert parser().parse(b"<34>Oct 11 22:14:15 h x", is_cut=True).headers["flume.syslog.status"] == "Incomplete"
    assert parser().parse(b"plain", is_cut=True).headers["flume.syslog.status"] == "Incomplete"


def test_multiport_writes_priority_and_version_with_capitals() -> None:
    headers = parser(capitals=True).parse(TABLE[0][0]).headers
    assert (headers["Priority"], headers["Version"]) == ("34", "1")


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(OptionError, match="keepFields"):
        parser("nothing")


def test_the_zone_of_a_stamp_counts() -> None:
    stamp = parser().parse(b"<1>1 2024-01-01T00:00:00+01:00 h x").headers["timestamp"]
    assert datetime.fromtimestamp(int(stamp) / 1000, UTC).hour == 23
