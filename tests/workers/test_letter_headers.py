from __future__ import annotations

import pytest

from spillable_stream.workers.letter_headers import Reason, reason_of, without_reason

BY_WORKER = {
    "dead_letter_channel": "/data/orders",
    "dead_letter_channel_uuid": "uuid",
    "dead_letter_group": "billing",
    "dead_letter_write_order_id": "17",
    "dead_letter_put_time": "1970-01-01T00:00:01+00:00",
    "dead_letter_attempts": "3",
    "dead_letter_error_code": "ValueError",
    "dead_letter_error_message": "no such customer",
}
BY_PRODUCER = {
    "dead_letter_channel": "orders",
    "dead_letter_error_code": "ChannelFullError",
    "dead_letter_error_message": "full",
    "dead_letter_attempts": "5",
    "dead_letter_producer_id": "me",
    "dead_letter_producer_sequence": "7",
}
BY_EARLIER_PRODUCER = {
    **{k: v for k, v in BY_PRODUCER.items() if not k.startswith("dead_letter_producer")},
    "producer_id": "me",
    "producer_sequence": "7",
}
BY_FLOW = {
    "deadletter.component": "a1.r1/Upper",
    "deadletter.error": "ValueError: it is bad",
    "deadletter.time": "1700000000123",
    "deadletter.id": "a1.r1:1:0",
}


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (BY_WORKER, Reason("ValueError: no such customer", "/data/orders", "17", "3")),
        (BY_PRODUCER, Reason("ChannelFullError: full", "orders", "", "5")),
        (BY_EARLIER_PRODUCER, Reason("ChannelFullError: full", "orders", "", "5")),
        (BY_FLOW, Reason("ValueError: it is bad", "a1.r1/Upper", "a1.r1:1:0", "")),
        ({**BY_FLOW, **BY_WORKER}, Reason("ValueError: no such customer", "/data/orders", "17", "3")),
        ({}, Reason("", "", "", "")),
    ],
)
def test_whoever_put_an_event_aside_the_reason_is_read(headers: dict[str, str], expected: Reason) -> None:
    assert reason_of({"k": "v", **headers}) == expected


@pytest.mark.parametrize("headers", [BY_WORKER, BY_PRODUCER, BY_EARLIER_PRODUCER, BY_FLOW, {**BY_FLOW, **BY_WORKER}])
def test_an_event_gets_the_headers_back_that_it_had(headers: dict[str, str]) -> None:
    own = {"k": "v", "deadletter.mine": "1"}
    assert without_reason({**own, **headers}) == own


@pytest.mark.parametrize("headers", [{}, BY_WORKER, BY_PRODUCER, BY_FLOW])
def test_an_event_keeps_the_place_in_its_producers_order(headers: dict[str, str]) -> None:
    own = {"producer_id": "me", "producer_sequence": "3"}
    assert without_reason({**own, **headers}) == own
