"""Places in a channel as people type them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from spillable_stream import OptionError
from spillable_stream.channel.place import parse_end, parse_place


def test_words_ids_times_and_ages_are_places() -> None:
    assert parse_place("earliest") == "earliest" and parse_place(" latest ") == "latest"
    assert parse_place("17") == parse_place(" 17 ") == 17
    assert parse_place("2026-01-31T09:30+00:00") == datetime(2026, 1, 31, 9, 30, tzinfo=UTC)
    assert [parse_place(text) for text in ("90s", "15m ago", "2h", "7d")] == [
        timedelta(seconds=90), timedelta(minutes=15), timedelta(hours=2), timedelta(days=7),
    ]  # fmt: skip


def test_a_time_without_a_zone_is_local() -> None:
    found = parse_place("2026-01-31T09:30")
    assert isinstance(found, datetime) and found == datetime(2026, 1, 31, 9, 30).astimezone()
    assert found.utcoffset() is not None


@pytest.mark.parametrize(
    "text", ["", "soon", "-5", "5x", "١٢", "2026-13-01", "9999999999999d", "0001-01-01", "9" * 5000]
)
def test_anything_else_is_refused_with_what_may_be_typed(text: str) -> None:
    with pytest.raises(OptionError, match="give earliest, latest, a write-order ID"):
        parse_place(text)


def test_a_read_ends_at_an_id_or_a_time() -> None:
    assert parse_end("9") == 9 and parse_end("1m") == timedelta(minutes=1)
    with pytest.raises(OptionError, match="can't end at 'latest'"):
        parse_end("latest")


def test_a_read_does_not_end_before_the_first_id_and_the_refusal_speaks_of_no_type() -> None:
    with pytest.raises(OptionError, match=r"^a read can't end at '0': no event has that ID; give an ID from 1 on"):
        parse_end("0")
