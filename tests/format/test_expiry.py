"""When events expire, joined over frames."""

from __future__ import annotations

from spillable_stream.format.expiry import NEVER, Expiry, joined


def test_the_expiry_of_a_frame_is_its_ttl_after_its_commit() -> None:
    assert Expiry.after(5, 100) == (105, 105)
    assert Expiry.after(5) == (5, 5)
    assert Expiry.after(0, 100) == NEVER == (0, 0)
    assert Expiry.after(5).since(100) == Expiry.after(5, 100)
    assert NEVER.since(100) == NEVER


def test_events_together_have_all_expired_once_the_last_has_and_never_if_one_never_does() -> None:
    early, late = Expiry(3, 3), Expiry(7, 9)
    assert early.joined(late) == late.joined(early) == (3, 9)
    assert early.joined(NEVER) == NEVER.joined(early) == (3, 0)
    assert NEVER.joined(NEVER) == NEVER
    assert early.joined(NEVER).joined(late) == (3, 0)
    assert joined(None, early) == early
    assert joined(NEVER, early) == (3, 0)
