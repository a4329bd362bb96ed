"""What makes Spark quick where a session lives for minutes and has little to do."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyspark

# The optimizing compiler and a parallel collector cost more than they bring, on a few cores.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def local_files() -> str:
    """Return the class of Spark's checkpoint files that is quick on a local disk: the usual one starts programs."""
    room = "" if pyspark.__version__.startswith("4.0") else "checkpointing."
    return f"org.apache.spark.sql.execution.streaming.{room}FileSystemBasedCheckpointFileManager"


def short_sessions(directory: Path) -> dict[str, str]:
    """Return the environment of a program that makes Spark sessions of its own; what it says itself goes first.

    Args:
        directory: where Spark's defaults are written.
    """
    directory.mkdir(exist_ok=True)
    defaults = {
        "spark.sql.streaming.checkpointFileManagerClass": local_files(),
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": SHORT_LIVED,
    }
    (directory / "spark-defaults.conf").write_text("".join(f"{k} {v}\n" for k, v in defaults.items()))
    return {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_CONF_DIR": str(directory)}
