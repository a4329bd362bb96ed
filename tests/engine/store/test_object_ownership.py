"""What a group's ownership is worth once another handle has taken the group over."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spillable_stream import Channel, GroupOwnedError
from tests.support.events import numbered, put, take
from tests.support.object_channels import OwnersClock

Open = Callable[..., Channel]


def test_what_a_former_owner_takes_or_prepares_is_refused_and_names_the_new_one(
    open_handle: Open, owners_clock: OwnersClock
) -> None:
    owner, other = open_handle(), open_handle()
    put(owner, *numbered(0, 6))
    former = owner.consumer("default")
    claimed = former.claim(3)
    new = other.consumer("default")
    for verb in (former.prepare, former.commit):
        with pytest.raises(GroupOwnedError, match=r"owns the group 'default' of .* no more: .* took it over") as caught:
            verb(claimed)
        assert caught.value.owner == new.owner
    assert take(other) == numbered(0, 6)


@pytest.mark.parametrize("commits_at", range(9))
def test_no_event_is_committed_by_two_owners(open_handle: Open, owners_clock: OwnersClock, commits_at: int) -> None:
    """The former owner sleeps, and wakes up before the takeover, in its middle, or after it."""
    owner, other = open_handle(), open_handle()
    put(owner, *numbered(0, 6))
    former = owner.consumer("default")
    claimed, done = former.claim(3), list[bytes]()

    def wake() -> None:
        try:
            former.commit(claimed)
            done.extend(numbered(0, 3))
        except GroupOwnedError:
            pass

    count = 200 // 7 * commits_at  # of about 200 sleeps
    owners_clock.meanwhile = lambda: wake() if len(owners_clock.slept) == count else None
    done += take(other)
    if len(owners_clock.slept) < count or not count:
        wake()
    assert sorted(done) == numbered(0, 6)
