"""Options that an open gives to a channel that exists: some are fixed, the others are stored if they differ."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from spillable_stream.block_value import block_value
from spillable_stream.channel.option_change import OptionChange, check_capacities, settled, shared_options
from spillable_stream.engine.engine import Engine
from spillable_stream.option_names import named
from spillable_stream.option_types import ChannelOptions

__all__ = ["options_to_be", "store_options", "stored_together"]


@dataclass(eq=False, frozen=True, slots=True)
class _Wanted:
    """All options that an open gives to a channel, whoever has stored them.

    Args:
        engine: the channel.
        options: the options.
        then: as in `OptionChange`.
        shared: those that another block had stored, or was to store, as they are wanted, and could take back.
    """

    engine: Engine
    options: dict[str, Any]
    then: Callable[[], object] | None
    shared: set[str]

    def keep(self, own: Collection[OptionChange]) -> None:
        """Let nobody take the options back any more, and store again what was, or is being, taken back."""
        if shared := self.shared | shared_options(self.engine, self.options, own, is_final=True):
            OptionChange(self.engine, {name: self.options[name] for name in shared}, self.then).store()


@dataclass(frozen=True, slots=True)
class _Block:
    """What opens in a `stored_together` have asked for."""

    changes: list[OptionChange] = field(default_factory=list)
    wanted: list[_Wanted] = field(default_factory=list)


_block: ContextVar[_Block | None] = ContextVar("block", default=None)


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
        settled(block.changes)


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


def _options_after(waiting: Iterable[OptionChange], engine: Engine) -> ChannelOptions:
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
    shared = shared_options(engine, wanted, own, is_final=block is None)
    if block is None:
        if changed or shared:
            OptionChange(engine, {name: wanted[name] for name in {*changed, *shared}}, then).store()
        return
    block.wanted.append(_Wanted(engine, wanted, then, shared))
    if changed:
        change = OptionChange(engine, changed, then, {name: before[name] for name in changed})
        block.changes.append(change)
        change.may_be_taken_back()
