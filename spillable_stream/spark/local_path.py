"""Finds the local directory that a path or a URI names."""

from __future__ import annotations

import os
import re
from urllib.parse import unquote

from spillable_stream.objects.location import is_location

__all__ = ["absolute", "is_file_uri", "local_path"]

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


def local_path(given: str, *, is_encoded: bool = True) -> str:
    """Return the path of a local directory that a path or a URI names, or "" if it names none.

    Args:
        given: the path or the URI.
        is_encoded: whether a URI says with ``%20`` that there is a space; it does not to Spark where that has files.
    """
    path = _path_of_uri(given, is_encoded=is_encoded) if is_file_uri(given) else given
    return "" if _SCHEME.match(path) else path


def is_file_uri(given: str) -> bool:
    """Tell whether a path is a ``file:`` URI."""
    return given[:5].lower() == "file:"


def absolute(path: str) -> str:
    """Return the path of a channel, whatever the working directory; an address in a store as it is."""
    return path if is_location(path) else os.path.abspath(path)


def _path_of_uri(uri: str, *, is_encoded: bool) -> str:
    """Return the path of a ``file:`` URI, or "" if it is relative or another host's."""
    path = uri[5:]
    if path.startswith("//"):
        host, slash, path = path[2:].partition("/")
        path = slash + path if host.lower() in ("", "localhost") else ""
    if not path.startswith("/"):
        return ""
    path = "/" + path.lstrip("/")
    return unquote(path) if is_encoded else path
