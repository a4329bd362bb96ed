"""The declarative pipeline of `examples/pipeline`, run by Spark's own `spark-pipelines`."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

from tests.support.spark.class_archive import with_archive
from tests.support.spark.sessions import local_files

EXAMPLE = Path(__file__).parents[2] / "examples" / "pipeline"
NEEDED = ["pyspark.pipelines", "grpc", "grpc_status", "google.rpc", "zstandard", "yaml"]


def is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package it is in
        return False


MISSING = [module for module in NEEDED if not is_there(module)]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(MISSING), reason=f"PySpark {pyspark.__version__}, without {', '.join(MISSING)}"),
]


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    """Return a copy of the example that keeps everything in the test's directory."""
    copy = tmp_path / "pipeline"
    shutil.copytree(EXAMPLE, copy)
    spec = copy / "spark-pipeline.yml"
    assert "/tmp/spillable-pipeline" in spec.read_text()
    spec.write_text(spec.read_text().replace("/tmp/spillable-pipeline", str(tmp_path)))
    return copy


def put_orders(pipeline: Path, first: int, count: int) -> None:
    command = [sys.executable, str(pipeline / "put_orders.py"), str(pipeline.parent), str(first), str(count)]
    subprocess.run(command, check=True, timeout=300)


def run(pipeline: Path) -> None:
    home = Path(pyspark.__file__).parent
    settings = {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.shuffle.partitions": "2",  # of 200 each has files of state, and a task
        "spark.sql.streaming.checkpointFileManagerClass": local_files(),
        "spark.ui.enabled": "false",
    }
    options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    done = subprocess.run(
        [str(home / "bin" / "spark-pipelines"), "run", *options],
        cwd=pipeline,
        env={
            **os.environ,
            "SPARK_HOME": str(home),
            "PYSPARK_PYTHON": sys.executable,
            "JDK_JAVA_OPTIONS": with_archive(),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=800,
    )
    assert done.returncode == 0, done.stdout.decode()[-5000:]


def amounts(spark: SparkSession, pipeline: Path, table: str) -> list[int]:
    return sorted(row.amount for row in spark.read.parquet(str(pipeline / "spark-warehouse" / table)).collect())


def test_every_order_is_in_the_tables_and_in_the_sinks_channel_once_after_two_runs(
    spark: SparkSession, pipeline: Path
) -> None:
    put_orders(pipeline, 0, 100)
    run(pipeline)
    put_orders(pipeline, 100, 20)
    run(pipeline)

    assert amounts(spark, pipeline, "orders") == list(range(120))
    assert amounts(spark, pipeline, "dutch_orders") == list(range(1, 120, 2))
    totals: dict[str, Any] = {
        row.country: (row.orders, row.amount)
        for row in spark.read.parquet(str(pipeline / "spark-warehouse" / "totals")).collect()
    }
    assert totals == {"BE": (60, sum(range(0, 120, 2))), "NL": (60, sum(range(1, 120, 2)))}
    large = spark.read.format("spillable").load(str(pipeline.parent / "large"))
    assert sorted(row.amount for row in large.collect()) == list(range(90, 120))
