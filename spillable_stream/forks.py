"""Lets a process fork only where its child can continue.

A child has no thread but the one that forked. What another one is in the middle of stays so in the child forever. So
a fork takes two locks, and then nobody may import what a child may import:

1. logging's. A thread that configures logging has it, and makes handlers meanwhile, which may open a channel's files.
2. `forking`. A thread that opens or closes a file has it, and a finalizer or a signal's handler may log meanwhile.

So other threads take them in either order, and import under each. That is why a fork waits for neither of them, and for
no import, while it keeps a lock: unless it gets all it lets all go, and begins again. Logging's own hook, which takes
its lock too, comes behind that. So does that of executors, whose lock this module can't take by trial: it would have
to release it for that hook, and a thread that waits for it would get it first (docs/limits.md).
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401  (first: so its own hook, which takes a lock, acts after the wait)
import importlib
import logging  # (likewise)
import os
import signal
import sys
import threading
import weakref
from _thread import interrupt_main
from functools import partial
from itertools import compress
from operator import methodcaller
from time import monotonic, sleep
from typing import Protocol

__all__ = ["forking"]

_OTHERS = """
    botocore dateutil google_crc32c httpx javaproperties msgpack msgspec numpy obstore pandas pyarrow pyspark pytz six
    starlette tzdata uvicorn watchfiles
"""  # also what pyarrow imports at the first values from Python
_PACKAGES = frozenset({__name__.partition(".")[0], *_OTHERS.split(), *sys.stdlib_module_names})
"""What a child that uses a channel or a flow may import. Their imports end; a program's own may never."""

_POLL_SECONDS = 0.001
_TRIAL_SECONDS = 0.01  # for each lock
_OF_A_SIGNAL = 128  # plus its number: the status of a program that one has ended
_MOST_SECONDS = 30.0  # for imports, should a lock that the forking thread had before keep one from its end


class _ModuleLock(Protocol):
    """Python's lock of a module that is being imported."""

    owner: int | None


# Internals of Python: a version without them forks as if there were no imports.
_module_locks: dict[str, weakref.ref[_ModuleLock]] = getattr(
    getattr(importlib, "_bootstrap", None), "_module_locks", {}
)

_broken_off: set[str] = set()
"""What threads of a parent were importing when this process was forked."""

forking: threading.RLock = threading.RLock()
"""Keeps a fork from landing between opening or closing a descriptor and recording it."""

_logging: threading.RLock | None = getattr(logging, "_lock", None)  # likewise internal
_locks = [lock for lock in (_logging, forking) if lock is not None]
_try = methodcaller("acquire", timeout=_TRIAL_SECONDS)
_release = methodcaller("release")


class _Interrupts:
    """The signals whose handlers have interrupted a wait: Python ignores what is raised before a fork."""

    def __init__(self) -> None:
        self.waiting: list[signal.Signals] = []

    def note(self, error: KeyboardInterrupt | SystemExit) -> None:
        """Note the signal, by what its handler raised: that of Ctrl-C, if nothing else is said."""
        number, code = getattr(error, "number", signal.SIGINT), getattr(error, "code", None)
        if isinstance(code, int) and code - _OF_A_SIGNAL in signal.valid_signals():  # as `exit_on_sigterm` has it
            number = code - _OF_A_SIGNAL
        self.waiting[:] = [signal.Signals(number)]  # one, however often it comes

    def __iter__(self) -> _Interrupts:
        return self

    def __next__(self) -> signal.Signals:
        if not self.waiting:
            raise StopIteration
        return self.waiting.pop()


_interrupts = _Interrupts()


def _take_locks() -> None:
    """Take the locks, at a moment when no other thread imports: a child's own import would wait for that one forever.

    An interrupt does not end the wait, since nothing keeps the child from being forked. It comes once that is done.
    """
    end = monotonic() + _MOST_SECONDS
    held: list[threading.RLock] = []
    while True:
        try:
            # A signal's handler may raise behind any call: so a lock is taken and noted in one call, which is C's.
            held.extend(compress(_locks, map(_try, _locks)))
            if held == _locks and not (monotonic() < end and _others_import()):
                return
            held[:] = filter(_release, held)  # none is left, also of those that were taken before an interrupt
            sleep(_POLL_SECONDS)
        except (KeyboardInterrupt, SystemExit) as e:
            _interrupts.note(e)
        except BaseException:  # of another handler: said and ignored, as Python does
            sys.excepthook(*sys.exc_info())
            end = 0.0


def _others_import() -> bool:
    """Tell whether an import of another thread is under way, and the forking thread is in none, which might need it."""
    owners = _import_owners()
    return threading.get_ident() not in owners.values() and not owners.keys() <= _broken_off


def _import_owners() -> dict[str, int | None]:
    """Return the threads that import, by what each imports; None for one that has no name."""
    owners: dict[str, int | None] = {
        name: lock.owner
        for name, reference in list(_module_locks.items())
        if name.partition(".")[0] in _PACKAGES and (lock := reference()) is not None and lock.owner is not None
    }
    if _pyarrow_imports_pandas():
        owners["pandas for pyarrow"] = None
    return owners


def _pyarrow_imports_pandas() -> bool:
    """Tell whether pyarrow looks for pandas: it does once, at the first values from Python, under a lock of its own."""
    lock = getattr(getattr(sys.modules.get("pyarrow.lib"), "_pandas_api", None), "_lock", None)
    return lock is not None and bool(lock.locked())


def _note_broken_off() -> None:
    """In a forked child: imports of the parent's threads never end here, so no fork of this process waits for them."""
    me = threading.get_ident()
    _broken_off.update(name for name, owner in _import_owners().items() if owner != me)


# The last one registered is the first to act before a fork, and the last one after it.
os.register_at_fork(before=_take_locks, after_in_child=_note_broken_off)
os.register_at_fork(after_in_parent=forking.release, after_in_child=forking.release)
if _logging is not None:
    os.register_at_fork(after_in_parent=_logging.release)  # logging makes a child's anew
# A call from C, so the signal's handler runs where the fork has returned: what it raises here would be ignored, too.
os.register_at_fork(after_in_parent=partial(next, map(interrupt_main, _interrupts), None))
os.register_at_fork(after_in_child=_interrupts.waiting.clear)
