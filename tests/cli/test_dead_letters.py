"""``dead-letters``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spillable_stream import Channel, Event
from tests.support.command_line import run
from tests.support.events import peek


@pytest.fixture
def dead(tmp_path: Path) -> Path:
    """A channel of two dead letters that a worker put aside."""
    reasons = {
        "dead_letter_channel": "/data/orders",
        "dead_letter_write_order_id": "7",
        "dead_letter_attempts": "3",
        "dead_letter_error_code": "ValueError",
        "dead_letter_error_message": "not a number\nmore",
    }
    with Channel(tmp_path / "dead", minimum_required_space=0) as channel, channel.put_transaction() as tx:
        tx.put_many([Event(b"x", {"k": "v", **reasons}), Event(b"y", {**reasons, "dead_letter_write_order_id": "9"})])
    return tmp_path / "dead"


def test_the_list_says_why_and_from_where(dead: Path) -> None:
    done = run("dead-letters", "list", dead)
    assert done.stdout.splitlines() == [
        "1: ValueError: not a number (from /data/orders event 7, 3 attempts)",
        "2: ValueError: not a number (from /data/orders event 9, 3 attempts)",
    ]
    assert run("dead-letters", "list", dead, "-n", 1).stdout.count("\n") == 1
    said = json.loads(run("dead-letters", "list", dead, "--json").stdout)["letters"]
    assert [letter["id"] for letter in said] == [1, 2] and said[0]["headers"]["k"] == "v"


def test_one_is_shown_whole(dead: Path) -> None:
    text = run("dead-letters", "show", dead, 1).stdout
    assert "k: v\n" in text and text.endswith("\nx\n")
    assert json.loads(run("dead-letters", "show", dead, 2, "--json").stdout)["body"] == "y"
    assert run("dead-letters", "show", dead, 9).exit_code == 2


def test_a_replay_puts_each_back_once(dead: Path, path: Path) -> None:
    with Channel(path, minimum_required_space=0):
        pass
    assert run("dead-letters", "replay", dead, path).stdout == f"{path}: 2 events were put back\n"
    assert json.loads(run("dead-letters", "replay", dead, path, "--json").stdout)["events"] == 0
    with Channel(path, create=False) as channel:
        assert peek(channel) == [b"x", b"y"]
    assert run("dead-letters", "list", dead).stdout == ""
    assert run("dead-letters", "replay", dead, path / "nothing").exit_code == 2
