"""Which directory of this host a path or a URI names."""

from __future__ import annotations

import re
from urllib.parse import unquote

__all__ = ["is_file_uri", "local_path"]

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


def local_path(given: str) -> str:
    """Return the path of a local directory that a path or a URI names, or "" if it names none."""
    path = _path_of_uri(given) if is_file_uri(given) else given
    return "" if _SCHEME.match(path) else path


def is_file_uri(given: str) -> bool:
    """Tell whether a path is a ``file:`` URI."""
    return given[:5].lower() == "file:"


def _path_of_uri(uri: str) -> str:
    """Return the path of a ``file:`` URI, or "" if it is relative or another host's."""
    path = uri[5:]
    if path.startswith("//"):
        host, slash, path = path[2:].partition("/")
        path = slash + path if host.lower() in ("", "localhost") else ""
    return "/" + unquote(path.lstrip("/")) if path.startswith("/") else ""
