"""Where paths of a configuration lead: local files, Hadoop's file system, or an object store."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote
from xml.etree import ElementTree

from spillable_stream.arguments import require_resolvable
from spillable_stream.durable_names import is_there
from spillable_stream.errors import OptionError, StorageError
from spillable_stream.flow.durable_file import make_directory, sync_directory
from spillable_stream.flow.sinks import hadoop
from spillable_stream.log_records import fields, log_of
from spillable_stream.system_errors import storage_error

__all__ = ["ArrowFiles", "FileStream", "Files", "LocalFiles", "Resolved", "resolve"]

_log = log_of("spillable_stream.flow")
_SCHEMES = {
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gs",
    "abfs": "abfs",
    "abfss": "abfss",
    "hdfs": "hdfs",
    "viewfs": "viewfs",
}
_HADOOP = ("hdfs", "viewfs")
_MOST_NAME_BYTES = 255
_MOST_PATH_BYTES = 4095
_MOST_KEY_LENGTH = 1024  # of an object: bytes, but characters in Azure
_LOCAL_ADVICE = "check the directory"
_STORE_ADVICE = "check the address and the credentials"
_HADOOP_ADVICE = "check that the name node is up and not in safe mode, and that this user may write there"


class FileStream:
    """A file that is being written, whose failures say what they are about.

    Args:
        raw: what is written to: Python's file, or Arrow's.
        path: its path.
        advice: what to do where it fails.
    """

    def __init__(self, raw: Any, path: str, advice: str) -> None:
        self.raw: Any = raw
        self._path, self._advice = path, advice

    def write(self, data: bytes, /) -> None:
        """Write some bytes.

        Raises:
            StorageError: the file system refused.
        """
        try:
            self.raw.write(data)
        except OSError as e:
            raise storage_error(f"can't write {self._path}", e, self._advice) from e

    def close(self) -> None:
        """Finish it.

        Raises:
            StorageError: the file system refused.
        """
        try:
            self.raw.close()
        except OSError as e:
            raise storage_error(f"can't close {self._path}", e, self._advice) from e


class Files(Protocol):
    """The files of a sink that come to be when they are closed."""

    def create(self, path: str) -> FileStream:
        """Return a new file."""

    def publish(self, stream: FileStream, temporary: str, final: str) -> None:
        """Close a file, durably, and give it its name."""

    def exists(self, path: str) -> bool:
        """Whether there is a file.

        Raises:
            StorageError: that can't be told; a sink must not take it for a no, and write the file's events again.
        """

    def is_published(self, path: str) -> bool:
        """Whether a file has its name, and no crash takes it back.

        Raises:
            StorageError: like `exists`.
        """

    def remove(self, path: str) -> None:
        """Remove a file, if there is one; no crash brings it back."""

    def temporary(self, path: str, final: str) -> str:
        """Return the name of a file while it is written, by the one that options say.

        It is not the final one, but in a store: there no file is seen before it is whole.
        """

    def takes(self, path: str) -> bool:
        """Tell whether a file can have a path, if that is known: whether its names are allowed, and no file's."""


class LocalFiles:
    """Files of this host."""

    def create(self, path: str) -> FileStream:
        """Return a new file; see `Files.create`."""
        make_directory(Path(path).parent)
        try:
            return FileStream(open(path, "xb"), path, _LOCAL_ADVICE)
        except FileExistsError:
            raise
        except OSError as e:
            raise storage_error(f"can't create {path}", e, _LOCAL_ADVICE) from e

    def publish(self, stream: FileStream, temporary: str, final: str) -> None:
        """Sync, close and rename; see `Files.publish`."""
        try:
            stream.raw.flush()
            os.fsync(stream.raw.fileno())
            stream.close()
            os.rename(temporary, final)
        except OSError as e:
            raise storage_error(f"can't finish {final}", e, _LOCAL_ADVICE) from e
        sync_directory(Path(final).parent)

    def exists(self, path: str) -> bool:
        """See `Files.exists`."""
        try:
            return is_there(path)
        except OSError as e:
            raise storage_error(f"can't look at {path}", e, _LOCAL_ADVICE) from e

    def is_published(self, path: str) -> bool:
        """See `Files.is_published`: a process that was killed may have renamed the file, and not synced that."""
        if not self.exists(path):
            return False
        sync_directory(Path(path).parent)
        return True

    def remove(self, path: str) -> None:
        """See `Files.remove`."""
        try:
            Path(path).unlink(missing_ok=True)
        except OSError as e:
            raise storage_error(f"can't remove {path}", e, _LOCAL_ADVICE) from e
        if self.exists(parent := os.path.dirname(path)):
            sync_directory(Path(parent))

    def temporary(self, path: str, final: str) -> str:
        """See `Files.temporary`."""
        return path if path != final else _hidden(final)

    def takes(self, path: str) -> bool:
        """See `Files.takes`."""
        if len(os.fsencode(path)) > _MOST_PATH_BYTES or not _has_short_names(path):
            return False
        try:
            return stat.S_ISDIR(os.stat(os.path.dirname(path)).st_mode)
        except NotADirectoryError:
            return False
        except OSError:
            return True  # the directory is yet to be created, or what creates the file says what is wrong


class ArrowFiles:
    """Files of one of Arrow's file systems.

    Args:
        filesystem: a ``pyarrow.fs.FileSystem``.
        is_store: whether it is an object store: there a file is not seen before it is closed, and needs no other name.
    """

    def __init__(self, filesystem: object, *, is_store: bool) -> None:
        self._fs = filesystem
        self._is_store = is_store
        self._advice = _STORE_ADVICE if is_store else _HADOOP_ADVICE

    def create(self, path: str) -> FileStream:
        """Return a new file; see `Files.create`."""
        try:
            if not self._is_store:
                self._fs.create_dir(path.rpartition("/")[0], recursive=True)  # type: ignore[attr-defined]
            return FileStream(self._fs.open_output_stream(path), path, self._advice)  # type: ignore[attr-defined]
        except OSError as e:
            raise storage_error(f"can't create {path}", e, self._advice) from e

    def publish(self, stream: FileStream, temporary: str, final: str) -> None:
        """Close, and rename where it has another name; see `Files.publish`."""
        try:
            stream.close()
            if temporary != final:
                self._fs.move(temporary, final)  # type: ignore[attr-defined]
        except OSError as e:
            raise storage_error(f"can't finish {final}", e, self._advice) from e

    def exists(self, path: str) -> bool:
        """See `Files.exists`."""
        from pyarrow.fs import FileType

        try:
            if self._fs.get_file_info(path).type is not FileType.NotFound:  # type: ignore[attr-defined]
                return True
            if self._is_store:
                return False
            # Arrow says "not found", too, where the name node does not answer: only an open tells.
            self._fs.open_input_stream(path).close()  # type: ignore[attr-defined]
            return True
        except FileNotFoundError:
            return False
        except OSError as e:
            raise storage_error(f"can't look at {path}", e, self._advice) from e

    def is_published(self, path: str) -> bool:
        """See `Files.is_published`."""
        return self.exists(path)

    def remove(self, path: str) -> None:
        """See `Files.remove`."""
        if self.exists(path):
            try:
                self._fs.delete_file(path)  # type: ignore[attr-defined]
            except OSError as e:
                raise storage_error(f"can't remove {path}", e, self._advice) from e

    def temporary(self, path: str, final: str) -> str:
        """See `Files.temporary`."""
        if self._is_store:
            return final
        return path if path != final else _hidden(final)

    def takes(self, path: str) -> bool:
        """See `Files.takes`: a name node has this limit, if nobody changed it, and takes no colon."""
        if not self._is_store:
            return ":" not in path and _has_short_names(path)
        key = path.partition("/")[2]
        is_azure = self._fs.type_name == "abfs"  # type: ignore[attr-defined]
        return len(key if is_azure else os.fsencode(key)) <= _MOST_KEY_LENGTH


def _has_short_names(path: str) -> bool:
    return all(len(name) <= _MOST_NAME_BYTES for name in os.fsencode(path).split(b"/"))


def _hidden(path: str) -> str:
    """Return the name of a file that readers pass over."""
    directory, slash, name = path.rpartition("/")
    return f"{directory}{slash}.{name}.tmp"


class Resolved(NamedTuple):
    """Where a path leads.

    Args:
        path: the path within the files.
        files: the files.
        is_local: whether they are this host's, so that a file can be cut.
    """

    path: str
    files: Files
    is_local: bool


def resolve(path: str, system: Mapping[str, str], environment: Mapping[str, str]) -> Resolved:
    """Return where a path of a configuration leads; escapes in it stay.

    ``-Dspillable.paths=hdfs://nn/=file:///data/`` maps beginnings of paths. A path without a scheme is one of
    ``fs.defaultFS``: from ``-Dfs.defaultFS=…``, else from ``core-site.xml`` in ``--conf`` or ``HADOOP_CONF_DIR``, else
    a local one. As in Hadoop, a relative one begins in the process's working directory where it is local, and else in
    the user's home directory, ``/user/NAME``.

    Raises:
        OptionError: the scheme is not supported, or a relative path leads nowhere.
        StorageError: its file system can't be used.
    """
    for pair in filter(None, system.get("spillable.paths", "").split(",")):
        old, _, new = pair.strip().partition("=")
        if path.startswith(old):
            path = new + path[len(old) :]
            break
    if "://" not in path and not path.startswith("file:"):
        path = _in_default(path, system, environment)
    scheme = path.partition(":")[0]
    if scheme == "file":
        return Resolved("/" + path.partition(":")[2].lstrip("/"), LocalFiles(), True)
    if scheme not in _SCHEMES or "://" not in path:
        raise OptionError(f"the path {path} has a scheme that is not supported; give file:, hdfs:, s3:, gs: or abfs:")
    return _of_arrow(path, scheme, environment)


def _in_default(path: str, system: Mapping[str, str], environment: Mapping[str, str]) -> str:
    default = system.get("fs.defaultFS") or _core_site(system, environment)
    if default and not default.startswith("file:"):
        place = path if path.startswith("/") else f"/user/{environment.get('USER', '')}/{path}"
        return default.rstrip("/") + place
    place = _on_this_host(path)
    why = "fs.defaultFS is this host's" if default else "there is no fs.defaultFS"
    _log.info("the path %s has no scheme, and %s: it is %s on this host", path, why, place, extra=fields(file=path))
    return f"file://{place}"


def _on_this_host(path: str) -> str:
    """Return a whole path; no ``%`` of the working directory is an escape."""
    path = os.path.expanduser(path)
    if path.startswith("/"):
        return path
    require_resolvable("path", path)
    return f"{os.getcwd().replace('%', '%%').rstrip('/')}/{path}"


def _core_site(system: Mapping[str, str], environment: Mapping[str, str]) -> str:
    """Return ``fs.defaultFS`` of Hadoop's configuration; an empty text if there is none."""
    for directory in (system.get("spillable.conf.dir"), environment.get("HADOOP_CONF_DIR")):
        file = Path(directory or "/nonexistent") / "core-site.xml"
        if not file.is_file():
            continue
        try:
            properties = ElementTree.parse(file).getroot().iter("property")
        except ElementTree.ParseError as e:
            raise OptionError(f"{file} is not XML ({e})") from e
        for found in properties:
            if found.findtext("name") in ("fs.defaultFS", "fs.default.name"):
                return found.findtext("value") or ""
    return ""


def _of_arrow(path: str, scheme: str, environment: Mapping[str, str]) -> Resolved:
    from pyarrow import fs

    place, escapes = path, ""
    if "%" in path:  # an address must not have escapes
        place, escapes = path.partition("%")[0], "%" + path.partition("%")[2]
    is_store = _SCHEMES[scheme] not in _HADOOP
    if not is_store:
        hadoop.find_classes(environment)
    try:
        query = _s3_query(environment) if _SCHEMES[scheme] == "s3" and "?" not in place else ""
        found, inner = fs.FileSystem.from_uri(_SCHEMES[scheme] + place[place.index(":") :] + query)
    except (OSError, ValueError) as e:
        why = str(e).partition("\n")[0]  # then libhdfs lists all the places where it looked for Java
        way = _STORE_ADVICE
        if not is_store:
            way = f"{hadoop.NEEDS}; -Dspillable.paths={scheme}://…/=file:///… runs without"
        raise StorageError(f"the file system of {path} can't be used ({why}); {way}") from e
    slash = "/" if place.endswith("/") and not inner.endswith("/") else ""
    return Resolved(inner + slash + escapes, ArrowFiles(found, is_store=is_store), False)


def _s3_query(environment: Mapping[str, str]) -> str:
    """Return what an address says of region and endpoint, as the environment has them."""
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    endpoint = environment.get("AWS_ENDPOINT_URL", "")
    said = [f"region={quote(region, safe='')}"] if region else []
    if endpoint:
        scheme, _, host = endpoint.rpartition("://")
        said += [f"endpoint_override={quote(host, safe='')}", f"scheme={scheme or 'https'}"]
    return "?" + "&".join(said) if said else ""
