"""Options that an open gives to a channel that exists: some are fixed, the others are stored if they differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from spillable_stream.engine.engine import Engine
from spillable_stream.engine.requests import Control
from spillable_stream.errors import OptionError, SpillableError
from spillable_stream.format.frame import FrameType
from spillable_stream.log_records import fields, log_of
from spillable_stream.option_names import named
from spillable_stream.option_types import ChannelOptions

__all__ = ["check_capacities", "options_to_be", "store_options", "stored_together"]

_log = log_of(__name__)


def check_capacities(options: ChannelOptions) -> None:
    """Refuse options with which a channel could hold nothing.

    Raises:
        OptionError: both tiers have no room.
    """
    if not options.memory_capacity and not options.overflow_capacity:
        memory, disk = named("memoryCapacity"), named("overflowCapacity")
        raise OptionError(f"{memory} and {disk} are both 0: the channel could hold nothing; raise one")


@dataclass(frozen=True, slots=True)
class _Change:
    """Options of an open channel that differ from the stored ones, and what is called when they are stored."""

    engine: Engine
    options: dict[str, Any]
    then: Callable[[], object] | None
    before: dict[str, Any]

    def store(self) -> None:
        self.engine.commit(Control(FrameType.OPTIONS, self.options))
        self.engine.log.obey(self.engine.state)
        self.engine.upkeep.ensure()
        if self.then is not None:
            self.then()

    def restore(self) -> None:
        """Store the old options again, but for those that somebody else has changed since; a failure is logged."""
        path = self.engine.log.path
        try:
            with self.engine.log.untold_loss:  # the error that led here is raised
                now = self.engine.follow().options
                ours = {name: old for name, old in self.before.items() if getattr(now, name) == self.options[name]}
                if ours:
                    self.engine.commit(Control(FrameType.OPTIONS, ours))
                    self.engine.log.obey(self.engine.state)
        except SpillableError as e:
            _log.error(
                "%s: %s may have a new value, and the old one can't be stored: %s",
                path,
                ", ".join(map(named, self.options)),
                e,
                extra=fields(path),
            )


_waiting: ContextVar[list[_Change] | None] = ContextVar("waiting", default=None)


@contextmanager
def stored_together() -> Iterator[None]:
    """Store the options of channels that are opened in the block at its end, and none of them if it raises.

    An open checks them. A channel that is closed before the end keeps its own.

    Raises what `store_options` raises, at the end. Then the others have their old options again, as far as their disks
    and stores answer.
    """
    if _waiting.get() is not None:
        yield  # at the end of the outer block
        return
    waiting: list[_Change] = []
    token = _waiting.set(waiting)
    try:
        yield
    finally:
        _waiting.reset(token)
    with ExitStack() as undo:
        for change in waiting:
            if not change.engine.log.closed:
                undo.callback(change.restore)
                change.store()
        undo.pop_all()


def options_to_be(engine: Engine) -> ChannelOptions:
    """Return a channel's options, with those that are yet to be stored at the end of a `stored_together`."""
    options = engine.state.options
    for change in _waiting.get() or ():
        if change.engine is engine:
            options = options.changed(change.options)
    return options


def store_options(engine: Engine, given: dict[str, Any], then: Callable[[], object] | None = None) -> None:
    """Store the options that differ from the channel's; the handle obeys them at once.

    Args:
        engine: the channel.
        given: the options that were given, by keyword name, with values as `parse_options` returns them.
        then: is called when they are stored, if any differs.

    Raises:
        OptionError: one that is fixed differs, or the channel could hold nothing.
        ReadonlyChannelError: one differs, and the handle only looks.
        StorageError: the disk refused.
    """
    stored = engine.state.options
    before = {name: getattr(stored, name) for name in engine.without_fixed(given)}
    changed = {name: given[name] for name, old in before.items() if given[name] != old}
    if not changed:
        return
    if engine.log.is_view:
        engine.refuse_to_write(f"another value of {', '.join(map(named, changed))}")
    check_capacities(stored.changed(changed))
    change = _Change(engine, changed, then, {name: before[name] for name in changed})
    waiting = _waiting.get()
    if waiting is None:
        change.store()
    else:
        waiting.append(change)
