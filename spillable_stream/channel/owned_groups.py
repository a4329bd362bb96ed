"""The groups that a handle owns: it becomes their owner, moves them, and drops them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack

from spillable_stream.channel.consumer import Consumer
from spillable_stream.channel.seek_target import SeekTarget, to_take_from
from spillable_stream.engine.active_calls import ActiveCalls
from spillable_stream.engine.engine import Engine
from spillable_stream.engine.groups import drop_group
from spillable_stream.engine.log_port import ChannelPath
from spillable_stream.engine.one_look import one_look
from spillable_stream.engine.seeking import seek_group
from spillable_stream.names import check_group, is_name

__all__ = ["OwnedGroups"]


class OwnedGroups:
    """The groups that a handle owns. Thread-safe.

    Its methods ask for the engine when they have the mutex: another thread may have closed the handle meanwhile.

    Args:
        path: the channel.
        mutex: the handle's, which is held while it becomes an owner, and while it is closed.

    Attributes:
        consumers: the consumers by their groups.
        active_calls: the calls of this class that are under way.
    """

    def __init__(self, path: ChannelPath, mutex: threading.RLock) -> None:
        self.consumers: dict[str, Consumer] = {}
        self.active_calls: ActiveCalls = ActiveCalls(f"the channel {path}")
        self._mutex = mutex

    def own(self, engine: Callable[[], Engine], group: str, make: Callable[[Engine], Consumer]) -> Consumer:
        """Return the handle's consumer of a group, which is created if there is none that still has its group.

        Args:
            engine: returns the engine.
            group: the group's name.
            make: makes the consumer. What it raises is raised.
        """
        if isinstance(group, str) and (known := self.consumers.get(group)) is not None and not known.is_lost:
            return known
        check_group(group)
        engine().active_calls.refuse_within("a first take")
        self.active_calls.let_go = engine().active_calls.let_go

        def own() -> Consumer:
            with self._mutex, one_look():
                open_engine = engine()
                found = self._owner_of(group, "a first take", open_engine)
                if found is None:
                    found = make(open_engine)
                    self.consumers[group] = found
                return found

        return self.active_calls.run("a first take", own)

    def _owner_of(self, group: str, call: str, engine: Engine) -> Consumer | None:
        """Return the handle's consumer of a group, if it still has it; the caller has the mutex."""
        found = self.consumers.get(group)
        if found is not None and found.is_lost:
            self._give_up(group, found, call, engine)
            return None
        return found

    def _give_up(self, group: str, owner: Consumer, call: str, engine: Engine) -> None:
        """Close a consumer within another call, which the error names if the consumer's calls do not end in time."""
        owner.active_calls.end(call, engine.lock_timeout_seconds)
        self._close(group, owner)

    def drop(self, engine: Callable[[], Engine], group: str) -> None:
        """Forget a group, also if the handle owns it."""
        engine().active_calls.refuse_within("drop_group")

        def drop() -> None:
            with self._mutex:
                if is_name(group) and (mine := self.consumers.get(group)) is not None:
                    self._give_up(group, mine, "drop_group", engine())
            drop_group(engine(), group)

        self.active_calls.run("drop_group", drop)

    def seek(self, engine: Callable[[], Engine], group: str, to: SeekTarget) -> int:
        """Move a group that the handle owns, or nobody, and return the event that it takes next.

        Args:
            engine: returns the engine.
            group: the group's name.
            to: where to.
        """
        engine().active_calls.refuse_within("a seek")
        check_group(group)
        choose = to_take_from(engine(), to)

        def seek() -> int:
            with self._mutex:
                open_engine = engine()
                mine = self._owner_of(group, "a seek", open_engine)
                return seek_group(open_engine, group, choose) if mine is None else mine.seek_to(choose)

        return self.active_calls.run("a seek", seek)

    def close(self) -> None:
        """Give up the groups when the handle is closed; the caller has the mutex. Raises what `Consumer.close` does.

        A group whose calls do not end is left to the next close.
        """
        with ExitStack() as stack:  # all of them, also after one that fails
            for group, consumer in reversed(self.consumers.items()):
                stack.callback(self._close, group, consumer)

    def _close(self, group: str, owner: Consumer) -> None:
        owner.close()
        del self.consumers[group]

    def leave(self) -> None:
        """In a forked child: leave the groups to the parent."""
        for consumer in self.consumers.values():
            consumer.leave()
