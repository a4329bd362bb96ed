from __future__ import annotations

import errno

import pytest

from spillable_stream.sync_refusals import is_not_ours


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EINVAL, errno.EROFS, errno.ENOTSUP, errno.ENOSYS])
def test_what_this_process_may_not_or_cannot_sync_is_not_its_own(number: int) -> None:
    assert is_not_ours(OSError(number, "refused"))


@pytest.mark.parametrize("error", [OSError(errno.EIO, "failed"), OSError(errno.ENOSPC, "full"), ValueError(), None])
def test_a_write_that_failed_and_what_is_not_a_refusal_are_its_own(error: BaseException | None) -> None:
    assert not is_not_ours(error)
