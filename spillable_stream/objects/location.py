"""Where a channel is, by the path or the address that a user gives.

A channel of objects has an address:
``s3://bucket/orders``, ``az://container/orders``, ``gs://bucket/orders`` or, in a plain directory,
``object+file:///path``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from spillable_stream.arguments import path_text, require_resolvable
from spillable_stream.errors import OptionError
from spillable_stream.shown_value import shown

__all__ = ["DIRECTORY", "Location", "channel_path", "is_inside", "is_location"]

DIRECTORY = "object+file"
"""The scheme of a directory that is used as a store."""

_MOST_PREFIX_BYTES = 700  # what is below it is up to 300 bytes longer
_SCHEMES = ("s3", "az", "gs", DIRECTORY)
_OTHER_NAMES = {"s3a": "s3", "s3n": "s3", "abfs": "az", "abfss": "az", "wasb": "az", "wasbs": "az", "azure": "az"}
_ELSEWHERE = {"dbfs", "file", "hdfs", *_OTHER_NAMES}


def is_location(path: object) -> bool:
    """Tell whether a path that a user gave is a URL, or the path of such a channel, rather than a directory's path."""
    return isinstance(path, Location) or (isinstance(path, str) and "://" in path)


def channel_path(path: str | os.PathLike[str]) -> Path | Location:
    """Return where the channel is that a user's path or address names, whatever the working directory will be.

    Raises:
        OptionError: it is not a path, or an address at which no channel can be.
    """
    text = path_text("path", path)
    if is_location(path):
        return Location.parse(text)
    _require_no_address(text)
    require_resolvable("path", text)
    return Path(text).absolute()


def is_inside(path: str | os.PathLike[str], directory: Path) -> bool:
    """Tell whether a path leads to a directory, or into it, by whatever links."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(directory))


def _require_no_address(path: str) -> None:
    """Refuse a path that is an address but for its slashes, as a `Path` makes of it, unless it is a directory."""
    scheme, separator, rest = path.partition(":")
    if not separator or os.path.exists(path):
        return
    if scheme in _ELSEWHERE:
        raise _wrong_scheme(scheme)
    if scheme in _SCHEMES:
        whole = f"{scheme}://{'/' if scheme == DIRECTORY else ''}{rest.lstrip('/')}"
        raise OptionError(f"{path} is an address that lost a slash: write {whole} as a string, not as a Path")


def _wrong_scheme(scheme: str) -> OptionError:
    other = _OTHER_NAMES.get(scheme)
    if scheme == "file":
        hint = "write the directory's path alone"
    elif other == "az":
        hint = "write az://container/orders, and set AZURE_STORAGE_ACCOUNT_NAME to the account"
    elif other:
        hint = f"write {other}://, or a directory's path"
    else:
        hint = f"use one of {', '.join(f'{s}://' for s in _SCHEMES)}, or a directory's path"
    return OptionError(f"a channel can't be at an address with {scheme}://: {hint}")


@dataclass(frozen=True, slots=True)
class Location:
    """The root of a channel in an object store. It has no credentials, so it may be shown, stored and sent.

    Args:
        scheme: "s3", "az", "gs" or "object+file".
        bucket: the bucket or container; "" for a directory.
        prefix: the root's path in it, without slashes at its ends; for a directory, its absolute path.
    """

    scheme: str
    bucket: str
    prefix: str

    @classmethod
    def parse(cls, url: str) -> Location:
        """Return the location that a URL names.

        Raises:
            OptionError: it has another scheme, no bucket or path, credentials in it, or what can't be printed.
        """
        scheme, separator, rest = url.partition("://")
        if not separator:
            raise OptionError(f"{url} is not the address of a store: write s3://bucket/orders, or {DIRECTORY}:///path")
        if not url.isprintable():
            raise OptionError(f"the address {shown(url)} has characters that can't be printed: leave them out")
        if scheme not in _SCHEMES:
            raise _wrong_scheme(scheme)
        if "?" in rest or "#" in rest or "@" in rest.partition("/")[0]:
            raise OptionError(
                "the address of a channel is a bucket and a path, without options or credentials: these come from the "
                "environment, as the cloud's own tools take them"
            )
        if scheme == DIRECTORY:
            if not rest.startswith("/") or not rest.strip("/"):
                raise OptionError(f"{url} has no absolute path: write {DIRECTORY}:///path/of/a/directory")
            return cls(scheme, "", os.path.normpath(rest))
        bucket, _, prefix = rest.partition("/")
        parts = [part for part in prefix.split("/") if part]
        if not bucket or not parts:
            raise OptionError(
                f"{url} needs a bucket and a path in it, as {scheme}://bucket/orders: a channel never fills a whole "
                "bucket"
            )
        if any(part in (".", "..") for part in parts):
            raise OptionError(f"{url} has a part '.' or '..' in its path, which stores keep as it is: leave it out")
        if (size_bytes := len(prefix.encode())) > _MOST_PREFIX_BYTES:
            raise OptionError(
                f"the path of {url[:60]}… has {size_bytes:,} bytes: take one of {_MOST_PREFIX_BYTES} at most. An "
                "object's name may have 1,024, and a channel's objects have longer names than the channel"
            )
        return cls(scheme, bucket, "/".join(parts))

    @property
    def name(self) -> str:
        """The last part of its path."""
        return PurePosixPath(self.prefix).name

    def __fspath__(self) -> str:
        """Return the URL: a channel's path is taken wherever a path is, and does not name a file."""
        return str(self)

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}{'/' if self.bucket else ''}{self.prefix}"
