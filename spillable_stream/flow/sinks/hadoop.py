"""What Arrow needs to reach Hadoop's file system: a Java runtime, Hadoop's native library, and its client's classes.

Arrow starts a Java machine in the process (`<https://arrow.apache.org/docs/python/filesystems.html>`_), and looks for
its classes in ``CLASSPATH`` only. Flume's script asks the command ``hadoop`` for them, so this does it as well.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from spillable_stream.log_records import fields, log_of

__all__ = ["NEEDS", "find_classes"]

_log = log_of("spillable_stream.flow")
_CLASSPATH = "CLASSPATH"
_TIMEOUT_SECONDS = 60

NEEDS = (
    "hdfs: needs Java (JAVA_HOME), Hadoop's libhdfs.so (below HADOOP_HOME, or in ARROW_LIBHDFS_DIR), and the classes "
    "of its client (the command `hadoop`, or CLASSPATH)"
)
"""What a user must have, for messages."""


def find_classes(environment: Mapping[str, str]) -> None:
    """Set this process's ``CLASSPATH`` to what the command ``hadoop`` says, unless it is set.

    Args:
        environment: has ``HADOOP_HOME`` or ``PATH``, where the command is.
    """
    if os.environ.get(_CLASSPATH) or (command := _command(environment)) is None:
        return
    try:
        said = subprocess.run(
            [command, "classpath", "--glob"], capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError) as e:
        why = e.stderr.strip() if isinstance(e, subprocess.CalledProcessError) and e.stderr else e
        _log.warning(
            "%s does not say where Hadoop's classes are (%s); set %s",
            command,
            why,
            _CLASSPATH,
            extra=fields(file=command),
        )
        return
    os.environ[_CLASSPATH] = said.stdout.strip()


def _command(environment: Mapping[str, str]) -> str | None:
    home = environment.get("HADOOP_HOME")
    own = shutil.which(Path(home, "bin", "hadoop")) if home else None
    return own or shutil.which("hadoop", path=environment.get("PATH", ""))
