"""What makes Spark quick where a session lives for minutes and has little to do."""

from __future__ import annotations

import os
import sys

import pyspark

from tests.support.spark.class_archive import with_archive


def local_files() -> str:
    """Return the class of Spark's checkpoint files that is quick on a local disk: the usual one starts programs."""
    room = "" if pyspark.__version__.startswith("4.0") else "checkpointing."
    return f"org.apache.spark.sql.execution.streaming.{room}FileSystemBasedCheckpointFileManager"


def short_sessions() -> dict[str, str]:
    """Return the environment of a program that makes Spark sessions of its own; what it says itself goes first."""
    defaults = {
        "spark.sql.streaming.checkpointFileManagerClass": local_files(),
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    options = [with_archive(), *(f"-D{key}={value}" for key, value in defaults.items())]
    return {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_SUBMIT_OPTS": " ".join(options)}
