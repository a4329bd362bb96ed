"""What to do about an error, where its text does not say it: the same words, whichever verb met it."""

from __future__ import annotations

import errno
import os

from spillable_stream.errors import CorruptionError, NotAChannelError, SpillableError, StorageError
from spillable_stream.shown_value import command

__all__ = ["after_damage", "next_step"]

_CHECK, _ALLOW, _OTHER, _ROOM = "check the path", "run it as a user who may do that", "give another path", "make room"
_OF_THE_SYSTEM = {
    errno.ENOENT: _CHECK,
    errno.ENOTDIR: _CHECK,
    errno.EISDIR: "give the path of a file",
    errno.ELOOP: _OTHER,
    errno.ENAMETOOLONG: _OTHER,
    errno.EACCES: _ALLOW,
    errno.EPERM: _ALLOW,
    errno.EROFS: _OTHER,
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EIO: "check whether its disk works",
}
"""What to do about what the system refuses of a file."""

_OF_A_CHANNEL = {**_OF_THE_SYSTEM, errno.EROFS: "mount its file system for writing"}
_OF_ANOTHER_KIND = (errno.EINVAL, errno.EISDIR, errno.ELOOP, errno.ENOTDIR)


def next_step(error: Exception) -> str:
    """Return what to do about a wrong path, to be read behind the error's text; "" if that says it."""
    if isinstance(error, OSError):
        is_of_a_file = isinstance(error.filename, (str, bytes)) and b"://" not in os.fsencode(error.filename)
        step = _OF_THE_SYSTEM.get(error.errno or 0, "") if is_of_a_file else ""
        return step and f"; {step}"
    if isinstance(error, StorageError):
        number = _number(error)
        says_more = not str(error).endswith(f"{os.strerror(number)} (errno {number})")
        step = "" if says_more or number in _OF_ANOTHER_KIND else _OF_A_CHANNEL.get(number, "")
        return step and f"; {step}"
    says_it = "spillable " in str(error) or "channel: give " in str(error)
    if isinstance(error, NotAChannelError) and error.is_missing and not says_it:
        is_address = "://" in str(error).partition(" is not a channel")[0]
        check = "check the address" if is_address else f"{_CHECK}, and that its disk is mounted"
        return f"; {check}; 'spillable create' creates a new one"
    return ""


def _number(error: StorageError) -> int:
    """Return the number by which the system refused something, if an error ends with it; else 0."""
    cause = error.__cause__
    number = cause.errno or 0 if isinstance(cause, OSError) else 0
    return number if str(error).endswith(f"(errno {number})") else 0


def after_damage(error: SpillableError, path: str) -> str:
    """Return what to do about damage in the verb's own channel, and not in a backup of it; "" if the text says it.

    That there is a directory or a link in place of one of its files is damage, too.

    Args:
        error: what was raised.
        path: the channel, as it was given.
    """
    if isinstance(error, StorageError):
        is_inside = f"{os.path.abspath(path)}/" in str(error) and _number(error) in _OF_ANOTHER_KIND
        return f": see what is wrong with '{command('verify', path)}'" if is_inside else ""
    if not isinstance(error, CorruptionError) or not error.path.startswith((path, os.path.abspath(path))):
        return ""
    return f": {action}" if (action := error.action(path)) else ""
