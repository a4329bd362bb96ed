"""A change of options that a channel has stored: others may take it over, and it may be taken back.

Several channels may be opened in one block (`stored_options.stored_together`), which stores all of their options or
none. So until a block has ended, its changes may be taken back. Another thread may open one of the channels meanwhile,
with the same values, which it finds stored::

    block A   stores 5 in place of 3 ──────────────────────────────────────▶ fails: leaves 5, which is B's
    block B                            finds 5, and wants 5 ──▶ ends: 5 is final

If A fails before B ends, A stores 3 again, and B stores 5 at its end. So the process knows all changes that may be
taken back, and what each of them would bring back.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, cast

from spillable_stream.engine.append_plan import AppendPlan, CommitResult
from spillable_stream.engine.engine import Engine
from spillable_stream.engine.log_port import ChannelPath
from spillable_stream.engine.requests import Control
from spillable_stream.errors import OptionError, SpillableError
from spillable_stream.format.frame import FrameType
from spillable_stream.format.record import OptionsRecord
from spillable_stream.log_records import fields, log_of
from spillable_stream.option_names import named
from spillable_stream.option_types import ChannelOptions

__all__ = ["OptionChange", "check_capacities", "settled", "shared_options"]

_log = log_of(__name__)

_mutex = threading.Lock()
_unsettled: list[OptionChange] = []  # of all blocks of this process that have not ended


def check_capacities(path: ChannelPath, options: ChannelOptions) -> None:
    """Refuse options with which a channel could hold nothing.

    Args:
        path: where the channel is, or will be.
        options: the options.

    Raises:
        OptionError: both tiers have no room.
    """
    if not options.memory_capacity and not options.overflow_capacity:
        memory, disk = named("memoryCapacity"), named("overflowCapacity")
        raise OptionError(f"{memory} and {disk} of {path} are both 0: the channel could hold nothing; raise one")


@dataclass(slots=True)
class _StoreOptions(Control):
    """Values of options, refused if the channel could hold nothing with those that others have stored meanwhile.

    Args:
        path: the channel.
        taken_back: whose old values they are, but for those that others want by then; None for new values.
    """

    path: ChannelPath
    taken_back: OptionChange | None = None

    def plan(self, plan: AppendPlan) -> CommitResult:
        if self.taken_back is not None:
            self.value = self.taken_back.still_ours(plan.state.options)
        check_capacities(self.path, plan.state.options.changed(cast("OptionsRecord", self.value)))
        return Control.plan(self, plan)


@dataclass(eq=False, frozen=True, slots=True)
class OptionChange:
    """Options of an open channel that differ from the stored ones.

    Args:
        engine: the channel.
        options: the options.
        then: what is called when they are stored, if anything.
        before: the values that are stored again if these are taken back; of fewer options once others want them, too.
    """

    engine: Engine
    options: dict[str, Any]
    then: Callable[[], object] | None
    before: dict[str, Any] = field(default_factory=dict)

    def may_be_taken_back(self) -> None:
        """Let other blocks know of it until it is `settled`."""
        with _mutex:
            _unsettled.append(self)

    @property
    def is_wanted(self) -> bool:
        """Whether it will be stored: a handle that was closed meanwhile leaves its channel as it was."""
        return not self.engine.log.closed

    def store(self) -> None:
        """Store the options; the handle obeys them at once. Raises what a commit raises, and `check_capacities`."""
        self.engine.commit(_StoreOptions(FrameType.OPTIONS, self.options, self.engine.path))
        self._follow_up()

    def _follow_up(self) -> None:
        self.engine.log.obey(self.engine.state)
        self.engine.upkeep.ensure()
        if self.then is not None:
            self.then()

    def restore(self) -> None:
        """Store the old options again, but for those that somebody else has changed since; a failure is logged."""
        self._hand_over()
        path, names = self.engine.log.path, ", ".join(map(named, self.options))
        said = f"{names} may have a new value, and the old one can't be stored"
        why = "each attempt met a loss of events"
        try:
            for _ in range(2):  # after a loss the next look finds what is there
                with self.engine.log.unasked():  # the error that led here is raised
                    if ours := self.still_ours(self.engine.follow().options):
                        self.engine.commit(_StoreOptions(FrameType.OPTIONS, ours, self.engine.path, self))
                        said = f"the old value of {names} is stored again, and what follows that failed"
                        self._follow_up()
                    return
        except SpillableError as e:
            why = str(e)
        _log.error("%s: %s: %s", path, said, why, extra=fields(path))

    def still_ours(self, now: ChannelOptions) -> OptionsRecord:
        """Return the old values of the options that are as this one stored them."""
        with _mutex:
            found = {name: old for name, old in self.before.items() if getattr(now, name) == self.options[name]}
        return cast("OptionsRecord", found)

    def _hand_over(self) -> None:
        """Let others that found the options of this change, which is taken back, store what was there before it."""
        with _mutex:
            for other in _unsettled:
                if other is not self and other.engine.path == self.engine.path:
                    for name, old in self.before.items():
                        if name in other.before and other.before[name] == self.options[name]:
                            other.before[name] = old


def shared_options(
    engine: Engine, options: dict[str, Any], own: Collection[OptionChange], *, is_final: bool
) -> set[str]:
    """Return which options other blocks want as they are wanted here.

    Args:
        engine: the channel.
        options: the options.
        own: the changes of this block, which are left out.
        is_final: whether the others must not take them back any more.
    """
    found = set[str]()
    with _mutex:
        for change in _unsettled:
            if change.engine.path == engine.path and change not in own:
                same = {name for name, value in change.options.items() if name in options and options[name] == value}
                found |= same
                for name in same if is_final else ():
                    change.before.pop(name, None)
    return found


def settled(changes: Collection[OptionChange]) -> None:
    """Forget changes that nobody takes back any more."""
    with _mutex:
        _unsettled[:] = [change for change in _unsettled if change not in changes]


def _forget_blocks() -> None:
    """Give a forked child a mutex of its own; it has none of the threads whose blocks these are."""
    global _mutex
    _mutex = threading.Lock()
    _unsettled.clear()


os.register_at_fork(after_in_child=_forget_blocks)
