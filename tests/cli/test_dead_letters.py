"""``dead-letters``."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
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


def test_dead_letters_of_all_are_listed_and_put_back_as_they_were(tmp_path: Path, path: Path) -> None:
    by_producer = {"dead_letter_error_code": "OSError", "dead_letter_channel": "orders", "dead_letter_attempts": "1"}
    by_flow = {"deadletter.component": "a1.k1", "deadletter.error": "ValueError: why", "deadletter.id": "7"}
    own = {"k": "v"}
    with Channel(tmp_path / "dead", minimum_required_space=0) as channel, channel.put_transaction() as tx:
        tx.put_many([Event(b"x", {**own, **by_producer}), Event(b"y", {**own, **by_flow}), Event(b"z", own)])
    assert run("dead-letters", "list", tmp_path / "dead").stdout.splitlines() == [
        "1: OSError (from orders, 1 attempt)",
        "2: ValueError: why (from a1.k1 event 7)",
        "3: an event without a reason: no worker, producer or flow put it here",
    ]
    with Channel(path, minimum_required_space=0) as channel:
        assert run("dead-letters", "replay", tmp_path / "dead", path).exit_code == 0
        with channel.take_transaction() as tx:
            assert [event.headers for event in tx.take_many(9)] == [own] * 3


def test_events_without_a_reason_that_follow_each_other_share_a_line(tmp_path: Path) -> None:
    """An ordinary channel got the same line for each of its events."""
    origin = {"dead_letter_error_code": "OSError", "dead_letter_channel": "orders"}
    with Channel(tmp_path / "c", minimum_required_space=0) as channel, channel.put_transaction() as tx:
        tx.put_many([*map(Event, (b"a", b"b")), Event(b"x", origin), *map(Event, (b"c", b"d", b"e"))])
    assert run("dead-letters", "list", tmp_path / "c", "-n", 5).stdout.splitlines() == [
        "1 to 2: 2 events without a reason: no worker, producer or flow put them here",
        "3: OSError (from orders)",
        "4 to 5: 2 events without a reason: no worker, producer or flow put them here",
    ]


def test_the_text_of_an_error_commands_no_terminal(tmp_path: Path) -> None:
    headers = {"dead_letter_error_code": "OSError", "dead_letter_error_message": "\x1b[2Jgone\r\nmore"}
    with Channel(tmp_path / "dead", minimum_required_space=0) as channel, channel.put_transaction() as tx:
        tx.put(Event(b"x", {**headers, "dead_letter_channel": "orders"}))
    assert run("dead-letters", "list", tmp_path / "dead").stdout == "1: OSError: \\x1b[2Jgone\\r (from orders)\n"
    assert (
        "dead_letter_error_message: \\x1b[2Jgone\\r\nmore\n" in run("dead-letters", "show", tmp_path / "dead", 1).stdout
    )


@pytest.mark.parametrize("attempts", ["9" * 5000, "²", "-1", ""])
def test_a_header_that_is_not_a_number_of_attempts_is_left_out(tmp_path: Path, attempts: str) -> None:
    headers = {"dead_letter_error_code": "OSError", "dead_letter_channel": "orders", "dead_letter_attempts": attempts}
    with Channel(tmp_path / "dead", minimum_required_space=0) as channel, channel.put_transaction() as tx:
        tx.put(Event(b"x", headers))
    assert run("dead-letters", "list", tmp_path / "dead").stdout == "1: OSError (from orders)\n"


@pytest.mark.parametrize("verb", ["list", "show", "replay"])
def test_a_typed_channel_is_not_a_channel_of_dead_letters(tmp_path: Path, path: Path, verb: str) -> None:
    for place, schema in ((tmp_path / "typed", pa.schema([("n", pa.int64())])), (path, None)):
        Channel(place, schema=schema, minimum_required_space=0).close()
    last = {"list": (), "show": (1,), "replay": (path,)}[verb]
    done = run("dead-letters", verb, tmp_path / "typed", *last)
    assert done.exit_code == 1
    assert (
        done.stderr
        == f"SchemaError: a dead-letter channel must be an event channel; {tmp_path / 'typed'} is a typed one\n"
    )


def test_one_is_shown_whole(dead: Path) -> None:
    text = run("dead-letters", "show", dead, 1).stdout
    assert "k: v\n" in text and text.endswith("\nx\n")
    assert json.loads(run("dead-letters", "show", dead, 2, "--json").stdout)["body"] == "y"
    assert run("dead-letters", "show", dead, 9).exit_code == 2


def test_a_replay_puts_each_back_once(dead: Path, path: Path) -> None:
    with Channel(path, minimum_required_space=0):
        pass
    assert run("dead-letters", "replay", dead, path).stdout == f"{path}: 2 events put back\n"
    assert json.loads(run("dead-letters", "replay", dead, path, "--json").stdout)["events"] == 0
    with Channel(path, create=False) as channel:
        assert peek(channel) == [b"x", b"y"]
    assert run("dead-letters", "list", dead).stdout == ""
    assert run("dead-letters", "replay", dead, path / "nothing").exit_code == 2
