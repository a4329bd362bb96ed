"""Options that an open gives to a channel that exists: some are fixed, the others are stored if they differ."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, cast

from spillable_stream.block_value import block_value
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

__all__ = ["check_capacities", "options_to_be", "store_options", "stored_together"]

_log = log_of(__name__)


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
    taken_back: _Change | None = None

    def plan(self, plan: AppendPlan) -> CommitResult:
        if self.taken_back is not None:
            self.value = self.taken_back.still_ours(plan.state.options)
        check_capacities(self.path, plan.state.options.changed(cast("OptionsRecord", self.value)))
        return Control.plan(self, plan)


@dataclass(eq=False, frozen=True, slots=True)
class _Change:
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

    @property
    def is_wanted(self) -> bool:
        """Whether it will be stored: a handle that was closed meanwhile leaves its channel as it was."""
        return not self.engine.log.closed

    def store(self) -> None:
        self.engine.commit(_StoreOptions(FrameType.OPTIONS, self.options, self.engine.path))
        self._follow_up()

    def _follow_up(self) -> None:
        self.engine.log.obey(self.engine.state)
        self.engine.upkeep.ensure()
        if self.then is not None:
            self.then()

    def restore(self) -> None:
        """Store the old options again, but for those that somebody else has changed since; a failure is logged."""
        _hand_over(self)
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


@dataclass(eq=False, frozen=True, slots=True)
class _Wanted:
    """All options that an open gives to a channel, whoever has stored them.

    Args:
        engine: the channel.
        options: the options.
        then: as in `_Change`.
        shared: those that another block had stored, or was to store, as they are wanted, and could take back.
    """

    engine: Engine
    options: dict[str, Any]
    then: Callable[[], object] | None
    shared: set[str]

    def keep(self, own: Collection[_Change]) -> None:
        """Let nobody take the options back any more, and store again what was, or is being, taken back."""
        if shared := self.shared | _shared(self.engine, self.options, own, is_final=True):
            _Change(self.engine, {name: self.options[name] for name in shared}, self.then).store()


@dataclass(frozen=True, slots=True)
class _Block:
    """What opens in a `stored_together` have asked for."""

    changes: list[_Change] = field(default_factory=list)
    wanted: list[_Wanted] = field(default_factory=list)


_block: ContextVar[_Block | None] = ContextVar("block", default=None)
_mutex = threading.Lock()
_unsettled: list[_Change] = []  # of all blocks of this process that have not ended


def _forget_blocks() -> None:
    """Give a forked child a mutex of its own; it has none of the threads whose blocks these are."""
    global _mutex
    _mutex = threading.Lock()
    _unsettled.clear()


os.register_at_fork(after_in_child=_forget_blocks)


def _shared(engine: Engine, options: dict[str, Any], own: Collection[_Change], *, is_final: bool) -> set[str]:
    """Return which options other blocks want as they are wanted here.

    Args:
        engine: the channel.
        options: the options.
        own: the changes of this block.
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


def _hand_over(change: _Change) -> None:
    """Let others that found the options of a change, which is taken back, store what was there before it."""
    with _mutex:
        for other in _unsettled:
            if other is not change and other.engine.path == change.engine.path:
                for name, old in change.before.items():
                    if name in other.before and other.before[name] == change.options[name]:
                        other.before[name] = old


@contextmanager
def stored_together(stores: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Store the options of channels that are opened in the block at its end, and none of them if it raises.

    An open checks them. A channel that is closed before the end keeps its own.

    Args:
        stores: is called before those of each channel are stored, which may hang, and once all are; raises to refuse.

    Raises what `store_options` raises, at the end, and what ``stores`` raises. Then the others have their old options
    again, as far as their disks and stores answer, but for those that another open of this process wants by then.
    """
    if _block.get() is not None:
        yield  # at the end of the outer block
        return
    block = _Block()
    try:
        with block_value(_block, block):
            yield
        _store_all(block, stores)
    finally:
        with _mutex:
            _unsettled[:] = [change for change in _unsettled if change not in block.changes]


def _store_all(block: _Block, stores: Callable[[], object]) -> None:
    for change in block.changes:
        if change.is_wanted:
            check_capacities(change.engine.path, _options_after(block.changes, change.engine))
    with ExitStack() as undo:
        for change in block.changes:
            if change.is_wanted:
                stores()
                undo.callback(change.restore)
                change.store()
        stores()
        for wanted in block.wanted:
            if not wanted.engine.log.closed:
                wanted.keep(block.changes)
        undo.pop_all()


def options_to_be(engine: Engine) -> ChannelOptions:
    """Return a channel's options, with those that are yet to be stored at the end of a `stored_together`."""
    block = _block.get()
    return _options_after(() if block is None else block.changes, engine)


def _options_after(waiting: Iterable[_Change], engine: Engine) -> ChannelOptions:
    """Return the options that a channel will have, whichever of its handles store them."""
    options = engine.state.options
    for change in waiting:
        if change.is_wanted and change.engine.path == engine.path:
            options = options.changed(change.options)
    return options


def store_options(engine: Engine, given: dict[str, Any], then: Callable[[], object] | None = None) -> None:
    """Store the options that differ from the channel's; the handle obeys them at once.

    Args:
        engine: the channel.
        given: the options that were given, by keyword name, with values as `parse_options` returns them.
        then: is called when they are stored, if any differs, and again where a `stored_together` takes them back.

    Raises:
        OptionError: one that is fixed differs, or the channel could hold nothing.
        ReadonlyChannelError: one differs, and the handle only looks.
        StorageError: the disk refused.
    """
    stored, to_be, block = engine.state.options, options_to_be(engine), _block.get()
    wanted = engine.without_fixed(given)
    before = {name: getattr(stored, name) for name in wanted}
    changed = {name: wanted[name] for name, old in before.items() if not wanted[name] == old == getattr(to_be, name)}
    if engine.log.is_view:
        if changed:
            engine.refuse_to_write(f"another value of {', '.join(map(named, changed))}")
        return
    if changed:
        check_capacities(engine.path, to_be.changed(changed))
    own = () if block is None else block.changes
    shared = _shared(engine, wanted, own, is_final=block is None)
    if block is None:
        if changed or shared:
            _Change(engine, {name: wanted[name] for name in {*changed, *shared}}, then).store()
        return
    block.wanted.append(_Wanted(engine, wanted, then, shared))
    if changed:
        change = _Change(engine, changed, then, {name: before[name] for name in changed})
        block.changes.append(change)
        with _mutex:
            _unsettled.append(change)
