"""The memory tier's directory: in shared memory, one per channel, created by the first put that goes to memory.

Its name is a random token, so that nobody can predict it; the log records the token (RESERVE). Its owner file says
which channel it belongs to. ``DIR/memory`` is a link to it, and ``DIR/memory.json`` says where it was created: on
which machine, in which of its boots, and on which file system. A tier is declared lost only if it is certainly gone:
a missing directory may exist elsewhere, in another container or on another host.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from spillable_stream.engine.local.memory_capacity import parent_of
from spillable_stream.engine.local.memory_origin import MemoryOrigin
from spillable_stream.errors import ChannelBusyError, ForeignDirectoryError, StorageError
from spillable_stream.format.file_names import Tier, parse_spare
from spillable_stream.format.head_page import CommitPoint
from spillable_stream.format.packing import NONSENSE
from spillable_stream.log.directory_ownership import is_original_elsewhere, whereabouts
from spillable_stream.log.layout import Layout
from spillable_stream.log.owner_file import OWNER_FILE, DirectoryOwner, read_owner, write_owner
from spillable_stream.option_types import ChannelOptions
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import FileLock

__all__ = ["MemoryDirectory"]

_ROLE = "memory"
_LEAVING_SECONDS = 5.0  # a killed process releases its locks one by one
_NAME = re.compile(r"spillable-([0-9a-f]{32})\Z")


class MemoryDirectory:
    """Creates a memory tier's directory, proves that it belongs to this channel, and removes it."""

    def __init__(self, fs: FileSystem, layout: Layout) -> None:
        self._fs = fs
        self._layout = layout
        self._lock: FileLock | None = None  # on the owner file of the directory in use

    def used_bytes(self) -> int:
        """Return how many bytes the tier's files take, without spare files."""
        own = self._own_names(self._layout.memory)
        used = [self._layout.memory / name for name in own if parse_spare(name, Tier.MEMORY) is None]
        return sum(map(self._fs.size_bytes, used))

    def _own_names(self, directory: Path) -> list[str]:
        """Return the names of the channel's files in a memory tier's directory."""
        return [name for name in self._fs.list_files(directory) if self._layout.is_own(self._layout.memory, name)]

    def _remove_files(self, directory: Path) -> None:
        """Remove the channel's files from a memory tier's directory, and the directory if that leaves it empty."""
        own = [directory / name for name in self._own_names(directory)]
        for path in sorted(own, key=lambda p: p.name == OWNER_FILE):  # the owner file last: it proves the directory
            self._fs.remove(path)
        self._fs.remove_directory(directory)

    # ── creating and finding it ─────────────────────────────────────────────────────────────────

    def create(self, options: ChannelOptions, token: str) -> None:
        """Create the directory and the link to it, after removing what an earlier tier left.

        Args:
            options: the channel's options.
            token: the tier's token: 32 random hexadecimal digits.

        Raises:
            StorageError: the file system refused, or the name is taken.
        """
        self.remove()  # an earlier tier's directory, wherever it is
        target = parent_of(options) / f"spillable-{token}"
        where, inode = whereabouts(self._fs, self._layout)
        origin = MemoryOrigin.here(self._fs, token, target, inode)
        self._write_origin(origin)  # first, so that an unfinished tier can be found and removed
        self._fs.make_private_directory(target, owner_of=self._layout.path)
        self._write_origin(replace(origin, inode=self._fs.identity(target).inode))
        write_owner(self._fs, target, DirectoryOwner(self._layout.channel, _ROLE, token, where, inode))
        self._fs.link(self._layout.memory, target)
        self._fs.sync_directory(self._layout.path)
        if not self._hold(alone=True):
            raise StorageError(f"{target} was changed by somebody else while it was created")

    def _write_origin(self, origin: MemoryOrigin) -> None:
        self._fs.write_atomically(
            self._layout.memory_origin, json.dumps(asdict(origin), sort_keys=True).encode() + b"\n"
        )

    def adopt(self, token: str) -> None:
        """Give the directory of an early release, whose name identifies its channel, a new name and an owner file.

        Args:
            token: the token in the log.
        """
        target = self._fs.link_target(self._layout.memory)
        device, inode = self._fs.identity(self._layout.path)
        named = f"spillable-{self._layout.channel}-{device:x}-{inode:x}"
        if target is None or target.name != named or not _NAME.match(f"spillable-{token}"):
            return
        if self._is_private(target):
            new = target.with_name(f"spillable-{token}")
            home = str(self._fs.real_path(self._layout.path))
            write_owner(self._fs, target, DirectoryOwner(self._layout.channel, _ROLE, token, home, inode))
            self._fs.link(self._layout.memory, new)
            self._fs.rename(target, new)

    def origin(self) -> MemoryOrigin | None:
        """Return where the memory tier was created, or None if ``memory.json`` is missing or damaged."""
        try:
            return MemoryOrigin(**json.loads(self._fs.read_file(self._layout.memory_origin)))
        except (FileNotFoundError, StorageError, *NONSENSE):
            return None

    def is_present(self, published: CommitPoint) -> bool:
        """Tell whether the memory tier that the head publishes is present; also true if it publishes none."""
        if not published.memory.file_id:
            return True
        known = self._lock is not None and self._lock.is_in_place()
        return (known or (self.is_own() and self._hold())) and self._fs.exists(
            self._layout.log_file(published.memory.file_id)
        )

    def is_own(self) -> bool:
        """Tell whether the link leads to a directory of this channel, not of the channel that this one is a copy of."""
        owner = self._owner()
        return owner is not None and not self._is_copied(owner)

    def _owner(self) -> DirectoryOwner | None:
        """Return the directory's owner record, or None if the directory is missing or can't be trusted."""
        target = self._fs.link_target(self._layout.memory)
        if target is None or not self._is_private(target):
            return None
        if self._is_look_alike(target):
            return None
        try:
            owner = read_owner(self._fs, target)
        except ForeignDirectoryError:
            return None
        named = _NAME.match(target.name)
        if owner is None or named is None or named[1] != owner.token:
            return None
        return owner if (owner.channel, owner.role) == (self._layout.channel, _ROLE) else None

    def _is_look_alike(self, target: Path) -> bool:
        """Tell whether a directory in shared memory is not the one that was created there in this boot."""
        origin = self.origin()
        if origin is None or not origin.is_of_this_boot() or not self._fs.is_in_memory(target):
            return False
        return self._fs.identity(target).device != origin.device

    def _is_copied(self, owner: DirectoryOwner) -> bool:
        """Tell whether the directory belongs to the channel that this one is a copy of.

        A channel may be moved, or mounted under another device number. At its old path it still has its old inode.
        """
        here = str(self._fs.real_path(self._layout.path))
        if owner.home == here:
            return owner.inode != self._fs.identity(self._layout.path).inode
        return is_original_elsewhere(self._fs, owner, self._layout)

    def _hold(self, *, alone: bool = False) -> bool:
        """Share the directory's lock, and tell whether that worked; with ``alone``, only if nobody else holds it."""
        if self._lock is not None and self._lock.is_in_place():
            return True
        self.close()
        try:
            lock = FileLock.open(self._fs, self._layout.memory / OWNER_FILE, create=False)
        except FileNotFoundError:
            return False
        try:
            held = lock.acquire(_LEAVING_SECONDS) and lock.share() if alone else lock.try_acquire(shared=True)
        except BaseException:
            lock.close()
            raise
        if held:
            self._lock = lock
        else:
            lock.close()
        return held

    def hold_alone(self) -> None:
        """Hold the directory, which belongs to this channel.

        Raises:
            ChannelBusyError: another process holds it, though no process holds the channel.
        """
        if not self._hold(alone=True):
            raise ChannelBusyError(
                f"the memory tier of {self._layout.path} in {self._fs.real_path(self._layout.memory)} is held by a "
                "process that does not hold the channel; end it, and open the channel again"
            )
        owner, (here, inode) = self._owner(), whereabouts(self._fs, self._layout)
        if owner is not None and (owner.home, owner.inode) != (here, inode):  # the channel was moved; a copy may follow
            write_owner(self._fs, self._layout.memory, replace(owner, home=here, inode=inode))
            self._hold(alone=True)

    def is_unused(self, token: str, files: Callable[[], Sequence[int]]) -> bool:
        """Tell whether the tier with a token exists and was never used: its first file was not created yet.

        Args:
            token: the token in the log.
            files: returns the tier's log files that count; called only once the directory is proven to be the tier's.
        """
        owner = self._owner()
        if owner is None or owner.token != token or self._is_copied(owner):
            return False
        return self._fs.is_in_memory(self._layout.memory) and not files()

    def is_elsewhere(self) -> bool:
        """Tell whether a memory tier that can't be seen here may be alive elsewhere: on a host, in a container."""
        target = self._fs.link_target(self._layout.memory)
        if target is None or (self._fs.exists(target) and not self._is_look_alike(target)):
            return False
        origin = self.origin()
        return origin is None or not origin.is_certainly_gone(self._fs)

    def require_trusted(self) -> None:
        """Refuse to treat a memory tier as lost that is present, but can no longer be trusted.

        This applies only to the directory that was created for this channel, in the same boot. Any other directory of
        that name may belong to anybody, and a copy of the channel links to the original's.

        Raises:
            ForeignDirectoryError: its permissions were widened, or its user changed.
        """
        if (origin := self._origin_made_here()) is None:
            return
        target = Path(origin.path)
        if not self._is_private(target):
            raise ForeignDirectoryError(
                f"the memory tier {target} is no longer private to the owner of {self._layout.path}: chown it, and "
                f"chmod it to {self._layout.mode:o}. If you do not trust its contents, remove "
                f"{self._layout.memory}, and its events will be reported lost"
            )

    def restore_owner(self) -> None:
        """Rewrite a missing or damaged owner file, if the directory proves itself (`proves_itself`)."""
        origin = self._origin_made_here()
        if origin is None or not self._is_private(target := Path(origin.path)):
            return
        with contextlib.suppress(ForeignDirectoryError):
            if read_owner(self._fs, target) is not None:
                return
        where, inode = whereabouts(self._fs, self._layout)
        write_owner(self._fs, target, DirectoryOwner(self._layout.channel, _ROLE, origin.token, where, inode))

    def proves_itself(self) -> bool:
        """Tell whether the directory is private, and the one that was created for this channel in this boot."""
        origin = self._origin_made_here()
        return origin is not None and self._is_private(Path(origin.path))

    def _is_private(self, target: Path) -> bool:
        return self._fs.is_private_directory(target, owner_of=self._layout.path)

    def _origin_made_here(self) -> MemoryOrigin | None:
        """Return the tier's origin if its directory is the one that was created for this channel in this boot."""
        target, origin = self._fs.link_target(self._layout.memory), self.origin()
        if target is None or origin is None or Path(origin.path) != target or not origin.is_of_this_boot():
            return None
        if origin.home != self._fs.identity(self._layout.path).inode or not self._fs.exists(target):
            return None
        return origin if self._fs.identity(target) == (origin.device, origin.inode) else None

    def is_linked(self) -> bool:
        """Tell whether the channel has a link to a memory tier, wherever it leads."""
        return self._fs.link_target(self._layout.memory) is not None

    # ── removing and closing it ─────────────────────────────────────────────────────────────────

    def remove(self) -> None:
        """Remove the link, and the directory if it belongs to this channel."""
        self.close()
        if self._fs.link_target(self._layout.memory) is None:
            self._remove_files(self._layout.memory)  # a copy that followed the link has a directory in its place
            self._remove_uncompleted()
            return
        if self.is_own():
            self._remove_files(self._fs.real_path(self._layout.memory))
        self._fs.remove(self._layout.memory)
        self._fs.remove(self._layout.memory_origin)

    def _remove_uncompleted(self) -> None:
        """Remove a directory that was created but not linked."""
        origin = self.origin()
        if origin is None:
            return
        target = Path(origin.path)
        if _NAME.match(target.name) and self._is_private(target):
            with contextlib.suppress(ForeignDirectoryError):
                owner = read_owner(self._fs, target)
                if owner is None or (owner.channel == self._layout.channel and not self._is_copied(owner)):
                    self._remove_files(target)
        self._fs.remove(self._layout.memory_origin)

    def close(self) -> None:
        """Release the directory."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None
