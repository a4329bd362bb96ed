"""Which channel is at a path, told without opening it."""

from __future__ import annotations

from spillable_stream.errors import SpillableError
from spillable_stream.objects.location import channel_path

__all__ = ["known_uuid", "uuid_at"]


def known_uuid(path: str) -> str | None:
    """Return the UUID of the channel at a path; None if there is none, or none that can be read.

    Args:
        path: the path with which the channel is opened.
    """
    try:
        return uuid_at(path)
    except (SpillableError, OSError):
        return None


def uuid_at(path: str) -> str:
    """Return the UUID of the channel at a path, for one request to a store.

    Args:
        path: the path with which the channel is opened.

    Raises:
        NotAChannelError: there is none.
        StorageError: the storage refused.
    """
    from spillable_stream.engine import open_engine  # Spark's tasks import this module, and open none

    return open_engine.uuid_at(channel_path(path))
