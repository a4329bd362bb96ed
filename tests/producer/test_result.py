"""What a result says of the attempt that counts."""

from __future__ import annotations

from dataclasses import fields, replace

from spillable_stream import Result
from spillable_stream.producer.result import Attempt

FULL = Attempt(False, 1.0, "ChannelFullError", "no room")
GONE = Attempt(False, 2.0, "NotAChannelError", "it is missing")
STORED = Attempt(True, 3.0)


def test_the_error_is_that_of_the_last_attempt() -> None:
    result = Result(False, reserved_attempts=(FULL, GONE), attempt_count=2)
    assert (result.error_code, result.error_message) == ("NotAChannelError", "it is missing")


def test_what_was_stored_in_the_end_has_no_error() -> None:
    result = Result(True, 7, 7, reserved_attempts=(FULL, STORED), attempt_count=2)
    assert (result.error_code, result.error_message, result.write_order_id) == ("", "", 7)


def test_dead_letters_have_the_error_for_which_they_are_there() -> None:
    result = Result(False, reserved_attempts=(GONE, FULL, STORED), attempt_count=3, dead_letter="dead", reason=GONE)
    assert (result.error_code, result.error_message) == ("NotAChannelError", "it is missing")


def test_what_was_never_tried_has_no_error_and_no_id() -> None:
    result = Result(False)
    assert (result.error_code, result.error_message) == ("", "") and result.last_id < result.first_id


def test_a_result_with_other_ids_is_the_same_otherwise() -> None:
    whole = Result(True, 5, 9, (Attempt(True, 1.0),), 3, "dead", (b"x",), True, FULL)
    assert all(getattr(whole, field.name) != field.default for field in fields(Result))
    assert whole.with_ids(6, 7) == replace(whole, first_id=6, last_id=7)
