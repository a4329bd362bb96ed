"""What to do about an error that does not say it."""

from __future__ import annotations

import errno
import os

import pytest

from spillable_stream.cli.next_steps import after_damage, next_step
from spillable_stream.errors import CorruptionError, DataLossError, NotAChannelError, OptionError, StorageError
from spillable_stream.objects.identity import no_channel
from tests.support.memory_store import MemoryStore


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOENT, "No such file or directory", "a"), "; check the path"),
        (OSError(errno.EISDIR, "Is a directory", "a"), "; give the path of a file"),
        (OSError(errno.EACCES, "Permission denied", b"a"), "; run it as a user who may do that"),
        (OSError(errno.EACCES, "Permission denied", "http://127.0.0.1:80/"), ""),
        (OSError(errno.EACCES, "Permission denied"), ""),
        (OSError(errno.EINVAL, "its byte 7 is 0", "a"), ""),
        (NotAChannelError("a is not a channel: 'spillable repair a' rewrites it", is_missing=True), ""),
        (NotAChannelError("a is a file"), ""),
        (OptionError("give a path"), ""),
    ],
)
def test_the_system_names_no_step_and_the_errors_of_this_package_do(error: Exception, said: str) -> None:
    assert next_step(error) == said


@pytest.mark.parametrize(
    ("number", "step", "inside"),
    [
        (errno.EACCES, "; run it as a user who may do that", ""),
        (errno.EROFS, "; mount its file system for writing", ""),
        (errno.ENOSPC, "; make room", ""),
        (errno.EISDIR, "", ": see what is wrong with 'spillable verify /data/c'"),
        (errno.ELOOP, "", ": see what is wrong with 'spillable verify /data/c'"),
        (errno.EIO, "; check whether its disk works", ""),
    ],
)
def test_what_the_system_refused_of_a_channels_file_has_a_step_too(number: int, step: str, inside: str) -> None:
    """The words of the system were all that was said."""
    cause = OSError(number, os.strerror(number))
    error = StorageError(f"opening /data/c/lock failed: {cause.strerror} (errno {number})")
    error.__cause__ = cause
    assert next_step(error) == step
    assert after_damage(error, "/data/c") == inside
    assert after_damage(error, "/data/copy") == after_damage(error, "/data/c/lock") == ""
    for text in (f"{error}; create it on a disk", f"the backup is refused: make room there (errno {number})"):
        told = StorageError(text)
        told.__cause__ = cause
        assert next_step(told) == after_damage(told, "/data/c") == ""


def test_a_path_without_a_channel_may_be_wrong_not_mounted_or_new() -> None:
    said = next_step(NotAChannelError("a is not a channel: it is missing", is_missing=True))
    assert said == "; check the path, and that its disk is mounted; 'spillable create' creates a new one"


def test_an_address_without_a_channel_may_be_wrong_or_new_and_has_no_disk() -> None:
    said = next_step(no_channel(MemoryStore("s3://bucket/orders")))
    assert said == "; check the address; 'spillable create' creates a new one"


def test_damage_is_verified_in_the_channel_of_the_verb_and_nowhere_else() -> None:
    damage = CorruptionError("a frame is damaged", "/data/c/data/log-000001", 7)
    assert after_damage(damage, "/data/c") == ": see what is lost with 'spillable verify /data/c'"
    assert after_damage(damage, "/data/copy") == ""
    assert after_damage(DataLossError("gone", "/data/c/data/log-000001"), "/data/c") == ""
    assert after_damage(StorageError("refused"), "/data/c") == ""
