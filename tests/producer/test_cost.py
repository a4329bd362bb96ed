"""What a send costs, counted rather than timed: Python calls, and what may come between."""

from __future__ import annotations

import dis
from pathlib import Path

import pytest

from spillable_stream import Event, Producer
from tests.channel.test_cost import python_calls
from tests.producer.conftest import MakeProducer

SENDS = 100


def test_a_send_of_a_body_is_one_python_call(produce: MakeProducer) -> None:
    producer = produce(linger_ms=60_000)
    producer.send(b"first of its batch")
    assert python_calls(lambda: [producer.send(b"a body") for _ in range(SENDS)] and None) <= SENDS + 2


def test_a_send_of_an_event_costs_a_dozen_python_calls(produce: MakeProducer) -> None:
    producer = produce(linger_ms=60_000)
    producer.send(b"first of its batch")
    assert python_calls(lambda: [producer.send(Event(b"x", {"a": "b"})) for _ in range(SENDS)] and None) <= 22 * SENDS


def test_what_a_send_does_without_the_lock_has_no_instruction_that_lets_others_in() -> None:
    """Others come in after a call, at a jump back, and by a collection of garbage that a new container starts."""
    instructions = list(dis.get_instructions(Producer.send))
    begin = next(i for i, found in enumerate(instructions) if found.opname == "LOAD_ATTR" and found.argval == "open")
    end = next(i for i in range(begin, len(instructions)) if instructions[i].opname.startswith("RETURN"))
    names = {found.opname for found in instructions[begin:end]}
    assert {"STORE_ATTR", "BINARY_OP"} <= names
    assert not [name for name in names if name.startswith(("CALL", "JUMP_BACKWARD", "RESUME", "BUILD", "GET"))]


@pytest.mark.parametrize("count", [10, 1_000])
def test_events_of_a_batch_are_encoded_without_a_call_for_each(path: Path, count: int) -> None:
    with Producer(path, linger_ms=60_000) as producer:
        (batch,) = {producer.send(b"%d" % i).batch for i in range(count)}
        batch.encode()
        assert python_calls(lambda: batch.encode() and None) <= 20
