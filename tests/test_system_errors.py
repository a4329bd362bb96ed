from __future__ import annotations

import errno
import os

import pytest

from spillable_stream.errors import DiskSpaceError, StorageError
from spillable_stream.system_errors import FULL_DISK, may_not_write, storage_error


def refused(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@pytest.mark.parametrize("number", FULL_DISK)
def test_a_full_disk_has_an_error_and_an_advice_of_its_own(number: int) -> None:
    error = storage_error("can't write /c/a", refused(number), "look at the disk")
    assert isinstance(error, DiskSpaceError)
    assert str(error) == f"can't write /c/a ({os.strerror(number)}); {FULL_DISK[number]}"


def test_any_other_refusal_has_the_advice_of_the_call() -> None:
    error = storage_error("can't write /c/a", refused(errno.EIO), "look at the disk")
    assert type(error) is StorageError
    assert str(error) == "can't write /c/a (Input/output error); look at the disk"


def test_of_a_refusal_that_is_a_trace_the_first_line_is_told() -> None:
    error = storage_error("can't write hdfs://a", OSError("no host.\n\tat java.net\n"), "look at the cluster")
    assert str(error) == "can't write hdfs://a (no host); look at the cluster"


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EPERM])
def test_a_process_without_a_right_to_write_is_told_apart_by_the_cause(number: int) -> None:
    error = StorageError("refused")
    assert not may_not_write(error)
    error.__cause__ = refused(number)
    assert may_not_write(error)
    error.__cause__ = refused(errno.EIO)
    assert not may_not_write(error)
