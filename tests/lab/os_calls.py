"""Something in place of `os`, in the modules by which the package changes files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

from spillable_stream import durable_names
from spillable_stream.storage import access, file, filesystem

__all__ = ["in_place_of_os"]


@contextmanager
def in_place_of_os(replacement: object) -> Iterator[None]:
    """Let the package call a replacement where it would call `os` to change files, in this process."""
    with ExitStack() as stack:
        for module in (access, durable_names, file, filesystem):
            stack.enter_context(mock.patch.object(module, "os", replacement))
        yield
