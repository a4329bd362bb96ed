"""Finding out whether the owner of a group in an object store lives, where nobody wants the group.

Whoever wants a group claims it, and waits for the answer. Upkeep wants none: it only has to know which automatic groups
have lost their owner. Most owners show that they live, since the group takes. One that has shown nothing for a while is
asked by a claim, and the next looks find an answer or none::

    the group has moved, or a claim was answered ──▶ alive ── nothing for `_quiet_seconds` ──▶ asked
                                                       ▲                                        │ │
                                                       └────────── it answered ─────────────────┘ │ no answer in time
                                                                                                  ▼
                                                                                                 gone
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.contents import OwnerRecord

__all__ = ["OwnerInquiries"]

_LEAST_QUIET_SECONDS, _MOST_QUIET_SECONDS = 60.0, 3600.0  # a question is two appends, where the owner lives
_ASKED = "asked"  # whatever the claim is called
_QUIET_PARTS = 4  # of the time that a group may have no owner


@dataclass(slots=True)
class _Seen:
    """What the last look at a group has shown.

    Args:
        sign: what changes when its owner does something.
        at: when that was new, by this process's clock.
        claim: the claim that had no answer then; "" if nobody had claimed it.
    """

    sign: tuple[object, ...]
    at: float
    claim: str = ""


class OwnerInquiries:
    """Remembers which owners have shown that they live, and asks the others. Not thread-safe.

    Args:
        answer_seconds: how long an owner has to answer.
        ask: claims a group whose owner was seen last as is given.
    """

    def __init__(self, answer_seconds: float, ask: Callable[[str, OwnerRecord], None]) -> None:
        self._answer_seconds = answer_seconds
        self._ask = ask
        self._seen: dict[str, _Seen] = {}

    def is_alive(self, group: str, owner: OwnerRecord, state: ChannelState) -> bool:
        """Tell whether an owner lives, as far as that is known by now, and ask it if it is time to.

        Args:
            group: the group.
            owner: its owner by the state.
            state: the channel's state.

        Raises:
            StorageError: it could not be asked.
        """
        now, before = time.monotonic(), self._seen.get(group)
        sign = _sign(group, owner, state)
        if before is None or before.sign != sign or (before.claim and not owner.claim):
            self._seen[group] = _Seen(sign, now, owner.claim)
            return True
        if owner.claim:
            if owner.claim != before.claim:
                before.at, before.claim = now, owner.claim
            return now - before.at < self._answer_seconds
        if now - before.at >= _quiet_seconds(state):
            self._ask(group, owner)
            before.claim = _ASKED
        return True

    def forget(self, group: str) -> None:
        """Forget a group that has no owner."""
        self._seen.pop(group, None)


def _sign(group: str, owner: OwnerRecord, state: ChannelState) -> tuple[object, ...]:
    known = state.groups.get(group)
    taken = None if known is None else (known.position, list(known.ahead))
    return owner.epoch, taken, state.open_takes(group)


def _quiet_seconds(state: ChannelState) -> float:
    return max(_LEAST_QUIET_SECONDS, min(_MOST_QUIET_SECONDS, state.options.auto_group_ttl / _QUIET_PARTS))
