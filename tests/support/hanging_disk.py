"""A disk whose syncs hang for as long as a test wants."""

from __future__ import annotations

import threading

from tests.support.fake_files import Call, FaultyFileSystem

__all__ = ["HangingDisk"]


class HangingDisk(FaultyFileSystem):
    """A disk whose syncs hang while they are told to.

    Attributes:
        hangs: set once one hangs.
        may_sync: while it is clear, they hang.
    """

    def __init__(self) -> None:
        super().__init__()
        self.hangs, self.may_sync = threading.Event(), threading.Event()
        self.may_sync.set()

    def refuse(self, call: Call) -> None:
        if call.name == "sync" and not self.may_sync.is_set():
            self.hangs.set()
            assert self.may_sync.wait(20)
        super().refuse(call)
