"""Options that an open gives to a channel that exists: some are fixed, the others are stored if they differ."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
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
    """New values of options, refused if the channel could hold nothing with those that others have stored meanwhile."""

    path: ChannelPath

    def plan(self, plan: AppendPlan) -> CommitResult:
        check_capacities(self.path, plan.state.options.changed(cast("OptionsRecord", self.value)))
        return Control.plan(self, plan)


@dataclass(frozen=True, slots=True)
class _Change:
    """Options of an open channel that differ from the stored ones, and what is called when they are stored.

    Args:
        engine: the channel.
        options: the options.
        then: what is called.
        before: those of the stored ones that are stored again if the others are taken back.
    """

    engine: Engine
    options: dict[str, Any]
    then: Callable[[], object] | None
    before: dict[str, Any]

    @property
    def is_wanted(self) -> bool:
        """Whether it will be stored: a handle that was closed meanwhile leaves its channel as it was."""
        return not self.engine.log.closed

    def store(self) -> None:
        self._commit(self.options)
        self._follow_up()

    def _commit(self, options: dict[str, Any]) -> None:
        self.engine.commit(_StoreOptions(FrameType.OPTIONS, options, self.engine.path))

    def _follow_up(self) -> None:
        self.engine.log.obey(self.engine.state)
        self.engine.upkeep.ensure()
        if self.then is not None:
            self.then()

    def restore(self) -> None:
        """Store the old options again, but for those that somebody else has changed since; a failure is logged."""
        path, names = self.engine.log.path, ", ".join(map(named, self.options))
        said = f"{names} may have a new value, and the old one can't be stored"
        why = "each attempt met a loss of events"
        try:
            for _ in range(2):  # after a loss the next look finds what is there
                with self.engine.log.unasked():  # the error that led here is raised
                    if ours := self._still_ours():
                        self._commit(ours)
                        said = f"the old value of {names} is stored again, and what follows that failed"
                        self._follow_up()
                    return
        except SpillableError as e:
            why = str(e)
        _log.error("%s: %s: %s", path, said, why, extra=fields(path))

    def _still_ours(self) -> dict[str, Any]:
        now = self.engine.follow().options
        with _mutex:
            return {name: old for name, old in self.before.items() if getattr(now, name) == self.options[name]}


@dataclass(frozen=True, slots=True)
class _Block:
    """What opens in a `stored_together` have asked for: the changes, and the names of all options."""

    changes: list[_Change] = field(default_factory=list)
    wanted: list[tuple[Engine, Iterable[str]]] = field(default_factory=list)


_block: ContextVar[_Block | None] = ContextVar("block", default=None)
_mutex = threading.Lock()
_unsettled: list[_Change] = []  # of this process, that may be taken back


def _settle(engine: Engine, names: Iterable[str]) -> None:
    """Let options of a channel stay as they are, whoever stored them and may take that back: others want them, too."""
    with _mutex:
        for change in _unsettled:
            if change.engine.path == engine.path:
                for name in names:
                    change.before.pop(name, None)


@contextmanager
def stored_together(stores: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Store the options of channels that are opened in the block at its end, and none of them if it raises.

    An open checks them. A channel that is closed before the end keeps its own.

    Args:
        stores: is called before those of each channel are stored, which may hang, and once all are; raises to refuse.

    Raises what `store_options` raises, at the end, and what ``stores`` raises. Then the others have their old options
    again, as far as their disks and stores answer.
    """
    if _block.get() is not None:
        yield  # at the end of the outer block
        return
    block = _Block()
    with block_value(_block, block):
        yield
    for change in block.changes:
        if change.is_wanted:
            check_capacities(change.engine.path, _options_after(block.changes, change.engine))
    with ExitStack() as ending, ExitStack() as undo:
        for change in block.changes:
            if change.is_wanted:
                stores()
                ending.callback(_forget, change)
                _remember(change)
                undo.callback(change.restore)
                change.store()
        stores()
        undo.pop_all()
        for engine, names in block.wanted:
            if not engine.log.closed:
                _settle(engine, names)


def _remember(change: _Change) -> None:
    with _mutex:
        _unsettled.append(change)


def _forget(change: _Change) -> None:
    with _mutex:
        _unsettled[:] = [other for other in _unsettled if other is not change]


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
    stored, to_be = engine.state.options, options_to_be(engine)
    before = {name: getattr(stored, name) for name in engine.without_fixed(given)}
    changed = {name: given[name] for name, old in before.items() if not given[name] == old == getattr(to_be, name)}
    block = _block.get()
    if block is not None:
        block.wanted.append((engine, before))
    if not changed:
        if block is None:
            _settle(engine, before)
        return
    if engine.log.is_view:
        engine.refuse_to_write(f"another value of {', '.join(map(named, changed))}")
    check_capacities(engine.path, to_be.changed(changed))
    change = _Change(engine, changed, then, {name: before[name] for name in changed})
    if block is None:
        change.store()
        _settle(engine, before)
    else:
        block.changes.append(change)
