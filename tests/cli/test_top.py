"""``spillable top``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spillable_stream.cli import app


def top(*arguments: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["top", "--interval", "0.1", *map(str, arguments)])
    return done.exit_code, done.stdout, done.stderr


def test_once_prints_a_view_with_rates(filled: Path) -> None:
    status, said, _ = top("--once", filled)
    assert status == 0
    assert "billing" in said and "put 0/s" in said


def test_a_channel_that_cannot_be_looked_at_is_status_1_and_the_others_are_shown(filled: Path) -> None:
    status, said, _ = top("--once", filled, f"{filled}-missing")
    assert status == 1
    assert "billing" in said and "NotAChannelError" in said


@pytest.mark.parametrize("missing", ["{}-missing", "{}-missing-*"])
@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_where_none_of_the_channels_is_there_it_is_status_2(filled: Path, missing: str, as_json: list[str]) -> None:
    status, said, _ = top("--once", *as_json, missing.format(filled), f"{filled}-missing-too")
    assert status == 2
    assert "missing" in said


def test_a_channel_given_twice_is_status_2(filled: Path) -> None:
    status, _, said = top("--once", filled, filled)
    assert status == 2 and "is given twice" in said


def test_json_is_one_object_of_a_stable_shape(filled: Path) -> None:
    status, said, _ = top("--once", "--json", filled, f"{filled}-missing")
    seen, missing = json.loads(said)["channels"]
    assert status == 1
    looks = {"path", "at", "stats", "problem", "typed", "own", "taken", "rates", "damaged", "missing", "advised"}
    assert set(seen) == {*looks, "advice"}
    assert seen["stats"]["groups"]["billing"]["lag"] == 15 and seen["rates"]["puts"] == 0
    assert set(seen["rates"]) == {"seconds", "puts", "takes", "group_takes", "transactions", "spills", "syncs"}
    assert missing["stats"] is None and missing["advice"][0]["urgency"] == "error"
