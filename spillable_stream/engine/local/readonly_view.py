"""A channel that is only looked at: nothing is written, and no lock is held.

Everything goes through an overlay (`spillable_stream.storage.overlay`). While some handle holds the channel for
writing, its head counts, and the view follows it. While none does, the view is recovered as an open for writing would
recover the channel, but in the overlay: whole transactions up to the torn tail count, and a lost memory tier is
reported without being recorded. When a writer comes or leaves, the view is created anew.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from spillable_stream.engine.local.held_channel import HeldChannel
from spillable_stream.engine.local.opening import adopted, enter, hold
from spillable_stream.errors import ChannelBusyError, NotAChannelError, SpillableError
from spillable_stream.log.directories import out_of_place
from spillable_stream.log.directory_ownership import is_held
from spillable_stream.log.identity_file import read_identity
from spillable_stream.log.layout import Layout
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import is_locked
from spillable_stream.storage.overlay import OverlayFileSystem

__all__ = ["FoundView", "ReadonlyView"]

_POLL_SECONDS = 0.01
_LOOKS = 3  # a lock that is held at each of them is a writer's: a reader looks for some microseconds only
_BETWEEN_LOOKS_SECONDS = 0.001
_SETTLED_SECONDS = 3.0


class _Sight(NamedTuple):
    """What tells whether a view is still the right one: each handle that comes first changes it.

    Args:
        held: whether some handle holds the channel for writing.
        head: the bytes of the head, while none does.
        entered_seconds: when a handle last came first, which notes the anchors (`spillable_stream.log.anchors`).
    """

    held: bool
    head: bytes
    entered_seconds: float


class FoundView(NamedTuple):
    """A channel that is only looked at, as it was found.

    Args:
        held: the channel, in an overlay.
        sight: what it was found by, for `ReadonlyView.adopt`.
    """

    held: HeldChannel
    sight: _Sight


class ReadonlyView:
    """How a channel is found that is only looked at, and whether what was found is still right.

    Args:
        fs: the file system, which is only read: whatever a view writes goes to an overlay.
        layout: the channel's files.
    """

    def __init__(self, fs: FileSystem, layout: Layout) -> None:
        self._fs = fs
        self._layout = layout
        self._sight: _Sight | None = None

    def find(self, timeout_seconds: float) -> FoundView:
        """Return the channel as it is now, in a new overlay.

        Args:
            timeout_seconds: how long to wait for writers that recover or repair it.

        Raises:
            ChannelBusyError: its writers change it faster than it can be read; or only parts of it are held.
            ChannelClosedError: it was moved, removed or replaced.
        """
        fs, layout = self._fs, self._layout
        began = time.monotonic()
        while True:
            before = _sight(fs, layout)
            failure: SpillableError | None = None
            held: HeldChannel | None = None
            try:
                held = _joined(fs, layout, timeout_seconds) if before.held else _recovered(fs, layout, timeout_seconds)
            except SpillableError as e:
                failure = e
            except FileNotFoundError as e:
                failure = ChannelBusyError(f"{e.filename} was removed while {layout.path} was open; close every handle")
            unchanged = _sight(fs, layout) == before
            if held is not None:
                if unchanged:
                    return FoundView(held, before)
                held.close()
            busy = isinstance(failure, ChannelBusyError)
            settled = unchanged and failure is not None and not busy
            wait_seconds = min(timeout_seconds, _SETTLED_SECONDS) if busy else timeout_seconds
            if settled or time.monotonic() > began + wait_seconds:
                self._require_in_place()
                raise failure or ChannelBusyError(
                    f"{layout.path} is being recovered or repaired, or its head is damaged; wait for those who have it "
                    "open, or close them"
                )
            time.sleep(_POLL_SECONDS)

    def _require_in_place(self) -> None:
        try:
            is_in_place = read_identity(self._fs, self._layout.path).channel == self._layout.channel
        except NotAChannelError:
            is_in_place = False
        except SpillableError:
            return  # it is damaged, which is what the look has met
        if not is_in_place:
            raise out_of_place(self._layout, self._layout.path)

    def adopt(self, found: FoundView) -> None:
        """Take what was found as the view that is in use; until then `is_current` speaks of the one before."""
        self._sight = found.sight

    def is_current(self) -> bool:
        """Tell whether no writer came or left since the view in use was found."""
        fs, layout, sight = self._fs, self._layout, self._sight
        # One look is enough where a writer held it: another reader's would do no harm.
        if sight is not None and sight.held and is_held(fs, layout.path):
            return _entered_seconds(fs, layout) == sight.entered_seconds
        return _sight(fs, layout) == sight

    def exists(self) -> bool:
        """Tell whether the channel is still there: a view follows it whatever else happened meanwhile."""
        try:
            return read_identity(self._fs, self._layout.path).channel == self._layout.channel
        except SpillableError:
            return False


def _sight(fs: FileSystem, layout: Layout) -> _Sight:
    entered_seconds = _entered_seconds(fs, layout)
    for _ in range(_LOOKS):
        if not is_held(fs, layout.path):
            return _Sight(False, fs.read_file(layout.head) if fs.exists(layout.head) else b"", entered_seconds)
        time.sleep(_BETWEEN_LOOKS_SECONDS)
    return _Sight(True, b"", entered_seconds)


def _entered_seconds(fs: FileSystem, layout: Layout) -> float:
    try:
        return fs.modified_seconds(layout.open_lock)
    except FileNotFoundError:
        return 0.0


def _joined(fs: FileSystem, layout: Layout, timeout_seconds: float) -> HeldChannel | None:
    """Return a view of a channel that somebody holds, up to what the head publishes; None if the head is of no use."""
    view = OverlayFileSystem(fs)
    layout = adopted(view, layout, timeout_seconds)
    held = hold(view, layout, first=False)
    if held is None or held.is_current():
        return held
    held.close()
    # As in an open for writing: handles that are only parked will find another head.
    return None if is_locked(fs, layout.open_lock) else _recovered(fs, layout, timeout_seconds)


def _recovered(fs: FileSystem, layout: Layout, timeout_seconds: float) -> HeldChannel:
    """Return a view of a channel that nobody holds, recovered from the log."""
    if any(is_held(fs, directory) for directory in layout.directories().values()):
        raise ChannelBusyError(
            f"directories of {layout.path} are held, and the channel itself is not: its owner.json was removed while "
            "it was open, or another copy of it is open; close that first"
        )
    if not layout.owned and is_locked(fs, layout.open_lock):
        raise ChannelBusyError(f"{layout.path} is open in an earlier release of this package; close it there first")
    view = OverlayFileSystem(fs)
    return enter(view, adopted(view, layout, timeout_seconds), timeout_seconds)
