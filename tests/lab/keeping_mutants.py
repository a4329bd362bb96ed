"""The package, broken on purpose where it keeps what was taken, goes back to it and lets it go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

from spillable_stream.engine.committer import Committer
from spillable_stream.engine.local.position_hint import PositionHint
from spillable_stream.engine.requests import Control
from spillable_stream.engine.retention import Retention
from spillable_stream.engine.seeking import Seek
from spillable_stream.format.frame import FrameType
from spillable_stream.state import control_records
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.contents import Contents
from spillable_stream.state.group import GroupState
from spillable_stream.storage.file import File
from tests.lab.patching import Patch, patch

__all__ = ["KEEPING_MUTANTS"]


def leave_the_hint_at_a_seek() -> list[Patch]:
    """What a file says that a group has taken stays there when the group goes back."""
    return [patch(PositionHint, "forget", lambda real: lambda self: None)]


def skip_the_sync_of_a_seek() -> list[Patch]:
    """A seek is durable with whatever is committed next."""

    def make(real: Any) -> Any:
        def _commit(self: Committer, request: Any, *waits: Any) -> Any:
            if not isinstance(request, Seek):
                return real(self, request, *waits)
            with mock.patch.object(File, "sync", lambda self: None):
                return real(self, request, *waits)

        return _commit

    return [patch(Committer, "_commit", make)]


def lower_the_floor_at_a_seek() -> list[Patch]:
    """What a group goes back to counts as stored again."""

    def make(real: Any) -> Any:
        def _change_group(contents: Contents, value: Any) -> None:
            real(contents, value)
            contents.floor = min(contents.floor, value.get("seek", contents.floor) + 1)

        return _change_group

    return [patch(control_records, "_change_group", make)]


def drop_what_is_kept() -> list[Patch]:
    """Events leave as soon as every group has taken them, whatever the options say."""

    def make(real: Any) -> Any:
        def raise_floor(self: Contents) -> None:
            real(self)
            self.blocks.disk.drop_through(min(self.floor, self.needed_from()) - 1)

        return raise_floor

    return [patch(Contents, "raise_floor", make)]


def keep_nothing_of_memory() -> list[Patch]:
    """What was taken from memory goes before it is on disk."""

    def make(real: Any) -> Any:
        def raise_floor(self: Contents) -> None:
            real(self)
            self.blocks.memory.drop_through(min(self.floor, self.needed_from()) - 1)

        return raise_floor

    return [patch(Contents, "raise_floor", make)]


def forget_takes_from_memory() -> list[Patch]:
    """What is moved to disk is there for groups that took it from memory, too."""

    def make(real: Any) -> Any:
        def memory_only(self: ChannelState) -> Any:
            return {**real(self), "groups": {}}

        return memory_only

    return [patch(ChannelState, "memory_only", make)]


def forget_where_the_kept_begin() -> list[Patch]:
    """A checkpoint says nothing of the events before the floor."""

    def make(real: Any) -> Any:
        def _retention_image(self: ChannelState) -> Any:
            image = real(self)
            image.pop("firstKept", None)
            return image

        return _retention_image

    return [patch(ChannelState, "_retention_image", make)]


def expire_in_silence() -> list[Patch]:
    """Nobody tells a group of what left before the group took it."""
    return [patch(GroupState, "remove", lambda real: GroupState.count_as_taken)]


def forget_what_expired() -> list[Patch]:
    """A checkpoint does not say what left before a group took it."""

    def make(real: Any) -> Any:
        def _details(self: GroupState) -> Any:
            details = real(self)
            details.pop("expired", None)
            return details

        return _details

    return [patch(GroupState, "_details", make)]


def let_go_what_is_not_taken() -> list[Patch]:
    """Events leave by age and size though some group has yet to take them."""
    return [patch(Retention, "_most", lambda real: lambda self, state, limits: state.last_id)]


def remove_what_expires_early() -> list[Patch]:
    """Files go with what is in them, and not once a checkpoint does without them."""

    def make(real: Any) -> Any:
        def _commit(self: Committer, request: Any, *waits: Any) -> Any:
            done = real(self, request, *waits)
            if isinstance(request, Control) and request.type is FrameType.RETENTION:
                state, layout, fs = self._follower.state, self._log.layout, self._log.fs
                needed = state.blocks.oldest_data_file() or self._follower.positions.disk.file_id
                for file_id in layout.log_files(fs):
                    if file_id < needed:
                        fs.remove(layout.log_file(file_id))
            return done

        return _commit

    return [patch(Committer, "_commit", make)]


KEEPING_MUTANTS: dict[str, Callable[[], list[Patch]]] = {
    f.__name__.replace("_", " "): f
    for f in (
        leave_the_hint_at_a_seek,
        skip_the_sync_of_a_seek,
        lower_the_floor_at_a_seek,
        drop_what_is_kept,
        keep_nothing_of_memory,
        forget_takes_from_memory,
        forget_where_the_kept_begin,
        expire_in_silence,
        forget_what_expired,
        let_go_what_is_not_taken,
        remove_what_expires_early,
    )
}
