"""An archive of Spark's classes, parsed and verified, that the JVMs of the tests map: a start is cheaper.

python -m tests.support.spark.class_archive

It creates the archive, unless there is one for this Java and this PySpark. A JVM that finds none, or one that does not
fit its class path, goes without and says nothing. If SPARK_CONF_DIR names a directory that exists, that is on the class
path too, and the archive does not fit.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

__all__ = ["archive", "java", "made", "train", "use_archive", "with_archive"]

# The optimizing compiler and a parallel collector cost more than they bring, on a few cores.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_SAYS_NOTHING = "-Xshare:auto -Xlog:disable -Xlog:all=error:stderr"

_PROGRAM = """
import sys
from pathlib import Path
from pyspark import SparkContext
from pyspark.sql import SparkSession, functions as F
import spillable_stream as ss
from tests.support.spark.sessions import local_files

directory = Path(sys.argv[1])
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.sql.streaming.checkpointFileManagerClass", local_files())
spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()

def drain(frame, name, mode="append"):
    writer = frame.writeStream.option("checkpointLocation", str(directory / name / "checkpoint"))
    writer = writer.format("spillable").option("minimumRequiredSpace", 0)
    writer.trigger(availableNow=True).start(str(directory / name / "channel")).awaitTermination()

with ss.Channel(directory / "source", minimum_required_space=0) as channel, channel.put_transaction() as tx:
    tx.put_many(ss.Event(b"%d" % i, {"key": str(i % 3)}) for i in range(300))
events = spark.readStream.format("spillable").option("maxEventsPerTrigger", 100).load(str(directory / "source"))
drain(events.select("body"), "rows")
time = F.timestamp_seconds(F.col("body").cast("string").cast("long")).alias("time")
timed = events.select(time, F.col("headers")["key"].alias("key")).withWatermark("time", "10 seconds")
drain(timed.groupBy(F.window("time", "20 seconds"), "key").agg(F.count("*").alias("n")).select("key", "n"), "windows")
each = events.writeStream.foreachBatch(lambda frame, number: frame.collect())
each.trigger(availableNow=True).start().awaitTermination()
rows = spark.read.format("spillable").load(str(directory / "rows" / "channel"))
rows.write.format("spillable").option("minimumRequiredSpace", 0).mode("append").save(str(directory / "batch"))
rows.select("body").write.parquet(str(directory / "parquet"))
assert spark.read.parquet(str(directory / "parquet")).orderBy("body").count() == 300
spark.createDataFrame([(1, "a")], "number INT, text STRING").collect()

gateway = SparkContext._gateway
spark.stop()
gateway.shutdown()
gateway.proc.communicate()  # it ends with its input, and writes the archive
"""


def java() -> str | None:
    """Return the Java that Spark starts, or nothing if there is none."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which(f"{home}/bin/java" if home else "java")


def archive() -> Path | None:
    """Return where the archive is, or would be; nothing without Java or PySpark."""
    program, spark = java(), importlib.util.find_spec("pyspark")
    if program is None or spark is None or spark.origin is None:
        return None
    parts = (Path(program).resolve(), Path(spark.origin).parent / "jars")
    key = hashlib.sha256("".join(f"{path} {path.stat().st_mtime_ns}\n" for path in parts).encode()).hexdigest()
    return Path(sys.prefix) / ".spark-classes" / f"{key[:16]}.jsa"


def with_archive() -> str:
    """Return the options of a JVM that lives for minutes, has little to do, and maps the archive."""
    return " ".join([_SHORT_LIVED, *([f"-XX:SharedArchiveFile={a} {_SAYS_NOTHING}"] if (a := archive()) else [])])


def use_archive() -> None:
    """Let each driver and each daemon of Spark's that is started from here on have these options."""
    os.environ["SPARK_SUBMIT_OPTS"] = os.environ["SPARK_DAEMON_JAVA_OPTS"] = with_archive()


def train(unfinished: Path) -> None:
    """Do in a session what the tests do, and write what classes that took."""
    options = f"{_SHORT_LIVED} {_SAYS_NOTHING} -XX:ArchiveClassesAtExit={unfinished}"
    environment = {k: v for k, v in os.environ.items() if k != "SPARK_CONF_DIR"}
    environment |= {"PYSPARK_PYTHON": sys.executable, "SPARK_SUBMIT_OPTS": options, "SPARK_LOCAL_IP": "127.0.0.1"}
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-c", _PROGRAM, directory]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(f"Spark did not run, so the tests have no archive of its classes:\n{done.stderr[-3000:]}")


def made(path: Path, write: Callable[[Path], None] = train) -> bool:
    """Create the archive, and remove those of other versions; others may make it at the same time.

    Args:
        path: where it will be.
        write: writes it to a path that it is given.

    Returns:
        Whether it is there; not all builds of Java can make one.
    """
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as directory:
            unfinished = Path(directory) / path.name
            write(unfinished)
            if not unfinished.exists():
                return False
            for old in path.parent.glob("*.jsa"):
                old.unlink(missing_ok=True)
            unfinished.replace(path)
    return True


if __name__ == "__main__":
    where = archive()
    if where is not None and not made(where):
        print("This Java creates no archive of classes: the tests run without", file=sys.stderr)
