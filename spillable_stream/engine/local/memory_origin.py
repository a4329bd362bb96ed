"""Where a memory tier was created: on which machine, in which of its boots, and on which file system."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from spillable_stream.errors import StorageError
from spillable_stream.storage.boot import boot_id
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["MemoryOrigin"]

_MACHINE = Path("/etc/machine-id")


@dataclass(frozen=True, slots=True)
class MemoryOrigin:
    """Where a memory tier was created.

    Args:
        token: the tier's token.
        path: its directory.
        boot: the boot ID of the machine, in hexadecimal.
        device: the device number of its file system, unique during this boot while that is mounted.
        host: the host's name.
        machine: the machine's ID; "" without one.
        in_memory: whether the file system is only in memory, so that a reboot empties it.
        parent: the inode of the directory that contains it; 0 if it was not recorded.
        inode: the inode of the tier's directory; 0 until that is created.
        home: the inode of the channel's own directory.
    """

    token: str
    path: str
    boot: str
    device: int
    host: str
    machine: str
    in_memory: bool = True
    parent: int = 0
    inode: int = 0
    home: int = 0

    @classmethod
    def here(cls, fs: FileSystem, token: str, path: Path, home: int) -> MemoryOrigin:
        """Return the origin of a tier whose directory is about to be created on this machine.

        Args:
            fs: the file system.
            token: the tier's token.
            path: the directory.
            home: the inode of the channel's own directory.
        """
        parent, in_memory = fs.identity(path.parent), fs.is_in_memory(path.parent)
        host = os.uname().nodename
        return cls(token, str(path), boot_id().hex(), parent.device, host, _machine(), in_memory, parent.inode, 0, home)

    def is_of_this_boot(self) -> bool:
        """Tell whether the machine has not been booted since."""
        return self.boot == boot_id().hex()

    def is_certainly_gone(self, fs: FileSystem) -> bool:
        """Tell whether a tier whose directory can't be seen is gone for good.

        In the same boot it is gone if its file system can be seen here without the directory. A reboot of the same
        machine empties shared memory; two machines with the same name and ID can't be told apart. After a reboot a
        disk may not be mounted yet: then the parent directory is missing, or a different one.
        """
        rebooted = not self.is_of_this_boot()
        if rebooted and (self.host, self.machine) != (os.uname().nodename, _machine()):
            return False
        if rebooted and (self.in_memory or not self.parent):
            return True
        try:
            parent = fs.identity(Path(self.path).parent)
        except (FileNotFoundError, StorageError):
            return False
        if not rebooted:
            return parent.device == self.device
        # The roots of two file systems may have one inode.
        return parent.inode == self.parent and not Path(self.path).parent.is_mount()


def _machine() -> str:
    try:
        return _MACHINE.read_text().strip()
    except OSError:
        return ""
