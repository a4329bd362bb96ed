"""Upkeep of a channel in an object store: what has to be done in time, whether anybody commits or not.

A channel that keeps taken events lets the old ones go, and one with automatic groups drops those that nobody reads. One
handle at a time does it, on whatever host: the owner of a name that no group can have. A channel with neither has no
thread, and pays for none; nor has a handle that only looks. One whose credentials may not write says so once.
"""

from __future__ import annotations

import time

from spillable_stream.engine.active_calls import ActiveCalls
from spillable_stream.engine.automatic_groups import AutomaticGroups
from spillable_stream.engine.follower import Follower
from spillable_stream.engine.retention import Retention
from spillable_stream.engine.store.object_checkpointing import ObjectCheckpointing
from spillable_stream.engine.store.object_log import ObjectLog
from spillable_stream.engine.store.object_owners import ObjectOwners
from spillable_stream.engine.store.object_ownership import ObjectOwnership
from spillable_stream.engine.upkeep_thread import UpkeepThread
from spillable_stream.errors import GroupOwnedError, LockTimeoutError, SpillableError
from spillable_stream.objects.store import is_refusal

__all__ = ["UPKEEP", "ObjectUpkeep"]

UPKEEP = "upkeep:"
"""The name that the handle owns that acts; no group can have it."""

_PERIOD_SECONDS = 5.0  # each look is some requests
_UNTIL_ALLOWED = "until the store allows it (open a handle that only reads with readonly=True)"
_TRY_AGAIN_SECONDS = 60.0  # to become the one that acts: each attempt is a claim, and a claim is an append


class ObjectUpkeep:
    """Looks after a channel in the background. Thread-safe. It implements `UpkeepPort`.

    Args:
        log: the channel's log.
        follower: its state.
        owners: the owners of its groups.
        retention: lets kept events go.
        groups: drops automatic groups that nobody reads as.
        checkpointing: creates checkpoints, trims and collects.
        active_calls: the calls that are under way in this process.
    """

    def __init__(
        self,
        log: ObjectLog,
        follower: Follower,
        owners: ObjectOwners,
        retention: Retention,
        groups: AutomaticGroups,
        checkpointing: ObjectCheckpointing,
        active_calls: ActiveCalls,
    ) -> None:
        self._log = log
        self._follower = follower
        self._owners = owners
        self._retention = retention
        self._groups = groups
        self._checkpointing = checkpointing
        self._active_calls = active_calls
        self._thread = UpkeepThread(self, log, follower, active_calls)
        self._acting: ObjectOwnership | None = None
        self._try_at = float("-inf")
        self._looked_at: float | None = None
        self._is_refused = False  # the store refused the last attempt for good

    def ensure(self) -> None:
        """Start the thread if it is needed and not there."""
        self._thread.ensure()

    def run_once(self) -> bool:
        """Look as a call that a close waits for, and tell whether there will be another look."""
        if self._thread.is_over():
            return False
        try:
            with self._log.unasked():
                if self._acts():
                    self._active_calls.run("upkeep", self.look)
                    self._is_refused = False
        except LockTimeoutError:  # somebody is busy: there will be another look
            pass
        except SpillableError as e:
            self._report(e)
        return True

    def _report(self, error: SpillableError) -> None:
        """Log a failure, once a minute; a refusal once, until upkeep goes well again: that is a fact by then."""
        was_refused, self._is_refused = self._is_refused, is_refusal(error)
        if not self._is_refused:
            self._thread.report(error)
        elif not was_refused:
            self._thread.report(error, _UNTIL_ALLOWED, seldom=False)

    def period_seconds(self) -> float:
        """Return how often to look."""
        return _PERIOD_SECONDS

    def _acts(self) -> bool:
        """Tell whether this handle is the one that acts; try to become it now and then."""
        self._follower.follow()
        known = self._owners.known(UPKEEP)
        if self._acting is not None and known is not None and known.epoch == self._acting.epoch:
            return True
        self._acting = None
        if (known is not None or self._is_refused) and time.monotonic() < self._try_at:
            return False
        self._try_at = time.monotonic() + _TRY_AGAIN_SECONDS
        try:
            self._acting = self._owners.own(UPKEEP, 0, "upkeep")
        except GroupOwnedError:
            return False
        self._looked_at = None
        return True

    def look(self) -> None:
        """Do what is due; this handle acts.

        Raises:
            StorageError: the store refused or failed.
        """
        if self._retention.look():
            self._checkpointing.create_soon()
        self._groups.look(self._elapsed_ms())

    def _elapsed_ms(self) -> int:
        """Return how much time has passed since the last look at the groups, which is now."""
        before, self._looked_at = self._looked_at, time.monotonic()
        return 0 if before is None else int((self._looked_at - before) * 1000)

    def close(self, *, forked: bool = False) -> None:
        """End the thread, and let another handle act, which has to know how long groups have had no owner.

        Args:
            forked: in a forked child, which has no such thread.
        """
        if forked:
            return
        last_requests = self._log.last_requests
        has_ended = last_requests.have_ended(self._thread.end)
        acting, self._acting = self._acting, None
        if acting is not None:
            if has_ended:
                last_requests.are_answered(self._settle)
            acting.close()

    def _settle(self) -> None:
        with self._log.unasked():
            self._groups.settle(self._elapsed_ms())
